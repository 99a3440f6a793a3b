#include "grapnel/capture/run_log.h"

#include <utility>

namespace grapnel::capture {

RunLog::RunLog(Trace& trace, std::vector<Undo> undo)
    : trace_(trace), undo_(std::move(undo)), outer_(std::exchange(this_context.run, this)) {}

void RunLog::left_out(Trace& trace, const Instruction& call) noexcept {
  if (call.op->family == Family::view) return;
  for (const ValueId id : trace.outputs_of(call)) {
    if (id == kNone) continue;
    const SlotId slot = trace.values[id].slot;
    if (!call.inplace) {
      trace.slots[slot].lost = true;
    } else if (slot < trace.held.size() && trace.held[slot]) {
      Storage& storage = *trace.held[slot];
      storage.set_version(storage.version() - 1);
    }
  }
}

/// What lies in the slot that an undo wants back, if it was computed.
StoragePtr RunLog::result(const Undo& undo) {
  Slot& slot = trace_.slots[undo.slot];
  const StoragePtr& storage = trace_.held[undo.slot];
  if (slot.lost || !storage) return {};
  // Nobody has counted the writes to what nobody was to see.
  if (!slot.live) storage->set_version(storage->version() + undo.version);
  slot.live = true;
  return storage;
}

void RunLog::failed() noexcept {
  if (reached_ == kNone)
    for (const Instruction& call : trace_.calls) left_out(trace_, call);
  while (undo_.size() > done_ && (reached_ == kNone || undo_.back().call > reached_)) {
    const Undo undo = std::move(undo_.back());
    undo_.pop_back();
    try {
      if (undo.fn) undo.fn();
      else undo.restore(result(undo));
    } catch (...) {
      // Out of memory for a header: what it would have put back is gone.
    }
  }
}

}  // namespace grapnel::capture
