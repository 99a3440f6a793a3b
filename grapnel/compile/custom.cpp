#include "grapnel/compile/custom.h"

#include <mutex>

#include "grapnel/autograd/grad_mode.h"
#include "grapnel/base/context.h"
#include "grapnel/base/source_site.h"
#include "grapnel/capture/graph_reader.h"
#include "grapnel/capture/key.h"
#include "grapnel/capture/run_log.h"
#include "grapnel/compile/graph_compiler.h"
#include "grapnel/compile/memory.h"
#include "grapnel/ops/evaluator.h"

namespace grapnel::compiler {

using namespace capture;

/// Compilers that this thread is asking, innermost first.
struct Asking {
  const GraphCompiler* compiler;
  const Asking* outer;
};

namespace {

/// Functions for one key that are kept: more than a program needs whose sizes settle down.
constexpr size_t kMostFunctions = 16;

/// A trace as a graph: what it reads of the memory from outside, and what is wanted of it.
struct Ends {
  std::vector<ValueId> inputs, outputs;
  std::vector<SlotId> results;  ///< where the outputs lie
  /// Whether every result is one value.
  bool whole = true;
};

Ends ends_of(const Trace& trace) {
  Ends ends;
  std::vector<bool> known(trace.values.size());
  for (const Instruction& c : trace.calls) {
    for (const ValueId v : trace.inputs_of(c)) {
      if (v == kNone || known[v]) continue;
      known[v] = true;
      if (!trace.values[v].number && trace.slots[trace.values[v].slot].outside)
        ends.inputs.push_back(v);
    }
    for (const ValueId v : trace.outputs_of(c))
      if (v != kNone) known[v] = true;
  }
  for (SlotId s = 0; s < trace.slots.size(); ++s) {
    if (!trace.slots[s].live) continue;
    ValueId value = trace.slots[s].first;
    while (value != kNone && !trace.values[value].linear) value = trace.values[value].next;
    ends.whole &= value != kNone;
    ends.outputs.push_back(value);
    ends.results.push_back(s);
  }
  return ends;
}

/// All that a function made for one trace may depend on besides its inputs.
Words look_of(const Trace& trace) {
  Words words;
  for (const Value& v : trace.values) {
    if (v.number) {
      key::wide(words, trace.numbers[v.slot]);
    } else {
      key::wide(words, trace.sizes_of(v));
      key::wide(words, trace.strides_of(v));
      key::wide(words, static_cast<uint64_t>(trace.offset_of(v)));
    }
  }
  for (const Instruction& c : trace.calls) {
    key::attrs(words, *c.op, trace.attrs_of(c), key::Which::all);
  }
  return words;
}

class Custom final : public Executable {
 public:
  Custom(const Trace& trace, const CompileOptions& options)
      : compiler_(options.compiler), options_(options) {
    options_.compiler = nullptr;
    Trace copy = trace;  // holds the memory of the inputs, which are only looked at
    Memory memory(copy);
    const Ends ends = ends_of(trace);
    Runner runner = ask(trace, ends, inputs_of(ends, memory));
    if (runner.backend() || !ends.whole) {
      if (runner.backend()) options_.backend = *runner.backend();
      planned_ = make_executable(trace, options_);
      kernels = planned_->kernels;
      fused_calls = planned_->fused_calls;
      epilogues = planned_->epilogues;
      prologues = planned_->prologues;
      compiler_ = nullptr;  // is not asked again, and may go
    } else {
      for (const Instruction& c : trace.calls)
        if (c.op->effect)
          fail("GraphCompiler: the graph calls a function of the program (", c.op->name, " at ",
               base::describe({c.site}),
               "), whose arguments belong to the program, so only a backend can run it.\nAnswer "
               "with a Backend for such graphs.");
      keep(look_of(trace), std::make_shared<const Runner>(std::move(runner)));
    }
  }

  void run(Trace& trace, RunCounts& counts) const override {
    if (planned_) return planned_->run(trace, counts);
    try {
      run_function(trace);
      RunLog::reach(trace, static_cast<uint32_t>(trace.calls.size()));
      trace.allocate_results();
    } catch (...) {
      // How far the function came is its own secret.
      for (const Instruction& call : trace.calls) RunLog::left_out(trace, call);
      throw;
    }
  }

 private:
  using Function = std::shared_ptr<const Runner>;

  Runner ask(const Trace& trace, const Ends& ends, const std::vector<Tensor>& inputs) const {
    struct Scope {
      Asking now;
      explicit Scope(const GraphCompiler* compiler) : now{compiler, this_context.asking} {
        this_context.asking = &now;
      }
      ~Scope() { this_context.asking = now.outer; }
    } scope(compiler_.get());
    const base::UserCodeScope user;
    return compiler_->compile(graph_of(trace, ends.inputs, ends.outputs), inputs);
  }

  static std::vector<Tensor> inputs_of(const Ends& ends, Memory& memory) {
    std::vector<Tensor> out;
    for (const ValueId v : ends.inputs) out.push_back(memory.tensor(v));
    return out;
  }

  void keep(Words look, Function function) const {
    const std::lock_guard lock(mutex_);
    if (functions_.size() >= kMostFunctions) functions_.erase(functions_.begin());
    functions_.emplace_back(std::move(look), std::move(function));
  }
  Function find(const Words& look) const {
    const std::lock_guard lock(mutex_);
    for (const auto& [words, function] : functions_)
      if (words == look) return function;
    return nullptr;
  }

  void run_function(Trace& trace) const {
    const Ends ends = ends_of(trace);
    Memory memory(trace);
    const std::vector<Tensor> inputs = inputs_of(ends, memory);
    Words look = look_of(trace);
    Function function = find(look);
    if (!function) {
      function = std::make_shared<const Runner>(ask(trace, ends, inputs));
      check(!function->backend(),
            "GraphCompiler: it gave a function for this graph before, and names a backend for "
            "other sizes or numbers.\nGive the same kind of answer for graphs of one text.");
      keep(std::move(look), function);
    }
    // Writes were counted when they were recorded.
    std::vector<std::pair<Storage*, uint32_t>> versions;
    for (const Slot& s : trace.slots)
      if (s.outside) versions.emplace_back(s.storage, s.storage->version());
    std::vector<Tensor> outputs;
    {
      const NoGradGuard no_grad;
      const base::UserCodeScope user;
      outputs = function->function()(inputs);
    }
    for (const auto& [storage, version] : versions) storage->set_version(version);
    check(outputs.size() == ends.outputs.size(), "GraphCompiler: the function returned ",
          outputs.size(), " tensors, and the graph has ", ends.outputs.size(), " outputs.");
    for (size_t i = 0; i < outputs.size(); ++i) {
      const Tensor target = memory.tensor(ends.outputs[i]);
      check(outputs[i].defined() && outputs[i].shape() == target.shape() &&
                outputs[i].dtype() == target.dtype(),
            "GraphCompiler: output ", i, " is ",
            outputs[i].defined() ? str(outputs[i].dtype(), outputs[i].shape()) : "undefined",
            ", and that of the graph is ", target.dtype(), target.shape(), ".");
      copy_elements(target, outputs[i]);
    }
  }

  std::shared_ptr<GraphCompiler> compiler_;
  CompileOptions options_;
  std::unique_ptr<Executable> planned_;  ///< if the answer was a backend
  mutable std::mutex mutex_;
  mutable std::vector<std::pair<Words, Function>> functions_;  ///< by what they depend on
};

}  // namespace

std::unique_ptr<Executable> make_custom(const Trace& trace, const CompileOptions& options) {
  return std::make_unique<Custom>(trace, options);
}

void refuse_inside(const CompileOptions& options) {
  for (const Asking* a = this_context.asking; a && options.compiler; a = a->outer)
    check(a->compiler->identity() != options.compiler->identity(),
          "GraphCompiler: while it compiled a graph, it called a function that it compiles "
          "itself.\nCall the function with another backend, or uncompiled.");
}

}  // namespace grapnel::compiler
