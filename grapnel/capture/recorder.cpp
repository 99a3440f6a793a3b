#include "grapnel/capture/recorder.h"

#include <atomic>
#include <bit>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <utility>

#include "grapnel/base/context.h"
#include "grapnel/base/per_thread.h"
#include "grapnel/base/source_site.h"
#include "grapnel/capture/key.h"
#include "grapnel/ops/defs/copy.h"
#include "grapnel/ops/on_failure.h"
#include "grapnel/ops/op_table.h"

namespace grapnel {

void capture::Trace::clear() {
  slots.clear();
  held.clear();
  values.clear();
  calls.clear();
  ids.clear();
  dims.clear();
  numbers.clear();
  attrs.clear();
  kept.clear();
  lifted_numbers.clear();
  holds.clear();
  hooks.clear();
  places.clear();
  walked = false;
  skipped_hooks = 0;
  key.clear();
}

void before_raw_access(const Storage& storage) {
  if (record::Recorder* const open = record::open_recorder(); open && open->holds(storage))
    open->flush_for("data_ptr");
}

namespace record {

using namespace capture;

constinit thread_local Evaluator* current [[gnu::tls_model("initial-exec")]] = nullptr;
constinit thread_local int walks [[gnu::tls_model("initial-exec")]] = 0;

void flush(const char* what) {
  if (active()) open_recorder()->flush_for(what);
}
void add_undo(std::function<void()> undo) { open_recorder()->on_undo(std::move(undo)); }
void on_undo_of(const Tensor& value, std::function<void(Tensor)> restore) {
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

/// Traces that were run leave their memory to the next one, so that recording allocates nothing in
/// the steady state.
struct Spare {
  Trace trace;
  bool waits = false;
};
constinit thread_local base::PerThread<Spare> thread_spare;
constexpr size_t kLargestSpare = 1 << 16;  // calls

void give_back(Trace&& trace) noexcept {
  if (trace.calls.capacity() > kLargestSpare) return;
  try {
    Spare& spare = thread_spare.get();
    if (spare.waits) return;
    trace.clear();
    spare.trace = std::move(trace);
    spare.waits = true;
  } catch (const std::bad_alloc&) {
    // Then the next trace asks for its own.
  }
}
Trace take_spare() {
  Spare* const spare = thread_spare.get_if();
  return spare && std::exchange(spare->waits, false) ? std::move(spare->trace) : Trace();
}

/// A copy of memory that may change before the trace runs.
StoragePtr snapshot(const Storage& storage) {
  StoragePtr copy = Storage::create(storage.bytes());
  if (storage.bytes() > 0) std::memcpy(copy->data(), storage.data(), storage.bytes());
  return copy;
}

using Why = std::shared_ptr<const std::string>;
/// None when there is no memory for it.
Why make_why(std::string_view why) noexcept {
  try {
    return std::make_shared<const std::string>(why);
  } catch (...) {
    return nullptr;
  }
}
Why why_of(const std::exception& e) noexcept {
  try {
    return make_why(base::with_places_inside(e.what()));
  } catch (...) {
    return nullptr;
  }
}

/// Owns storages whose values will never come.
class Lost final : public PendingOwner {
 public:
  static void mark(Storage& storage, const Why& why) noexcept {
    // For when there is no memory left to say why.
    static Lost* const common = new Lost;
    auto* lost = why ? new (std::nothrow) Lost : nullptr;
    if (lost) lost->why_ = why;
    storage.set_pending(lost ? lost : common, 0);
  }
  void materialize(Storage&) override {
    fail("this tensor was never computed: ",
         why_ ? std::string_view(*why_) : "what was recorded failed when memory had run out.");
  }
  void released(Storage&) noexcept override {
    if (why_) delete this;
  }

 private:
  Why why_;
};

}  // namespace

bool is_lost(const Tensor& t) {
  return dynamic_cast<const Lost*>(t.impl().storage->pending()) != nullptr;
}

Recorder::Recorder(Sink& sink)
    : sink_(sink),
      keys_sizes_(sink.keys_sizes()),
      names_hooks_(sink.names_hooks()),
      trace_(take_spare()) {
  forget();
}
Recorder::~Recorder() {
  give_up("the function that was recording it ended with an exception.");
  give_back(std::move(trace_));
}

RecordScope::~RecordScope() {
  if (recorder_.has_run() && std::uncaught_exceptions() > 0) {
    // Eager mode would have run it before it came to the exception.
    try {
      recorder_.flush();
    } catch (...) {
      // Eager mode would have ended there; what is left is that.
    }
  }
  recorder_.give_up(std::uncaught_exceptions() > 0
                        ? "the function that was recording it threw an exception."
                        : "the recording it belongs to was not run.");
  current = outer_;
}

// --- slots and values ---

SlotId Recorder::lift(const StoragePtr& storage) {
  const auto id = static_cast<SlotId>(trace_.slots.size());
  new (trace_.slots.extend(1))
      Slot{.storage = storage.get(), .bytes = storage->bytes(), .outside = true};
  trace_.held.resize(id + 1);
  trace_.held[id] = storage;
  if (storage->borrowed()) {
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
    std::memcpy(&bits, impl.data(), sizeof(bits));
  } else {
    std::memcpy(&bits, impl.data(), element_size(impl.dtype));
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

ValueId Recorder::find(const Tensor& t) const {
  const Storage* storage = t.impl().storage.get();
  const SlotId slot =
      storage->pending() == this ? storage->pending_slot() : outside_.find(storage, trace_.slots);
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
  Tensor t(TensorImpl::lazy(spec.sizes, spec.dtype));
  Storage& storage = *t.impl().storage;
  fresh_.push_back(&storage);
  storage.set_pending(this, kNone);
  return t;
}

SlotId Recorder::number_fresh(Storage& storage) {
  const auto id = static_cast<SlotId>(trace_.slots.size());
  new (trace_.slots.extend(1)) Slot{.storage = &storage, .bytes = storage.bytes()};
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

[[gnu::always_inline]] inline uint32_t Recorder::write_attrs(const Op& op, const void* attrs) {
  if (op.attrs_size == 0) return 0;
  const auto at = static_cast<uint32_t>(trace_.attrs.size());
  std::memcpy(trace_.attrs.extend((op.attrs_size + sizeof(std::max_align_t) - 1) /
                                  sizeof(std::max_align_t)),
              attrs, op.attrs_size);
  return at;
}

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

uint32_t Recorder::place_of(base::Context& context) {
  if (context.trace != serial_) {
    context.trace = serial_;
    context.number = static_cast<uint32_t>(trace_.places.size());
    trace_.places.push_back(context.remember());
  }
  return context.number;
}

[[gnu::always_inline]] inline void Recorder::add_call(const Op& op, size_t inputs, size_t outputs,
                                                      const void* attrs, bool inplace) {
  if (inputs + outputs > kMostIds) [[unlikely]]
    refuse_operands(op, inputs + outputs);
  const uint32_t kept_attrs = write_attrs(op, attrs);
  Instruction& call = *new (trace_.calls.extend(1)) Instruction{
      .op = &op,
      .site = base::users_call_site(),
      .called = base::called_op,
      .operands = static_cast<uint32_t>(trace_.ids.size() - inputs - outputs),
      .attrs = kept_attrs,
      .inputs = static_cast<uint32_t>(inputs),
      .outputs = static_cast<uint32_t>(outputs),
      .inplace = inplace};
  if (base::Context* const context = base::Context::innermost()) call.place = place_of(*context);
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

// --- the end of a trace ---

void Recorder::released(Storage& storage) noexcept {
  if (storage.pending_slot() == kNone) return forget_fresh(storage);
  trace_.slots[storage.pending_slot()].storage = nullptr;
}

void Recorder::materialize(Storage& storage) {
  check(current == this,
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

void Recorder::on_undo_of(const Tensor& value, std::function<void(Tensor)> restore) {
  const auto call = static_cast<uint32_t>(trace_.calls.size());
  const Storage* storage = value.defined() ? value.impl().storage.get() : nullptr;
  if (!storage || storage->pending() != this || storage->pending_slot() == kNone ||
      trace_.slots[storage->pending_slot()].outside)
    return on_undo([value, restore = std::move(restore)] { restore(value); });
  const TensorImpl& t = value.impl();
  undo_.push_back(
      {.call = call,
       .slot = storage->pending_slot(),
       .version = storage->version(),
       .restore = [dtype = t.dtype, sizes = t.sizes, strides = t.strides, offset = t.offset,
                   restore = std::move(restore)](const StoragePtr& memory) {
         restore(memory ? Tensor(TensorImpl::create(memory, dtype, sizes, strides, offset))
                        : Tensor());
       }});
}

void Recorder::on_give_up(std::function<void()> undo) {
  until_run_.push_back(undo_.size());
  on_undo(std::move(undo));
}

void Recorder::close() {
  for (const size_t i : until_run_) undo_[i].fn = [] {};
  for (const Undo& undo : undo_) {
    if (undo.slot == kNone) continue;
    trace_.holds.push_back({undo.slot, undo.call});
    uint32_t* const words = trace_.key.extend(3);
    words[0] = key::kHold;
    words[1] = undo.slot;
    words[2] = undo.call;
  }
  trace_.key.push_back(key::kLive);
  trace_.held.resize(trace_.slots.size());
  for (SlotId i = 0; i < trace_.slots.size(); ++i) {
    Slot& s = trace_.slots[i];
    if (s.outside) {
      if (s.written) s.storage->clear_pending();
    } else if (s.storage) {
      trace_.held[i] = StoragePtr(s.storage);
      s.live = true;
      s.storage->clear_pending();
    }
    if (s.live) trace_.key.push_back(i);
  }
}

void Recorder::forget() {
  static std::atomic<uint64_t> traces{0};
  serial_ = traces.fetch_add(1, std::memory_order_relaxed) + 1;
  trace_.clear();
  // What ops without attributes are given, so that a reference to them refers to something.
  trace_.attrs.push_back({});
  opaque_pending_ = false;
  outside_.clear();
  blobs_.clear();
  undo_.clear();
  until_run_.clear();
  versions_.clear();
}

Trace Recorder::take(std::vector<Undo>* undo) {
  ++flushes_;
  versions_.clear();
  close();
  Trace taken = std::exchange(trace_, take_spare());
  if (undo) *undo = std::move(undo_);
  forget();
  return taken;
}

void Recorder::flush() {
  // What needs no computation happened when it was called: undoing it later would be wrong.
  if (trace_.empty()) return take().allocate_results();
  std::vector<Undo> undo;
  Trace closed = take(&undo);
  RunLog log(closed, std::move(undo));
  const Suspend at_once;
  has_run_ = true;
  try {
    sink_.run(closed);
  } catch (...) {
    Why why;
    try {
      throw;
    } catch (const std::exception& e) {
      why = why_of(e);
    } catch (...) {
      why = make_why("its computation ended with an exception of unknown type.");
    }
    log.failed();
    for (Slot& s : closed.slots)
      if (s.live && s.lost) Lost::mark(*s.storage, why);
    throw;
  }
  give_back(std::move(closed));
}

void Recorder::flush_for(const char* what) {
  if (trace_.empty()) return;
  sink_.on_break({str(what, " reads a value"), base::users_call_site()}, trace_);
  flush();
}

void Recorder::give_up(const char* why) noexcept {
  // What a recorded value was put in place of came before it.
  for (auto undo = undo_.rbegin(); undo != undo_.rend(); ++undo) {
    try {
      if (undo->fn) undo->fn();
    } catch (...) {
      // Out of memory; there is nobody to tell.
    }
  }
  for (const auto& [storage, version] : versions_) storage->set_version(version);
  const Why shared = make_why(why);
  for (Slot& s : trace_.slots) {
    if (s.outside) {
      if (s.written) s.storage->clear_pending();
    } else if (s.storage) {
      Lost::mark(*s.storage, shared);
    }
  }
  for (Storage* storage : fresh_) Lost::mark(*storage, shared);
  fresh_.clear();
  forget();
}

}  // namespace record
}  // namespace grapnel
