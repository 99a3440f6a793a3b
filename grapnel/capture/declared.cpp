#include "grapnel/capture/declared.h"

#include <atomic>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "grapnel/base/at_fork.h"
#include "grapnel/base/per_thread.h"
#include "grapnel/base/source_site.h"
#include "grapnel/capture/key.h"
#include "grapnel/ops/tape.h"

namespace grapnel::capture {

HookBody::HookBody(const record::Recorder& recorder, size_t first_call, size_t first_value,
                   size_t first_lifted, const record::DeclaredHook& hook,
                   const variable_list& arguments, const variable_list& results) {
  const Trace& trace = recorder.trace();
  std::unordered_map<ValueId, From> known;
  auto name = [&](const variable_list& tensors, From::What what) {
    for (uint32_t i = 0; i < tensors.size(); ++i)
      if (const ValueId id = tensors[i].defined() ? recorder.find(tensors[i]) : kNone; id != kNone)
        known.try_emplace(id, From{what, i, 0});
  };
  name(arguments, From::What::argument);
  name(hook.args.tensors(), From::What::lifted_tensor);
  for (size_t i = first_lifted; i < trace.lifted_numbers.size(); ++i) {
    const auto [id, place] = trace.lifted_numbers[i];
    known[id] = {From::What::lifted_number, place, 0};
  }
  auto origin = [&](ValueId id) -> From {
    if (id == kNone) return {};
    if (const auto found = known.find(id); found != known.end()) return found->second;
    const Value& v = trace.values[id];
    From from;
    if (v.number) {
      from = {From::What::number, static_cast<uint32_t>(numbers_.size()), 0};
      numbers_.push_back({v.dtype, trace.numbers[v.slot]});
    } else if (id >= first_value && !trace.slots[v.slot].outside && v.linear && v.next == kNone) {
      from = {From::What::memory, static_cast<uint32_t>(memories_.size()), 0};
      memories_.push_back({v.dtype, Shape(trace.sizes_of(v))});
    } else {
      for (const auto& [other, where] : known)
        if (!trace.values[other].number && trace.values[other].slot == v.slot) {
          why_not_ = "it looks at memory in a way that no recorded op leads to";
          return {};
        }
      fail("the ", hook.description(), " declares what it depends on, but uses a tensor of type ",
           v.dtype, Shape(trace.sizes_of(v)),
           " that it neither got as an argument nor lifted.\nPass it to args.lift(tensor) in "
           "compiled_args.");
    }
    return known[id] = from;
  };
  for (size_t k = first_call; k < trace.calls.size() && why_not_.empty(); ++k) {
    const Instruction& c = trace.calls[k];
    if (c.op->random) why_not_ = str("it draws random numbers (", c.op->name, ")");
    if (c.op->effect) why_not_ = str("it calls a function that is not recorded (", c.op->name, ")");
    Call call{c.op, c.site, c.inplace, {}, key::all_attrs(*c.op, trace.attrs_of(c)), {}};
    const auto blocks = static_cast<ptrdiff_t>((c.op->attrs_size + sizeof(std::max_align_t) - 1) /
                                               sizeof(std::max_align_t));
    call.attrs.assign(trace.attrs.begin() + c.attrs, trace.attrs.begin() + c.attrs + blocks);
    for (const ValueId id : trace.inputs_of(c)) call.inputs.push_back(origin(id));
    const auto outputs = trace.outputs_of(c);
    if (!c.inplace)
      for (uint32_t i = 0; i < outputs.size(); ++i)
        if (outputs[i] != kNone)
          known[outputs[i]] = {From::What::result, static_cast<uint32_t>(calls_.size()), i};
    calls_.push_back(std::move(call));
  }
  for (const Tensor& t : results) {
    From from;
    for (uint32_t i = 0; t.defined() && i < arguments.size(); ++i)
      if (t.is_same(arguments[i])) from = {From::What::argument, i, 0};
    for (uint32_t i = 0; t.defined() && from == From{} && i < hook.args.tensors().size(); ++i)
      if (t.is_same(hook.args.tensors()[i])) from = {From::What::lifted_tensor, i, 0};
    if (t.defined() && from == From{}) {
      const ValueId id = recorder.find(t);
      const auto found = id == kNone ? known.end() : known.find(id);
      if (found == known.end()) why_not_ = "its result is not what a recorded op returned";
      else from = found->second;
    }
    results_.push_back(from);
  }
}

variable_list HookBody::record(const record::DeclaredHook& hook,
                               const variable_list& arguments) const {
  SmallVector<Outputs, 4> made;
  std::vector<Tensor> memories(memories_.size());
  auto tensor = [&](const From& from) -> Tensor {
    switch (from.what) {
      case From::What::nothing: break;
      case From::What::argument: return arguments[from.index];
      case From::What::lifted_tensor: return hook.args.tensors()[from.index];
      case From::What::lifted_number:
        return LiftedNumber::wrap(hook.args.number(from.index), from.index);
      case From::What::memory: {
        // Made when it is first used, as the hook did, so that storages are numbered alike.
        Tensor& memory = memories[from.index];
        if (!memory.defined())
          memory = evaluator().empty({memories_[from.index].sizes, memories_[from.index].dtype});
        return memory;
      }
      case From::What::result: return made[from.index][from.output];
      case From::What::number:
        return wrap_number(scalar_of(numbers_[from.index].dtype, numbers_[from.index].bits));
    }
    return Tensor();
  };
  for (const Call& call : calls_) {
    const base::CallSiteScope as_recorded(call.site);
    SmallVector<Tensor, 4> inputs;
    for (const From& from : call.inputs) inputs.push_back(tensor(from));
    SmallVector<const Tensor*, 4> pointers;
    for (const Tensor& t : inputs) pointers.push_back(&t);
    const Inputs in(pointers.data(), pointers.size());
    const void* attrs = call.attrs.empty() ? nullptr : call.attrs.data();
    if (call.inplace) {
      apply_inplace(*call.op, in, attrs);
      made.emplace_back();
    } else {
      made.push_back(apply_all(*call.op, in, attrs));
    }
  }
  variable_list results;
  results.reserve(results_.size());
  for (const From& from : results_) results.push_back(tensor(from));
  return results;
}

std::string HookBody::difference(const HookBody& other) const {
  if (!why_not_.empty() || !other.why_not_.empty())
    return why_not_ == other.why_not_ ? "" : other.why_not_.empty() ? why_not_ : other.why_not_;
  const size_t common = std::min(calls_.size(), other.calls_.size());
  for (size_t i = 0; i < common; ++i) {
    const Call &a = calls_[i], &b = other.calls_[i];
    if (a.op != b.op || a.inplace != b.inplace)
      return str("call ", i, " is ", b.op->name, ", was ", a.op->name);
    if (!(a == b)) return str("call ", i, ", ", a.op->name, ", has other operands or attributes");
  }
  if (calls_.size() != other.calls_.size())
    return str("it makes ", other.calls_.size(), " calls, made ", calls_.size());
  for (size_t i = 0; i < numbers_.size(); ++i)
    if (!(numbers_[i] == other.numbers_[i])) {
      auto text = [](const Number& n) {
        return is_floating(n.dtype) ? str(std::bit_cast<double>(n.bits))
                                    : str(static_cast<int64_t>(n.bits));
      };
      return str("a number in it is ", text(other.numbers_[i]), ", was ", text(numbers_[i]));
    }
  if (!(memories_ == other.memories_)) return "memory that it fills has another size";
  if (!(results_ == other.results_)) return "it returns something else";
  return "";
}

namespace {

/// Bodies of the whole program by key, and how often each was used.
struct Entry {
  explicit Entry(HookBody b) : body(std::move(b)) {}
  const HookBody body;
  std::atomic<int64_t> uses{0};
};
constexpr size_t kMostBodies = 4096;

struct HashOfWords {
  size_t operator()(const Words& words) const { return key::hash(words); }
};
struct Bodies {
  base::ProcessMutex mutex{base::ForkOrder::hook_bodies};
  std::unordered_map<Words, std::shared_ptr<Entry>, HashOfWords> by_key;
};
Bodies& bodies() {
  static Bodies* const instance = new Bodies;  // hooks may run until the very end
  return *instance;
}

/// Everything but values that the hook's work can depend on. A declared hook is looked up in every
/// pass, so the words are written without asking for memory; they end with the next call on this
/// thread.
const Words& key_of(const record::DeclaredHook& hook, const variable_list& arguments) {
  static constinit thread_local base::PerThread<Words> own_words;
  Words& words = own_words.get();
  words.clear();
  auto wide = [&words](uint64_t value) {
    uint32_t* const at = words.extend(2);
    at[0] = static_cast<uint32_t>(value);
    at[1] = static_cast<uint32_t>(value >> 32);
  };
  // Types are told apart by the address of their name, as their operator== does: two types of
  // different files, each in an unnamed namespace, may have equal names.
  wide(std::bit_cast<uint64_t>(hook.type.name()));
  const std::string& declared = hook.args.key();
  uint32_t* const head = words.extend(3 + (declared.size() + 3) / 4);
  words[words.size() - 1] = 0;  // of which the text may fill a part only
  head[0] = static_cast<uint32_t>(hook.kind) | static_cast<uint32_t>(get_default_dtype()) << 8;
  head[1] = static_cast<uint32_t>(hook.args.number_count());
  head[2] = static_cast<uint32_t>(declared.size());
  std::memcpy(head + 3, declared.data(), declared.size());
  SmallVector<const Storage*, 4> storages;
  auto looks = [&](const variable_list& tensors) {
    words.push_back(static_cast<uint32_t>(tensors.size()));
    for (const Tensor& t : tensors) {
      if (!t.defined()) {
        words.push_back(0);
        continue;
      }
      const TensorImpl& impl = t.impl();
      const auto at = std::find(storages.begin(), storages.end(), impl.storage.get());
      const auto place = static_cast<uint32_t>(at - storages.begin());
      if (at == storages.end()) storages.push_back(impl.storage.get());
      uint32_t* const look = words.extend(2);
      look[0] = 1 | static_cast<uint32_t>(impl.dtype) << 8 |
                static_cast<uint32_t>(impl.wrapped_number) << 16 |
                static_cast<uint32_t>(impl.requires_grad) << 17 |
                static_cast<uint32_t>(impl.sizes.size()) << 24;
      look[1] = place;
      for (const int64_t s : impl.sizes) wide(static_cast<uint64_t>(s));
      for (const int64_t s : impl.strides) wide(static_cast<uint64_t>(s));
      wide(static_cast<uint64_t>(impl.offset));
    }
  };
  looks(arguments);
  looks(hook.args.tensors());
  return words;
}

bool is_due_for_audit(int64_t use) {
  const int64_t every = hook_audit();
  return every > 0 && use % every == 0;
}

}  // namespace

void forget_hook_bodies() {
  const std::lock_guard lock(bodies().mutex);
  bodies().by_key.clear();
}

}  // namespace grapnel::capture

namespace grapnel::record {

using namespace capture;

variable_list call_declared(const DeclaredHook& hook, const variable_list& arguments,
                            const std::function<variable_list()>& body) {
  auto call = [&] {
    before_user_code();
    const DeclaredScope scope(&hook.args);
    return body();
  };
  // What builds a graph may switch that on and off inside, which the recorded calls do not show.
  if (GradMode::is_enabled()) return call();
  std::shared_ptr<Entry> entry;
  {
    const Words& words = key_of(hook, arguments);
    const std::lock_guard lock(bodies().mutex);
    if (const auto found = bodies().by_key.find(words); found != bodies().by_key.end())
      entry = found->second;
  }
  if (entry && !entry->body.why_not().empty()) return call();
  const bool audit = entry && is_due_for_audit(++entry->uses);
  if (entry && !audit) {
    open_recorder()->count_skipped_hook();
    return entry->body.record(hook, arguments);
  }
  before_user_code();
  Words key = key_of(hook, arguments);  // before the hook runs, which may call other hooks
  const Recorder& recorder = *open_recorder();
  const uint64_t flushes = recorder.flushes();
  const size_t first_call = recorder.trace().calls.size(),
               first_value = recorder.trace().values.size(),
               first_lifted = recorder.trace().lifted_numbers.size();
  variable_list results = call();
  // A trace that was closed meanwhile, because a value was read or because it was long, does not
  // show what the hook did.
  if (recorder.flushes() != flushes) {
    check(!audit, "audit: the ", hook.description(),
          " declares what it depends on, and read a value that it did not read before.");
    return results;
  }
  HookBody seen(recorder, first_call, first_value, first_lifted, hook, arguments, results);
  if (audit) {
    const std::string difference = entry->body.difference(seen);
    if (!difference.empty())
      fail("audit: the ", hook.description(),
           " declares what it depends on, but does not record what it recorded the first time: ",
           difference,
           ".\nDeclare what decided about it as a constant: args.declare(name, constants...), or "
           "lift it.");
    return results;
  }
  const std::lock_guard lock(bodies().mutex);
  if (bodies().by_key.size() >= kMostBodies) bodies().by_key.clear();
  bodies().by_key.emplace(std::move(key), std::make_shared<Entry>(std::move(seen)));
  return results;
}

}  // namespace grapnel::record
