/// The end of a trace: it is closed and run, or given up.
#include <atomic>
#include <exception>
#include <memory>
#include <new>
#include <utility>

#include "grapnel/base/per_thread.h"
#include "grapnel/base/place.h"
#include "grapnel/base/source_site.h"
#include "grapnel/capture/key.h"
#include "grapnel/capture/recorder.h"
#include "grapnel/ops/record.h"

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

namespace record {

using namespace capture;

namespace {

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
  this_context.recorder = outer_;
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
