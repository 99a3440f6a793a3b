#include "grapnel/compile/session.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ostream>

#include "grapnel/autograd/engine.h"
#include "grapnel/autograd/visit.h"
#include "grapnel/base/error_kinds.h"
#include "grapnel/base/place.h"
#include "grapnel/base/source_site.h"
#include "grapnel/base/warn.h"
#include "grapnel/capture/declared.h"
#include "grapnel/capture/graph_reader.h"
#include "grapnel/compile/cache.h"
#include "grapnel/compile/custom.h"
#include "grapnel/compile/log.h"

namespace grapnel {

namespace {
std::atomic<int64_t> graphs_of_program{0};
}  // namespace

std::string_view name(Backend backend) {
  switch (backend) {
    case Backend::eager: return "eager";
    case Backend::aot_eager: return "aot_eager";
    case Backend::fused: return "fused";
  }
  return "";
}

std::string Reason::str() const {
  return where.empty() ? what : grapnel::str(what, ", at ", where);
}

std::string CompileStats::str() const {
  return grapnel::str(graphs, " graphs compiled in ", compile_ms, " ms, ", hits, " hits, ", misses,
                      " misses, ", breaks, " breaks, ", fused_calls, " ops in ", kernels,
                      " kernels");
}
std::ostream& operator<<(std::ostream& out, const CompileStats& stats) {
  return out << stats.str();
}

CompileCounter::CompileCounter() : start_(graphs_of_program) {}
int64_t CompileCounter::graphs() const { return graphs_of_program - start_; }
void CompileCounter::reset() { start_ = graphs_of_program; }

void reset_compile_cache() {
  compiler::evict_all();
  capture::forget_hook_bodies();
}

namespace compiler {

using namespace capture;

namespace {

/// A function that compiles this many graphs is told so once: something in it changes on every
/// call.
constexpr int64_t kManyGraphs = 64;
constexpr size_t kReasonsKept = 256;

/// During a backward pass: " in the tensor hook 'clip' registered at train.cpp:12, at the node of
/// mul".
std::string reader() {
  const std::string hook = visit::RunningHook::describe();
  const Node* node = engine::current_node();
  return str(hook.empty() ? "" : " in the ", hook, node ? ", at the node of " : "",
             node ? node->name() : "");
}

void keep(std::vector<Reason>& reasons, Reason reason) {
  if (reasons.size() < kReasonsKept) reasons.push_back(std::move(reason));
}
void keep_new(std::vector<Reason>& reasons, Reason reason) {
  const auto same = [&](const Reason& r) {
    return r.what == reason.what && r.where == reason.where;
  };
  if (std::ranges::none_of(reasons, same)) keep(reasons, std::move(reason));
}

}  // namespace

CompileStats Session::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void Session::reset() {
  const std::lock_guard lock(mutex_);
  stats_ = {};
  last_ = {};
  for (capture::Words& words : compiled_) evict(CacheKey(std::move(words)));
  compiled_.clear();
}

bool Session::names_hooks() const {
  return options_.compiler || log::enabled(log::Topic::backward);
}

Reason Session::explain_miss(const Trace& trace) const {
  if (last_.words.empty())
    return {"first graph of this function",
            trace.calls.empty() ? "" : base::describe({trace.calls[0].site})};
  size_t at = 0;
  while (at < trace.key.size() && at < last_.words.size() && trace.key[at] == last_.words[at]) ++at;
  const Instruction* now = nullptr;
  for (const Instruction& c : trace.calls)
    if (c.key_end > at) {
      now = &c;
      break;
    }
  const Op* before = nullptr;
  for (const auto& [end, op] : last_.ends)
    if (end > at) {
      before = op;
      break;
    }
  if (!now && !before) return {"other results are alive at the end", ""};
  if (!now) return {str("the graph ends where ", before->name, " followed before"), ""};
  const std::string where = base::describe({now->site});
  const auto number = now - trace.calls.data();
  if (!before)
    return {str("call ", number, ", ", now->op->name, ", is new: the graph ended there before"),
            where};
  if (before != now->op)
    return {str("call ", number, " is ", now->op->name, ", was ", before->name), where};
  return {str("call ", number, ", ", now->op->name,
              ": an operand, type, rank, broadcast or attribute differs"),
          where};
}

void Session::run(Trace& trace) {
  refuse_inside(options_);
  const CacheKey key(trace.key, options_);
  const auto start = std::chrono::steady_clock::now();
  bool made = false, fell_back = false;
  std::string failure;
  const auto executable = find_or_make(key, made, [&]() -> std::unique_ptr<Executable> {
    try {
      return make_executable(trace, options_);
    } catch (const std::exception& e) {
      if (options_.compiler) throw;  // the user's own
      if (options_.on_failure == OnFailure::error)
        fail("compile: backend ", name(options_.backend),
             " failed: ", base::without_places(e.what()));
      failure = base::without_places(e.what());
      fell_back = true;
      return make_op_by_op();
    }
  });
  const double ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  if (fell_back) {
    static std::once_flag warned;
    std::call_once(warned, [&] {
      base::warn(str("compile: backend ", name(options_.backend),
                     " failed, so graphs run call by call: ", failure));
    });
  }
  std::string warning;
  {
    const std::lock_guard lock(mutex_);
    stats_.calls += static_cast<int64_t>(trace.calls.size());
    stats_.skipped_hooks += trace.skipped_hooks;
    if (made) {
      Reason why = explain_miss(trace);
      log::compile([&] {
        return str("graph of ", trace.calls.size(), " calls compiled in ", ms, " ms, ",
                   executable->kernels, " kernels, ", executable->epilogues,
                   " of them behind products and ", executable->prologues, " before: ", why.str());
      });
      if (trace.walked && log::enabled(log::Topic::backward))
        log::write("grapnel backward: " + graph_of(trace).str());
      keep(stats_.miss_reasons, std::move(why));
      ++stats_.graphs, ++stats_.misses, ++graphs_of_program;
      stats_.fallbacks += fell_back;
      stats_.compile_ms += ms;
      stats_.kernels += executable->kernels;
      stats_.fused_calls += executable->fused_calls;
      if (compiled_.size() >= kMostExecutables) compiled_.erase(compiled_.begin());
      compiled_.push_back(key.words);
      if (stats_.graphs == kManyGraphs)
        warning = str("compile: a function has compiled ", kManyGraphs,
                      " graphs, which takes longer than it saves. The last one because ",
                      stats_.miss_reasons.empty() ? std::string("of a new graph")
                                                  : stats_.miss_reasons.back().str(),
                      ".\nGRAPNEL_LOG=compile lists every reason.");
    } else {
      ++stats_.hits;
    }
    if (last_.words != trace.key) {
      last_.words = trace.key;
      last_.ends.clear();
      for (const Instruction& c : trace.calls) last_.ends.emplace_back(c.key_end, c.op);
    }
  }
  if (!warning.empty()) base::warn(warning);  // whose handler may ask for statistics
  RunCounts counts;
  {
    // Passes that user code starts while the graph runs are not part of it.
    struct RunPassesAtOnce {
      engine::PassRunner* const outer = engine::set_pass_runner(nullptr);
      ~RunPassesAtOnce() { engine::set_pass_runner(outer); }
    } at_once;
    executable->run(trace, counts);
  }
  const std::lock_guard lock(mutex_);
  stats_.bytes_read += counts.bytes_read;
  stats_.bytes_written += counts.bytes_written;
}

void Session::on_break(const record::Break& why, const Trace& trace) {
  const std::string where = why.site ? base::describe({why.site}) : "";
  if (options_.fullgraph || this_context.nested_fullgraph > 0)
    fail_as<GraphBreak>(
        "fullgraph: ", why.reason, where.empty() ? "" : " at ", where, reader(), " after ",
        trace.calls.size(), " recorded ops", trace.calls.empty() ? "" : ", the last of which is ",
        trace.calls.empty() ? std::string_view() : trace.calls.back().op->name, ".\n",
        // A backward pass enters what is invoked, to record it.
        engine::current_node() ? "Make the hook that reads it opaque(...)"
                               : "Return the tensor and read it outside, wrap the reader in "
                                 "invoke(...) or opaque(...)",
        ", or allow breaks with fullgraph = false.");
  const std::lock_guard lock(mutex_);
  ++stats_.breaks;
  log::compile([&] { return str("graph break: ", Reason{why.reason, where}.str()); });
  keep_new(stats_.break_reasons, {why.reason, where});
}

// Who opens recordings has to know of an outer one.
bool is_nested() { return record::active(); }

std::shared_ptr<Session> make_session(const CompileOptions& options) {
  return std::make_shared<Session>(options);
}
CompileStats stats_of(const Session& session) { return session.stats(); }
void reset(Session& session) { session.reset(); }

CompileScope::CompileScope(const std::shared_ptr<Session>& session) : session_(session) {
  if (is_nested()) this_context.nested_fullgraph += session_->options().fullgraph;
  else scope_ = std::make_unique<record::RecordScope>(*session_);
}
CompileScope::~CompileScope() {
  if (!scope_) this_context.nested_fullgraph -= session_->options().fullgraph;
}
void CompileScope::finish() {
  if (scope_) scope_->finish();
}

}  // namespace compiler
}  // namespace grapnel
