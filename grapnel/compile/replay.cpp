#include "grapnel/compile/replay.h"

#include <atomic>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "grapnel/base/error_kinds.h"
#include "grapnel/base/source_site.h"
#include "grapnel/capture/graph_reader.h"
#include "grapnel/capture/key.h"
#include "grapnel/capture/recorder.h"
#include "grapnel/compile/session.h"
#include "grapnel/ops/autocast.h"
#include "grapnel/ops/tape.h"

namespace grapnel {

namespace {
std::atomic<bool>& audit_mode() {
  static std::atomic<bool> on = [] {
    const char* text = std::getenv("GRAPNEL_AUDIT");
    return text && std::string_view(text) == "replay";
  }();
  return on;
}
}  // namespace

void set_replay_audit(bool on) { audit_mode() = on; }

namespace compiler {

using namespace capture;

struct ReplayKey {
  Words words;
  Storages storages;  ///< of the tensors
};

/// One recorded call.
struct Replays::Entry {
  /// Where a tensor of the result comes from.
  struct Output {
    enum class From : uint8_t { nothing, argument, part_of_argument, computed, outside };
    From from = From::nothing;
    uint32_t index = 0;  ///< of the argument or the slot
    Tensor outside;
    DType dtype = kFloat32;
    Shape sizes, strides;
    int64_t offset = 0;

    Tensor over(StoragePtr storage) const {
      return Tensor(TensorImpl::create(std::move(storage), dtype, sizes, strides, offset));
    }
    Tensor of(const Tensor& argument) const {
      return from == From::argument ? argument : over(argument.impl().storage);
    }
  };
  Words key;     ///< of the arguments, with the modes of the thread
  Words result;  ///< words of the result
  Graph graph;   ///< what the body does, with stand-ins for arguments
  Trace
      trace;  ///< the same with its memory, to be run. Holds storages from outside, except those of arguments
  /// Slots and the arguments whose memory they are.
  std::vector<std::pair<SlotId, uint32_t>> arguments;
  std::vector<Output> outputs;
  std::shared_ptr<const void> form;
};

const void* Replays::form_of(const Entry& entry) { return entry.form.get(); }

void refuse_types() {
  fail(
      "replay: arguments and results have to be tensors, numbers, text, optionals, containers and "
      "tuples of these, or structs with\n"
      "`static void visit(auto& self, auto&& fn)` that calls fn on each member; and there has to "
      "be a result.\nCompile the function without replay.");
}

namespace {

constexpr size_t kMostEntries = 64;
constexpr uint32_t kNoArgument = 0xffffffff;

Words key_of(const ReplayValues& arguments) {
  Words key = arguments.key->words;
  key.push_back(static_cast<uint32_t>(GradMode::is_enabled()) |
                static_cast<uint32_t>(InferenceMode::is_enabled()) << 1 |
                static_cast<uint32_t>(Autocast::dtype()) << 8 |
                static_cast<uint32_t>(get_default_dtype()) << 16);
  const Device device = get_default_device();
  key.push_back(static_cast<uint32_t>(device.type()) | static_cast<uint32_t>(device.index()) << 8);
  return key;
}

/// The first of `tensors` that lies there.
uint32_t first_over(const Storage* storage, const std::vector<Tensor>& tensors) {
  for (size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].defined() && tensors[i].impl().storage.get() == storage)
      return static_cast<uint32_t>(i);
  return kNoArgument;
}

/// See Note [Stand-ins] in replay.h.
std::vector<Tensor> stand_ins_for(const std::vector<Tensor>& arguments) {
  std::vector<Tensor> out;
  for (const Tensor& t : arguments) {
    Tensor& made = out.emplace_back();
    if (!t.defined()) continue;
    const TensorImpl& impl = t.impl();
    // Values that do not come, or come from elsewhere: using them says so.
    if (impl.storage->pending()) {
      made = t;
      continue;
    }
    StoragePtr storage;
    for (size_t i = 0; i + 1 < out.size(); ++i) {
      if (!arguments[i].defined()) continue;
      if (&arguments[i].impl() == &impl) made = out[i];
      if (arguments[i].impl().storage == impl.storage) storage = out[i].impl().storage;
    }
    if (made.defined()) continue;
    if (!storage)
      storage = Storage::borrow(
          impl.storage->address(), impl.storage->bytes(), [keep = impl.storage](void*) {},
          impl.storage->device());
    made = Tensor(
        TensorImpl::create(std::move(storage), impl.dtype, impl.sizes, impl.strides, impl.offset));
    made.impl().wrapped_number = impl.wrapped_number;
    made.impl().inference = impl.inference;
    if (t.requires_grad()) made.set_requires_grad(true);
  }
  return out;
}

template <class Kind = Error>
[[noreturn]] void refuse(const std::string& what) {
  fail_as<Kind>("replay: the function ", what,
                ", so its body has to run on every call.\nCompile it without replay.");
}

void check_pure(const Trace& trace) {
  for (const Instruction& c : trace.calls) {
    if (c.op->random)
      refuse(str("draws random numbers (", c.op->name, " at ", base::describe({c.site}), ")"));
    if (c.op->effect)
      refuse(str("calls code that is not recorded (", c.op->name, " at ", base::describe({c.site}),
                 ")"));
    if (c.inplace && trace.slots[trace.values[trace.inputs_of(c)[0]].slot].outside)
      refuse(str("writes to a tensor from outside (", c.op->name, " at ", base::describe({c.site}),
                 ")"));
  }
}

/// Keeps the trace it runs.
class Keeper final : public record::Sink {
 public:
  Keeper(Session& session, const std::vector<Tensor>& stand_ins)
      : session_(session), stand_ins_(stand_ins) {}

  void expect(const ReplayValues& result) { result_ = &result; }
  void run(Trace& trace) override {
    if (!result_ || ran_) refuse("is too long to be one graph");
    ran_ = true;
    check_pure(trace);
    for (SlotId s = 0; s < trace.slots.size(); ++s) {
      if (!trace.slots[s].live) continue;
      bool returned = false;
      for (const Tensor& t : result_->tensors)
        returned |= t.defined() && t.impl().storage == trace.held[s];
      if (!returned) refuse("keeps a tensor that it does not return");
      computed_.emplace_back(trace.held[s].get(), s);
    }
    kept_ = trace;
    for (SlotId s = 0; s < kept_.slots.size(); ++s) {
      Slot& slot = kept_.slots[s];
      // Memory of the caller's was copied for this run; replays look at it themselves.
      if (slot.outside && slot.storage->borrowed()) kept_.held[s] = StoragePtr(slot.storage);
      const uint32_t argument = slot.outside ? first_over(slot.storage, stand_ins_) : kNoArgument;
      if (argument != kNoArgument) inputs_.emplace_back(s, argument);
      if (slot.live || argument != kNoArgument) kept_.held[s].reset();
      slot.storage = kept_.held[s].get();
    }
    session_.run(trace);
  }
  void on_break(const record::Break& why, const Trace&) override {
    refuse<GraphBreak>(str("looks at a value (", why.reason, why.site ? " at " : "",
                           why.site ? base::describe({why.site}) : "", ")"));
  }
  bool keys_sizes() const override { return session_.keys_sizes(); }

  Trace& kept() { return kept_; }
  std::vector<std::pair<SlotId, uint32_t>>& inputs() { return inputs_; }
  SlotId computed(const Storage* storage) const {
    for (const auto& [of, slot] : computed_)
      if (of == storage) return slot;
    return kNone;
  }

 private:
  Session& session_;
  const std::vector<Tensor>& stand_ins_;
  const ReplayValues* result_ = nullptr;
  bool ran_ = false;
  Trace kept_;
  std::vector<std::pair<SlotId, uint32_t>> inputs_;
  std::vector<std::pair<const Storage*, SlotId>> computed_;
};

void check_no_grad(const ReplayValues& result) {
  for (const Tensor& t : result.tensors)
    if (t.defined() && t.requires_grad())
      refuse(
          "returns a tensor that requires grad, and gradients need the nodes that only the body "
          "makes");
}

/// Refuses everything; for comparing, which runs nothing.
class Inspector final : public record::Sink {
 public:
  void run(Trace&) override { refuse("is too long to be one graph"); }
  void on_break(const record::Break& why, const Trace&) override {
    fail("replay audit: the function looks at a value (", why.reason,
         "), which it did not do when it was recorded.");
  }
};

/// What the body has recorded, over the stand-ins for its arguments.
Graph graph_of_body(const record::Recorder& recorder, const std::vector<Tensor>& stand_ins,
                    const ReplayValues& result) {
  return graph_of(recorder, stand_ins, result.tensors, {.borrows = true});
}

}  // namespace

ReplayValues::ReplayValues() : key(std::make_unique<ReplayKey>()) {}
ReplayValues::ReplayValues(ReplayValues&&) noexcept = default;
ReplayValues::~ReplayValues() = default;

void ReplayValues::add(const Tensor& t) {
  key::look(key->words, t, key->storages);
  if (t.defined()) {
    const Storage& storage = *t.impl().storage;
    key::wide(key->words, storage.bytes());
    // A number is part of what is recorded, however it comes.
    if (t.impl().wrapped_number)
      add(std::string_view(static_cast<const char*>(storage.host()), storage.bytes()));
  }
  tensors.push_back(t);
}

void ReplayValues::add(std::string_view plain) { key::bytes(key->words, plain); }

struct Replays::Kept {
  std::mutex mutex;
  std::vector<std::shared_ptr<const Entry>> entries;  ///< the last recorded one first
};
Replays::Replays(std::shared_ptr<Session> session)
    : session_(std::move(session)), kept_(std::make_unique<Kept>()) {}
Replays::~Replays() = default;

std::shared_ptr<const Replays::Entry> Replays::find(const ReplayValues& arguments,
                                                    const Body& body) const {
  std::shared_ptr<const Entry> found;
  {
    const Words key = key_of(arguments);
    const std::lock_guard lock(kept_->mutex);
    for (const auto& entry : kept_->entries)
      if (entry->key == key) found = entry;
  }
  if (found && audit_mode()) {
    Inspector inspector;
    const std::vector<Tensor> stand_ins = stand_ins_for(arguments.tensors);
    record::RecordScope scope(inspector);
    const ReplayValues result = body(stand_ins);
    const Graph now = graph_of_body(scope.recorder(), stand_ins, result);
    if (const Difference difference = now.difference(found->graph))
      fail("replay audit: ", difference.str(),
           ".\nThe function is not pure: with the same arguments it did something else when it was "
           "recorded. Compile it without replay.");
    check(result.key->words == found->result,
          "replay audit: the function returns other plain values, or tensors of another kind, than "
          "when it was recorded.\n"
          "It is not pure. Compile it without replay.");
  }
  return found;
}

std::vector<Tensor> Replays::record(const ReplayValues& arguments, const Body& body) {
  auto entry = std::make_shared<Entry>();
  entry->key = key_of(arguments);
  const std::vector<Tensor> stand_ins = stand_ins_for(arguments.tensors);
  Keeper keeper(*session_, stand_ins);
  record::RecordScope scope(keeper);
  const ReplayValues result = body(stand_ins);
  check_no_grad(result);
  entry->graph = graph_of_body(scope.recorder(), stand_ins, result);
  keeper.expect(result);
  scope.finish();
  entry->result = result.key->words;
  entry->form = result.form;
  entry->trace = std::move(keeper.kept());
  entry->arguments = std::move(keeper.inputs());
  using From = Entry::Output::From;
  std::vector<Tensor> results;
  for (const Tensor& t : result.tensors) {
    Entry::Output& out = entry->outputs.emplace_back();
    results.push_back(t);
    if (!t.defined()) continue;
    const TensorImpl& impl = t.impl();
    out.dtype = impl.dtype;
    out.sizes = impl.sizes;
    out.strides = impl.strides;
    out.offset = impl.offset;
    const uint32_t argument = first_over(impl.storage.get(), stand_ins);
    if (const SlotId slot = keeper.computed(impl.storage.get()); slot != kNone) {
      out.from = From::computed;
      out.index = slot;
    } else if (argument == kNoArgument) {
      out.from = From::outside;
      out.outside = t;
    } else {
      out.from = From::part_of_argument;
      out.index = argument;
      for (uint32_t i = 0; i < stand_ins.size(); ++i)
        if (stand_ins[i].defined() && &stand_ins[i].impl() == &impl)
          out.from = From::argument, out.index = i;
      results.back() = out.of(arguments.tensors[out.index]);
    }
  }
  const std::lock_guard lock(kept_->mutex);
  kept_->entries.insert(kept_->entries.begin(), entry);
  if (kept_->entries.size() > kMostEntries) kept_->entries.pop_back();
  return results;
}

std::vector<Tensor> Replays::run(const Entry& entry, const ReplayValues& arguments) const {
  Trace trace = entry.trace;
  for (const auto& [slot, argument] : entry.arguments) {
    const StoragePtr& storage = arguments.tensors[argument].impl().storage;
    storage->make_ready();  // computes what is pending, or says why it cannot be
    trace.held[slot] = storage;
    trace.slots[slot].storage = storage.get();
  }
  std::vector<StoragePtr> made(trace.slots.size());
  for (SlotId s = 0; s < trace.slots.size(); ++s) {
    Slot& slot = trace.slots[s];
    if (!slot.live) continue;
    trace.held[s] = made[s] = Storage::create_lazy(slot.bytes, slot.device);
    slot.storage = made[s].get();
  }
  if (!trace.empty()) session_->run(trace);
  std::vector<Tensor> results;
  using From = Entry::Output::From;
  for (const Entry::Output& out : entry.outputs) {
    switch (out.from) {
      case From::nothing: results.emplace_back(); break;
      case From::argument:
      case From::part_of_argument: results.push_back(out.of(arguments.tensors[out.index])); break;
      case From::outside: results.push_back(out.outside); break;
      case From::computed: results.push_back(out.over(made[out.index])); break;
    }
  }
  return results;
}

std::vector<Graph> Replays::graphs() const {
  const std::lock_guard lock(kept_->mutex);
  std::vector<Graph> graphs;
  for (const auto& entry : kept_->entries) graphs.push_back(entry->graph);
  return graphs;
}

void Replays::forget() {
  const std::lock_guard lock(kept_->mutex);
  kept_->entries.clear();
}

}  // namespace compiler
}  // namespace grapnel
