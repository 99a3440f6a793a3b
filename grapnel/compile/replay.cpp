#include "grapnel/compile/replay.h"

#include <atomic>
#include <bit>
#include <cstdlib>
#include <cstring>

#include "grapnel/base/source_site.h"
#include "grapnel/capture/key.h"
#include "grapnel/capture/recorder.h"
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

namespace compile_detail {

using namespace capture;

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
  std::vector<uint64_t> key,
      result;   ///< words of the arguments, with the modes of the thread; words of the result
  Trace trace;  ///< holds storages from outside, except those of arguments
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

std::vector<uint64_t> key_of(const ReplayValues& arguments) {
  std::vector<uint64_t> key = arguments.words;
  key.push_back(static_cast<uint64_t>(GradMode::is_enabled()) |
                static_cast<uint64_t>(InferenceMode::is_enabled()) << 1 |
                static_cast<uint64_t>(Autocast::dtype()) << 8 |
                static_cast<uint64_t>(get_default_dtype()) << 16);
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
      storage = Storage::borrow(impl.storage->data(), impl.storage->bytes(),
                                [keep = impl.storage](void*) {});
    made = Tensor(
        TensorImpl::create(std::move(storage), impl.dtype, impl.sizes, impl.strides, impl.offset));
    made.impl().wrapped_number = impl.wrapped_number;
    made.impl().inference = impl.inference;
    if (t.requires_grad()) made.set_requires_grad(true);
  }
  return out;
}

[[noreturn]] void refuse(const std::string& what) {
  fail("replay: the function ", what,
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
      const uint32_t argument =
          slot.outside ? first_over(slot.storage, stand_ins_) : kNoArgument;
      if (argument != kNoArgument) inputs_.emplace_back(s, argument);
      if (slot.live || argument != kNoArgument) kept_.held[s].reset();
      slot.storage = kept_.held[s].get();
    }
    session_.run(trace);
  }
  void on_break(const record::Break& why, const Trace&) override {
    refuse(str("looks at a value (", why.reason, why.site ? " at " : "",
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

[[noreturn]] void differs(const Trace& now, size_t call, const std::string& what) {
  const bool known = call < now.calls.size();
  fail("replay audit: ", what,
       known ? str(", in call ", call, ", ", now.calls[call].op->name, " at ",
                   base::describe({now.calls[call].site}))
             : "",
       ".\nThe function is not pure: with the same arguments it did something else when it was "
       "recorded. Compile it without replay.");
}

using Places = std::vector<std::pair<SlotId, uint32_t>>;
uint32_t argument_at(const Places& arguments, SlotId slot) {
  for (const auto& [place, argument] : arguments)
    if (place == slot) return argument;
  return kNoArgument;
}

void compare(const Trace& now, const Trace& then, const Places& arguments,
             const std::vector<Tensor>& stand_ins) {
  for (size_t i = 0; i < std::min(now.calls.size(), then.calls.size()); ++i) {
    const Instruction &a = now.calls[i], &b = then.calls[i];
    if (a.op != b.op) differs(now, i, str("the op was ", b.op->name, " before"));
    const auto in = now.inputs_of(a), before = then.inputs_of(b);
    if (in.size() != before.size()) differs(now, i, "the number of operands has changed");
    for (size_t k = 0; k < in.size(); ++k) {
      if (in[k] != before[k]) differs(now, i, str("operand ", k, " is another value"));
      if (in[k] == kNone) continue;
      const Value &x = now.values[in[k]], &y = then.values[before[k]];
      if (x.number != y.number || x.dtype != y.dtype)
        differs(now, i, str("operand ", k, " is of another type"));
      if (x.number && now.numbers[x.slot] != then.numbers[y.slot])
        differs(now, i, str("the number that is operand ", k, " has changed"));
      if (x.number) continue;
      if (now.sizes_of(x) != then.sizes_of(y) || now.strides_of(x) != then.strides_of(y))
        differs(now, i, str("operand ", k, " has another shape or layout"));
      const Slot &s = now.slots[x.slot], &t = then.slots[y.slot];
      if (!s.outside) continue;
      const uint32_t argument = first_over(s.storage, stand_ins);
      if (argument != argument_at(arguments, y.slot) ||
          (argument == kNoArgument && s.storage != t.storage))
        differs(now, i, str("operand ", k, " is another tensor from outside"));
    }
    if (key::all_attrs(*a.op, now.attrs_of(a)) != key::all_attrs(*b.op, then.attrs_of(b)))
      differs(now, i, "its attributes have changed");
  }
  if (now.calls.size() != then.calls.size())
    differs(now, std::min(now.calls.size(), then.calls.size()),
            str("there are ", now.calls.size(), " calls, and were ", then.calls.size()));
}

}  // namespace

void ReplayValues::add(const Tensor& t) {
  words.push_back(t.defined());
  if (t.defined()) {
    const TensorImpl& impl = t.impl();
    words.push_back(static_cast<uint64_t>(impl.dtype) |
                    static_cast<uint64_t>(impl.wrapped_number) << 8 |
                    static_cast<uint64_t>(t.requires_grad()) << 9 |
                    static_cast<uint64_t>(impl.inference) << 10 |
                    static_cast<uint64_t>(impl.sizes.size()) << 16);
    for (const int64_t x : impl.sizes) words.push_back(static_cast<uint64_t>(x));
    for (const int64_t x : impl.strides) words.push_back(static_cast<uint64_t>(x));
    words.push_back(static_cast<uint64_t>(impl.offset));
    words.push_back(impl.storage->bytes());
    // Which of them share memory.
    words.push_back(std::min<uint64_t>(first_over(impl.storage.get(), tensors), tensors.size()));
    // A number is part of what is recorded, however it comes.
    if (impl.wrapped_number) {
      const auto* bytes = static_cast<const char*>(impl.storage->data());
      add(std::string_view(bytes, impl.storage->bytes()));
    }
  }
  tensors.push_back(t);
}

void ReplayValues::add(std::string_view plain) {
  words.push_back(plain.size());
  for (size_t i = 0; i < plain.size(); i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, plain.data() + i, std::min<size_t>(8, plain.size() - i));
    words.push_back(word);
  }
}

std::shared_ptr<const Replays::Entry> Replays::find(const ReplayValues& arguments,
                                                    const Body& body) const {
  std::shared_ptr<const Entry> found;
  {
    const std::vector<uint64_t> key = key_of(arguments);
    const std::lock_guard lock(mutex_);
    for (const auto& entry : entries_)
      if (entry->key == key) found = entry;
  }
  if (found && audit_mode()) {
    Inspector inspector;
    const std::vector<Tensor> stand_ins = stand_ins_for(arguments.tensors);
    record::RecordScope scope(inspector);
    const ReplayValues result = body(stand_ins);
    compare(scope.recorder().trace(), found->trace, found->arguments, stand_ins);
    check(result.words == found->result,
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
  keeper.expect(result);
  scope.finish();
  entry->result = result.words;
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
  const std::lock_guard lock(mutex_);
  entries_.insert(entries_.begin(), entry);
  if (entries_.size() > kMostEntries) entries_.pop_back();
  return results;
}

std::vector<Tensor> Replays::run(const Entry& entry, const ReplayValues& arguments) const {
  Trace trace = entry.trace;
  for (const auto& [slot, argument] : entry.arguments) {
    const StoragePtr& storage = arguments.tensors[argument].impl().storage;
    storage->data();  // computes what is pending, or says why it cannot be
    trace.held[slot] = storage;
    trace.slots[slot].storage = storage.get();
  }
  std::vector<StoragePtr> made(trace.slots.size());
  for (SlotId s = 0; s < trace.slots.size(); ++s) {
    Slot& slot = trace.slots[s];
    if (!slot.live) continue;
    trace.held[s] = made[s] = Storage::create_lazy(slot.bytes);
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

void Replays::forget() {
  const std::lock_guard lock(mutex_);
  entries_.clear();
}

}  // namespace compile_detail
}  // namespace grapnel
