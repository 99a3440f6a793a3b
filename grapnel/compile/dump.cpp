#include "grapnel/compile/dump.h"

#include <cstdlib>
#include <fstream>
#include <mutex>
#include <ostream>
#include <sstream>

#include "grapnel/base/at_fork.h"
#include "grapnel/base/place.h"
#include "grapnel/base/warn.h"
#include "grapnel/capture/graph_reader.h"
#include "grapnel/codegen/jit.h"

namespace grapnel::compiler {

using namespace capture;

namespace {

std::ostream* from_environment() {
  const char* const path = std::getenv("GRAPNEL_DUMP");
  if (!path || !*path) return nullptr;
  auto* const file = new std::ofstream(path, std::ios::app);  // graphs are made until the end
  if (file->is_open()) return file;
  base::warn(str("GRAPNEL_DUMP: ", path, " cannot be written, so graphs are not written down."));
  return nullptr;
}

std::ostream*& stream() {
  static std::ostream* out = from_environment();
  return out;
}

void dump_trace(std::ostream& out, const Trace& trace) {
  out << graph_of(trace).str();
  // What the text does not show: who shares memory with whom, and how it is laid out.
  for (ValueId id = 0; id < trace.values.size(); ++id) {
    const Value& v = trace.values[id];
    if (v.number) continue;
    out << "value " << id << ": slot " << v.slot << (trace.slots[v.slot].outside ? " outside" : "")
        << (trace.slots[v.slot].live ? " live" : "") << ", strides";
    for (const int64_t s : trace.strides_of(v)) out << ' ' << s;
    out << ", offset " << trace.offset_of(v) << '\n';
  }
}

/// Ops stand in keys by address; here by name.
void dump_key(std::ostream& out, const Trace& trace) {
  size_t at = 0;
  for (const Instruction& call : trace.calls) {
    const auto address = std::bit_cast<uint64_t>(call.op);
    const auto low = static_cast<uint32_t>(address), high = static_cast<uint32_t>(address >> 32);
    for (; at < call.key_end; ++at) {
      if (at + 1 < call.key_end && trace.key[at] == low && trace.key[at + 1] == high) {
        out << call.op->name << ' ';
        ++at;
      } else {
        out << trace.key[at] << ' ';
      }
    }
    out << '\n';
  }
  for (; at < trace.key.size(); ++at) out << trace.key[at] << ' ';
  out << '\n';
}

template <class List>
void dump_list(std::ostream& out, const char* name, const List& list) {
  out << ' ' << name;
  for (const auto& x : list) out << ' ' << x;
}

void dump_inputs(std::ostream& out, const std::vector<Group::Input>& inputs) {
  for (const Group::Input& in : inputs)
    out << " (" << in.value << ' ' << in.shape << ' ' << in.trailing << ')';
}

void dump_plan(std::ostream& out, const Trace& trace, const Simplified& simplified,
               const Plan& plan) {
  out << "skipped";
  for (size_t i = 0; i < simplified.skipped.size(); ++i)
    if (simplified.skipped[i]) out << ' ' << i;
  out << "\nsame";
  for (const auto& [slot, twin] : simplified.same) out << ' ' << slot << '=' << twin;
  out << '\n';
  for (const Item& item : plan.items) {
    if (item.call != kNone) out << trace.calls[item.call].op->name << ' ' << item.call;
    if (item.group >= 0) out << "group " << item.group;
    if (item.sweep >= 0) out << " sweep " << item.sweep;
    if (item.prologue) out << " prologue";
    dump_list(out, "last", item.last_uses);
    out << '\n';
  }
  for (const Group& g : plan.groups) {
    out << "group: in";
    dump_inputs(out, g.inputs);
    dump_list(out, "numbers", g.numbers);
    out << " out";
    for (const Group::Output& o : g.outputs) out << " (" << o.value << ' ' << o.reg << ')';
    if (g.product) out << " product " << g.product.call << (g.product.stored ? " stored" : "");
    out << " reduce " << static_cast<int>(g.reduce);
    for (const Group::Reduction& r : g.reductions) out << " (" << r.call << ' ' << r.reg << ')';
    out << " space " << g.space;
    dump_list(out, "calls", g.calls);
    out << '\n';
  }
  for (const Sweep& s : plan.sweeps) {
    out << "sweep: first " << s.first << " parts";
    for (const Sweep::Part& p : s.parts) out << ' ' << p.per_row;
    out << " locals";
    for (const Sweep::Local& l : s.locals) out << " (" << l.slot << ' ' << l.per_row << ')';
    out << " space " << s.space << " reduction " << s.reduction << " whole " << s.whole_rows;
    dump_inputs(out, s.along_rows);
    out << '\n';
  }
  for (const Plan::Heir& h : plan.heirs) out << "heir " << h.slot << " of " << h.of << '\n';
}

void dump_kernel(std::ostream& out, const codegen::BlockProgram& program) {
  out << program.str() << '\n';
  try {
    for (const base::Isa isa : {base::Isa::baseline, base::Isa::avx2, base::Isa::avx512})
      out << "; for " << base::name_of(isa) << '\n' << codegen::ir_of(program, isa);
  } catch (const Error& e) {
    out << "; " << base::message_of(e) << '\n';
  }
}

/// As the plan has it, and as it may be looked up later for the sizes at hand.
void dump_kernels(std::ostream& out, const Trace& trace, const Plan& plan) {
  for (const Group& g : plan.groups) {
    codegen::BlockProgram program = g.program;
    dump_kernel(out, program);
    if (g.reductions.empty()) {
      program.streams = true;
      dump_kernel(out, program);
    } else if (g.reduce == Group::Reduce::rows) {
      for (const Group::Reduction& r : g.reductions)
        program.reductions.push_back(static_cast<int16_t>(trace.calls[r.call].op->index));
      dump_kernel(out, program);
    }
  }
}

}  // namespace

std::ostream* dump_stream() { return stream(); }
void set_dump_stream(std::ostream* out) { stream() = out; }

void dump(std::ostream& stream, const Trace& trace, const Simplified& simplified,
          const Plan& plan) {
  std::ostringstream out;
  out << "= trace\n";
  dump_trace(out, trace);
  out << "= key\n";
  dump_key(out, trace);
  out << "= plan\n";
  dump_plan(out, trace, simplified, plan);
  out << "= kernels\n";
  dump_kernels(out, trace, plan);
  out << "= end\n";
  // Several threads may compile at the same time.
  static constinit base::ProcessMutex mutex{base::ForkOrder::settings};
  const std::lock_guard lock(mutex);
  stream << out.str() << std::flush;
}

}  // namespace grapnel::compiler
