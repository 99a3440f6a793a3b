/// Finds the slot of a storage that a trace took from outside.
///
/// Open addressing over slot numbers; the storages to compare with stand in the slots themselves,
/// so an entry is four bytes and forgetting all of them is one pass over a short list.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "grapnel/capture/trace.h"

namespace grapnel::capture {

class SlotTable {
 public:
  /// kNone if no slot stands for `storage`.
  SlotId find(const Storage* storage, const base::RawVector<Slot>& slots) const {
    if (count_ == 0) return kNone;
    size_t at = place(storage);
    while (places_[at] != kNone && slots[places_[at]].storage != storage)
      at = (at + 1) & (places_.size() - 1);
    return places_[at];
  }
  /// Adds a slot whose storage is not in the table yet.
  void add(SlotId slot, const base::RawVector<Slot>& slots) {
    if (2 * (count_ + 1) > places_.size()) grow(slots);
    insert(slot, slots);
    ++count_;
  }
  void clear() {
    if (count_ > 0) std::fill(places_.begin(), places_.end(), kNone);
    count_ = 0;
  }

 private:
  size_t place(const Storage* storage) const {
    return (reinterpret_cast<uintptr_t>(storage) >> 4) * 0x9E3779B97F4A7C15 >> 32 &
           (places_.size() - 1);
  }
  void insert(SlotId slot, const base::RawVector<Slot>& slots) {
    size_t at = place(slots[slot].storage);
    while (places_[at] != kNone) at = (at + 1) & (places_.size() - 1);
    places_[at] = slot;
  }
  void grow(const base::RawVector<Slot>& slots) {
    const std::vector<SlotId> old = std::exchange(
        places_, std::vector<SlotId>(std::max<size_t>(32, 2 * places_.size()), kNone));
    for (const SlotId slot : old)
      if (slot != kNone) insert(slot, slots);
  }

  std::vector<SlotId> places_;  ///< a power of two of them, at most half in use
  size_t count_ = 0;
};

}  // namespace grapnel::capture
