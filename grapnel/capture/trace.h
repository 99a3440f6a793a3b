/// Trace: what a recorder has seen and not run yet.
///
/// A trace is a list of calls in program order. A call reads and writes *values*; a value is a
/// tensor as the calls saw it: a geometry over a *slot*. A slot is one storage: one from outside,
/// or one that only this trace fills. So aliasing is exact (two values over one slot share memory),
/// views cost nothing, and an in-place call is simply a call that writes a slot again.
///
/// The trace holds storages from outside, but no handle to what it computes itself: a slot forgets
/// its storage when the last tensor over it dies, and what is still alive at the end is exactly
/// what has to be stored.
#pragma once

#include <bit>
#include <memory>
#include <utility>
#include <vector>

#include "grapnel/base/place.h"
#include "grapnel/capture/calls.h"

namespace grapnel::capture {

using SlotId = uint32_t;

struct Slot {
  Storage* storage = nullptr;  ///< any storage that still lives
  size_t bytes = 0;
  ValueId first = kNone;  ///< the values over this slot, linked by Value::next
  Device device = {};
  bool outside : 1 = false;
  bool written : 1 = false;  ///< by an in-place call on a storage from outside
  bool live : 1 = false;     ///< set when the trace is closed: somebody still looks at the result
  bool lost : 1 = false;     ///< the trace failed before it was computed
};
static_assert(sizeof(Slot) == 24);
/// What a slot holds is wanted, should the trace fail, until so many calls have run: see Note
/// [Failing graphs] in capture/run_log.h.
struct Hold {
  SlotId slot;
  uint32_t until;
};

struct Value {
  SlotId slot;
  ValueId next = kNone;
  uint32_t dims = 0;  ///< where sizes, strides and offset stand in Trace::dims
  DType dtype = DType::Float32;
  uint8_t rank = 0;
  /// A plain number, lifted: its 8 bytes stand in Trace::numbers at position `slot`.
  bool number = false;
  bool wrapped = false;  ///< counts as a number in type promotion
  bool linear = false;   ///< contiguous and over the whole slot: element i is element i of memory
};
static_assert(sizeof(Value) == 20);

/// A key; see Note [Keys] in capture/recorder.h.
using Words = base::RawVector<uint32_t>;
/// Those of the tensors that one key is about.
using Storages = SmallVector<const Storage*, 4>;

/// The number whose 8 bytes stand in Trace::numbers.
inline Scalar scalar_of(DType dtype, uint64_t bits) {
  if (dtype == DType::Bool) return (bits & 0xff) != 0;
  if (dtype == DType::Int64) return static_cast<int64_t>(bits);
  return std::bit_cast<double>(bits);
}

struct Trace : Calls {
  base::RawVector<Slot> slots;
  /// What keeps the storages of slots alive: those from outside while the trace is recorded, and as
  /// many as there are slots once it is closed. Apart from the slots, which have to be cheap to add.
  std::vector<StoragePtr> held;
  base::RawVector<Value> values;
  base::RawVector<int64_t> dims;
  base::RawVector<uint64_t> numbers;
  /// Numbers of declared hooks and their places there.
  std::vector<std::pair<ValueId, uint32_t>> lifted_numbers;
  std::vector<Hold> holds;
  /// Part of it comes from a backward pass; known only with the names of hooks.
  bool walked = false;
  int64_t skipped_hooks = 0;  ///< declared hooks that did not have to be called
  std::vector<std::shared_ptr<const base::Remembered>> places;
  Words key;  ///< see Note [Keys] in capture/recorder.h

  IntArrayRef sizes_of(const Value& v) const { return {dims.data() + v.dims, v.rank}; }
  IntArrayRef strides_of(const Value& v) const { return {dims.data() + v.dims + v.rank, v.rank}; }
  int64_t offset_of(const Value& v) const { return dims[v.dims + 2u * v.rank]; }
  int64_t numel_of(const Value& v) const {
    int64_t n = 1;
    for (int64_t s : sizes_of(v)) n *= s;
    return n;
  }
  bool empty() const { return calls.empty(); }
  /// What was made but never written (an `empty` that is returned) gets its memory, too.
  void allocate_results() const {
    for (SlotId i = 0; i < slots.size(); ++i)
      if (slots[i].live) held[i]->make_ready();
  }
  /// Forgets everything but the memory it was written in.
  void clear();
};

}  // namespace grapnel::capture
