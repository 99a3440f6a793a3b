#include "grapnel/capture/recorder.h"

#include <bit>
#include <cstring>
#include <utility>

#include "grapnel/base/place.h"
#include "grapnel/base/source_site.h"
#include "grapnel/capture/key.h"
#include "grapnel/ops/defs/copy.h"
#include "grapnel/ops/op_table.h"

namespace grapnel {

void before_raw_access(const Storage& storage) {
  if (record::Recorder* const open = record::open_recorder(); open && open->holds(storage))
    open->flush_for("data_ptr");
}

namespace record {

using namespace capture;

void flush(const char* what) {
  if (active()) open_recorder()->flush_for(what);
}
void add_undo(std::function<void()> undo) { open_recorder()->on_undo(std::move(undo)); }
void add_undo_of(const Tensor& value, std::function<void(Tensor)> restore) {
  open_recorder()->on_undo_of(value, std::move(restore));
}
void on_give_up(std::function<void()> undo) { open_recorder()->on_give_up(std::move(undo)); }
void keep(std::shared_ptr<const void> what) { open_recorder()->keep(std::move(what), false); }
void keep_opaque(std::shared_ptr<const void> what) { open_recorder()->keep(std::move(what), true); }
void before_user_code() {
  if (active()) open_recorder()->before_user_code();
}
uint32_t holds(const Storage& storage) { return active() ? open_recorder()->holds(storage) : 0; }

namespace {

/// Longer traces are run in pieces: more calls than this, or more operands and results. The second
/// keeps every place in a trace well below 32 bits, however many operands a call has.
constexpr size_t kLongestTrace = 20000;
constexpr size_t kMostIds = 1 << 24;

bool is_full(const Trace& trace) {
  return trace.calls.size() >= kLongestTrace || trace.ids.size() >= kMostIds;
}

[[gnu::cold]] void refuse_operands(const Op& op, size_t count) {
  fail(op.name, ": ", count, " operands and results are more than a recording holds for one call (",
       kMostIds, ").\nCall it outside of compiled functions and traces, or in several steps.");
}

/// A copy of memory that may change before the trace runs.
StoragePtr snapshot(const Storage& storage) {
  const auto bytes = static_cast<int64_t>(storage.bytes());
  const auto all = [&](StoragePtr memory) {
    return Tensor(TensorImpl::create(std::move(memory), kByte, {bytes}, {1}));
  };
  StoragePtr copy = Storage::create(storage.bytes(), storage.device());
  evaluator_of(storage.device()).copy(all(copy), all(StoragePtr(const_cast<Storage*>(&storage))));
  return copy;
}

}  // namespace

// --- slots and values ---

SlotId Recorder::lift(const StoragePtr& storage) {
  const auto id = static_cast<SlotId>(trace_.slots.size());
  new (trace_.slots.extend(1)) Slot{.storage = storage.get(),
                                    .bytes = storage->bytes(),
                                    .device = storage->device(),
                                    .outside = true};
  trace_.held.resize(id + 1);
  trace_.held[id] = storage;
  if (storage->may_change_unseen()) {
    blobs_.push_back(storage);
    trace_.held[id] = snapshot(*storage);
  }
  outside_.add(id, trace_.slots);
  return id;
}

inline SlotId Recorder::slot_of(const TensorImpl& impl) {
  const StoragePtr& storage = impl.storage;
  if (storage->pending() == this) {
    const SlotId slot = storage->pending_slot();
    return slot != kNone ? slot : number_fresh(*storage);
  }
  if (storage->pending()) [[unlikely]] {
    // Of a recording further out on this thread, or of one that failed: the owner computes it or
    // says why not.
    storage->pending()->materialize(*storage);
  }
  const SlotId known = outside_.find(storage.get(), trace_.slots);
  return known != kNone ? known : lift(storage);
}

[[gnu::always_inline]] inline ValueId Recorder::add_value(const TensorImpl& impl, SlotId slot,
                                                          bool linear) {
  const int rank = impl.sizes.size();
  const auto at = static_cast<uint32_t>(trace_.dims.size()),
             id = static_cast<ValueId>(trace_.values.size());
  int64_t* const dims = trace_.dims.extend(2 * static_cast<size_t>(rank) + 1);
  for (int i = 0; i < rank; ++i) {
    dims[i] = impl.sizes[i];
    dims[rank + i] = impl.strides[i];
  }
  dims[2 * rank] = impl.offset;
  const Value& v =
      *new (trace_.values.extend(1)) Value{.slot = slot,
                                           .next = std::exchange(trace_.slots[slot].first, id),
                                           .dims = at,
                                           .dtype = impl.dtype,
                                           .rank = static_cast<uint8_t>(rank),
                                           .wrapped = impl.wrapped_number,
                                           .linear = linear};
  key::value(trace_, v, keys_sizes_);
  return id;
}

ValueId Recorder::new_value(const TensorImpl& impl, SlotId slot) {
  return add_value(
      impl, slot,
      impl.offset == 0 &&
          static_cast<size_t>(impl.numel) * element_size(impl.dtype) == impl.storage->bytes() &&
          impl.is_contiguous());
}

ValueId Recorder::number(const TensorImpl& impl, const LiftedNumber* lifted) {
  const auto id = static_cast<ValueId>(trace_.values.size());
  uint64_t bits = 0;
  if (lifted) {
    bits = std::bit_cast<uint64_t>(lifted->value());
    trace_.lifted_numbers.emplace_back(id, static_cast<uint32_t>(lifted->place()));
  } else if (element_size(impl.dtype) == sizeof(bits)) {
    std::memcpy(&bits, impl.host(), sizeof(bits));
  } else {
    std::memcpy(&bits, impl.host(), element_size(impl.dtype));
  }
  const Value& v =
      *new (trace_.values.extend(1)) Value{.slot = static_cast<uint32_t>(trace_.numbers.size()),
                                           .dims = static_cast<uint32_t>(trace_.dims.size()),
                                           .dtype = impl.dtype,
                                           .number = true,
                                           .wrapped = true};
  trace_.dims.push_back(0);
  trace_.numbers.push_back(bits);
  key::number(trace_, v);
  return id;
}

namespace {
/// Whether a value has the geometry of a tensor over the same slot.
bool same_geometry(const int64_t* dims, int rank, const TensorImpl& impl) {
  if (rank != impl.sizes.size() || dims[2 * rank] != impl.offset) return false;
  for (int i = 0; i < rank; ++i)
    if (dims[i] != impl.sizes[i] || dims[rank + i] != impl.strides[i]) return false;
  return true;
}
}  // namespace

inline ValueId Recorder::find_in(SlotId slot, const TensorImpl& impl) const {
  for (ValueId id = trace_.slots[slot].first; id != kNone; id = trace_.values[id].next) {
    const Value& v = trace_.values[id];
    if (v.dtype == impl.dtype && v.wrapped == impl.wrapped_number &&
        same_geometry(trace_.dims.data() + v.dims, v.rank, impl))
      return id;
  }
  return kNone;
}

SlotId Recorder::find_slot(const Tensor& t) const {
  const Storage* storage = t.impl().storage.get();
  return storage->pending() == this ? storage->pending_slot()
                                    : outside_.find(storage, trace_.slots);
}

ValueId Recorder::find(const Tensor& t) const {
  const SlotId slot = find_slot(t);
  return slot == kNone ? kNone : find_in(slot, t.impl());
}

// Twice for most ops that are recorded, so it is worth a copy in every caller.
[[gnu::always_inline]] inline ValueId Recorder::operand(const Tensor& t) {
  if (!t.defined()) return kNone;
  const TensorImpl& impl = t.impl();
  if (impl.wrapped_number && impl.numel == 1) {
    if (!impl.storage->pending()) return number(impl, nullptr);
    if (const LiftedNumber* lifted = LiftedNumber::of(t)) return number(impl, lifted);
  }
  const SlotId slot = slot_of(impl);
  if (const ValueId known = find_in(slot, impl); known != kNone) return known;
  return new_value(impl, slot);
}

ValueId Recorder::value_of(const Tensor& t) { return operand(t); }

Tensor Recorder::empty(const TensorSpec& spec) {
  Tensor t(TensorImpl::lazy(spec.sizes, spec.dtype, spec.device));
  Storage& storage = *t.impl().storage;
  fresh_.push_back(&storage);
  storage.set_pending(this, kNone);
  return t;
}

SlotId Recorder::number_fresh(Storage& storage) {
  const auto id = static_cast<SlotId>(trace_.slots.size());
  new (trace_.slots.extend(1))
      Slot{.storage = &storage, .bytes = storage.bytes(), .device = storage.device()};
  forget_fresh(storage);
  storage.set_pending(this, id);
  return id;
}

inline void Recorder::forget_fresh(const Storage& storage) {
  // Nearly always the latest.
  for (size_t i = fresh_.size(); i-- > 0;)
    if (fresh_[i] == &storage) {
      fresh_[i] = fresh_.back();
      return fresh_.pop_back();
    }
}

// --- calls ---

void Recorder::mark_written(const Tensor& t, SlotId slot) {
  Slot& s = trace_.slots[slot];
  if (!s.outside || s.written) return;
  s.written = true;
  trace_.held[slot] =
      t.impl().storage;  // not a copy of borrowed memory: the write is for its owner
  Storage& storage = *t.impl().storage;
  versions_.emplace_back(t.impl().storage, storage.version());
  // The slot holds the storage, so hiding its data takes nothing away that the trace could not give
  // back.
  storage.set_pending(this, slot);
}

void Recorder::name_hook(Instruction& call) {
  trace_.walked |= walking();
  std::string name = running_hook();
  if (name.empty()) return;
  if (trace_.hooks.empty() || trace_.hooks.back() != name) trace_.hooks.push_back(std::move(name));
  call.hook = static_cast<uint32_t>(trace_.hooks.size() - 1);
}

uint32_t Recorder::place_of(base::Place& place) {
  if (place.trace != serial_) {
    place.trace = serial_;
    place.number = static_cast<uint32_t>(trace_.places.size());
    trace_.places.push_back(place.remember());
  }
  return place.number;
}

[[gnu::always_inline]] inline void Recorder::add_call(const Op& op, size_t inputs, size_t outputs,
                                                      const void* attrs, bool inplace) {
  if (inputs + outputs > kMostIds) [[unlikely]]
    refuse_operands(op, inputs + outputs);
  const uint32_t kept_attrs = trace_.add_attrs(op, attrs);
  Instruction& call = *new (trace_.calls.extend(1)) Instruction{
      .op = &op,
      .site = base::users_call_site(),
      .called = this_context.called_op,
      .operands = static_cast<uint32_t>(trace_.ids.size() - inputs - outputs),
      .attrs = kept_attrs,
      .inputs = static_cast<uint32_t>(inputs),
      .outputs = static_cast<uint32_t>(outputs),
      .inplace = inplace};
  if (base::Place* const place = base::Place::innermost()) call.place = place_of(*place);
  if (names_hooks_) [[unlikely]]
    name_hook(call);
  key::call(trace_, call);
  call.key_end = static_cast<uint32_t>(trace_.key.size());
}

void Recorder::run(const Op& op, Inputs inputs, const void* attrs, std::span<Tensor> out) {
  const bool inplace = !out.empty() && !inputs.empty() && out[0].is_same(*inputs[0]);
  if (is_full(trace_)) [[unlikely]]
    flush();
  // Lifting a value does not append ids, so the place stays.
  ValueId* id = trace_.ids.extend(inputs.size() + out.size());
  const ValueId* const first = id;
  for (const Tensor* t : inputs) *id++ = operand(*t);
  for (const Tensor& t : out) {
    if (!t.defined()) *id = kNone;
    else if (inplace) mark_written(t, trace_.values[*id = *first].slot);
    else if (op.views) *id = view_of(t, *first);
    else *id = result(op, t);
    ++id;
  }
  add_call(op, inputs.size(), out.size(), attrs, inplace);
}

ValueId Recorder::view_of(const Tensor& view, ValueId base) {
  const ValueId id = value_of(view);
  // A view that changes nothing at these sizes may at others, and the key is the same for all of
  // them.
  return id == base ? new_value(view.impl(), trace_.values[id].slot) : id;
}

inline ValueId Recorder::result(const Op& op, const Tensor& t) {
  const TensorImpl& impl = t.impl();
  Storage& storage = *impl.storage;
  if (storage.pending() != this || storage.pending_slot() != kNone) [[unlikely]]
    return value_of(t);
  // What a function of the program returns may lie in memory column by column.
  const SlotId slot = number_fresh(storage);
  return op.opaque ? new_value(impl, slot) : add_value(impl, slot, /*linear=*/true);
}

void Recorder::copy(const Tensor& target, const Tensor& source) {
  const Tensor* const inputs[] = {&target, &source};
  Tensor out = target;
  run(source.impl().wrapped_number ? op_of<Fill> : op_of<Copy>, inputs, nullptr, {&out, 1});
}

void Recorder::read(const Tensor& t, void* host) { evaluator_of(t.device()).read(t, host); }

// --- storages that tell of themselves ---

void Recorder::released(Storage& storage) noexcept {
  if (storage.pending_slot() == kNone) return forget_fresh(storage);
  trace_.slots[storage.pending_slot()].storage = nullptr;
}

void Recorder::materialize(Storage& storage) {
  check(this_context.recorder == this,
        "this tensor is pending: it is being recorded on another thread, or by a compiled function "
        "that waits for a trace() inside it.\n"
        "Read it after the compiled function has returned.");
  if (storage.pending_slot() == kNone) {
    // Memory that no call has seen: it is the caller's to fill, and nothing has to run for that.
    forget_fresh(storage);
    storage.clear_pending();
    return;
  }
  const char* reader = Reading::reader();
  flush_for(reader ? reader : "access to its memory");
}

}  // namespace record
}  // namespace grapnel
