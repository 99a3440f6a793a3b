#include "command/probe.h"

#include "grapnel/autograd/hook_table.h"
#include "grapnel/capture/recorder.h"

namespace command {

using namespace grapnel;

namespace {

uint32_t recorded() {
  return record::active() ? static_cast<uint32_t>(record::open_recorder()->trace().calls.size())
                          : 0;
}

/// The call that wrote the memory of `t` last.
uint32_t maker_of(const Tensor& t) {
  const capture::Trace& trace = record::open_recorder()->trace();
  const Storage* storage = t.impl().storage.get();
  for (size_t i = trace.calls.size(); i-- > 0;) {
    if (trace.calls[i].op->family == Family::view) continue;
    for (const capture::ValueId id : trace.outputs_of(trace.calls[i]))
      if (id != capture::kNone && trace.slots[trace.values[id].slot].storage == storage)
        return static_cast<uint32_t>(i);
  }
  return capture::kNone;
}

/// What a kernel does, in a few words.
std::string ops_of(const capture::Trace& trace, std::span<const uint32_t> calls) {
  std::string text;
  for (size_t i = 0; i < calls.size(); ++i) {
    if (i == 6 && calls.size() > 7) return text + str(" and ", calls.size() - i, " more");
    text += (i ? ", " : "") + std::string(trace.calls[calls[i]].op->name);
  }
  return text;
}

}  // namespace

double Probe::now() {
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

struct Probe::OpObserver final : TapeObserver {
  explicit OpObserver(Probe& p) : probe(p) {}
  void on_op(Node& node, std::span<const Tensor>) override { probe.on_op(node); }
  Probe& probe;
};

void Probe::begin(int64_t step) {
  step_ = step;
  on_ = true;
  RunObserver::set_current(this);
  ops_ = std::make_shared<OpObserver>(*this);
  TapeObserver::add(ops_);
  drawing_ = Picture();
  drawing_.names = picture_.names;
}

void Probe::end() {
  if (!on_) return;
  close_phase();
  on_ = false;
  RunObserver::set_current(nullptr);
  ops_.reset();
  if (!drawing_.empty()) picture_ = std::move(drawing_);
}

void Probe::phase(const char* name) {
  if (!on_) return;
  close_phase();
  phase_ = name;
  phase_start_ = last_op_ = now();
  drawing_.phases.push_back({name, recorded()});
}

void Probe::close_phase() {
  if (phase_) add("phase", phase_, phase_start_, now());
  phase_ = nullptr;
}

void Probe::add(std::string lane, std::string name, double begin, double end) {
  const std::lock_guard lock(mutex_);
  spans_.push_back({std::move(lane), std::move(name), begin, end, step_});
}

std::vector<Span> Probe::spans() const {
  const std::lock_guard lock(mutex_);
  return spans_;
}

void Probe::on_graph(const capture::Trace& trace) {
  // What was recorded is the picture's last phase from here on; running it is one of its own.
  close_phase();
  phase_ = "run";
  phase_start_ = now();
  drawn_ = drawing_.empty();
  if (drawn_) drawing_.add_graph(trace);
}

void Probe::on_item(const capture::Trace& trace, const Item& item) {
  const auto micro = [](Time t) {
    return std::chrono::duration<double, std::micro>(t.time_since_epoch()).count();
  };
  add(item.kernel ? "kernel" : "op", ops_of(trace, item.calls), micro(item.begin), micro(item.end));
  if (drawn_) drawing_.add_item(item);
}

void Probe::on_op(Node& node) {
  if (record::active()) return;
  // Told after the op: it ran since the one before.
  const double end = now();
  add("op", std::string(node.name()), last_op_, end);
  const auto start = std::make_shared<double>(0);
  auto before = [start](const variable_list&) { *start = now(); };
  auto after = [this, start, name = std::string(node.name())](const variable_list&,
                                                              const variable_list&) {
    add("op", name + " backward", *start, now());
  };
  node.make_hooks()->add(HookKind::node_pre, 0,
                         std::make_shared<CallableNodePreHook<decltype(before)>>(before), {},
                         /*is_tool=*/true);
  node.make_hooks()->add(HookKind::node_post, 0,
                         std::make_shared<CallableNodePostHook<decltype(after)>>(after), {},
                         /*is_tool=*/true);
  last_op_ = now();
}

Probe::HookScope::HookScope(Probe& probe, const std::string& name, const std::string& tensor,
                            const Tensor& grad)
    : probe_(probe.on_ ? &probe : nullptr) {
  if (!probe_) return;
  name_ = name + " of " + tensor;
  if (record::active()) {
    note_ = probe.drawing_.hooks.size() + 1;
    probe.drawing_.hooks.push_back({name, tensor, recorded(), recorded(), maker_of(grad)});
  }
  start_ = now();
}

Probe::HookScope::~HookScope() {
  if (!probe_) return;
  probe_->add("hook", name_, start_, now());
  if (note_) probe_->drawing_.hooks[note_ - 1].end = recorded();
}

}  // namespace command
