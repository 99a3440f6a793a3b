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
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "grapnel/base/context.h"
#include "grapnel/base/raw_vector.h"
#include "grapnel/ops/op.h"

namespace grapnel::capture {

using ValueId = uint32_t;
using SlotId = uint32_t;
inline constexpr uint32_t kNone = 0xffffffff;

struct Slot {
  Storage* storage = nullptr;  ///< any storage that still lives
  size_t bytes = 0;
  ValueId first = kNone;  ///< the values over this slot, linked by Value::next
  bool outside = false;
  bool written = false;  ///< by an in-place call on a storage from outside
  bool live = false;     ///< set when the trace is closed: somebody still looks at what it computed
  bool lost = false;     ///< the trace failed before it was computed
};
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

struct Instruction {
  const Op* op = nullptr;
  const void* site = nullptr;
  const char* called = nullptr;  ///< the op function the user called there
  uint32_t operands = 0;  ///< first operand in Trace::ids; the results follow them
  uint32_t attrs = 0;     ///< in Trace::attrs
  uint32_t key_end = 0;   ///< behind its words in Trace::key
  uint32_t hook = kNone;   ///< in Trace::hooks: the hook that was running
  uint32_t place = kNone;  ///< in Trace::places: the module or hook that it happened in
  uint32_t inputs = 0;
  uint32_t outputs = 0;
  bool inplace = false;  ///< the one output is the first input, written again
};

/// A key; see Note [Keys] in capture/recorder.h.
using Words = base::RawVector<uint32_t>;

/// The number whose 8 bytes stand in Trace::numbers.
inline Scalar scalar_of(DType dtype, uint64_t bits) {
  if (dtype == DType::Bool) return (bits & 0xff) != 0;
  if (dtype == DType::Int64) return static_cast<int64_t>(bits);
  return std::bit_cast<double>(bits);
}

struct Trace {
  base::RawVector<Slot> slots;
  /// What keeps the storages of slots alive: those from outside while the trace is recorded, and as
  /// many as there are slots once it is closed. Apart from the slots, which have to be cheap to add.
  std::vector<StoragePtr> held;
  base::RawVector<Value> values;
  base::RawVector<Instruction> calls;
  base::RawVector<ValueId> ids;
  base::RawVector<int64_t> dims;
  base::RawVector<uint64_t> numbers;
  base::RawVector<std::max_align_t> attrs;
  std::vector<std::shared_ptr<const void>> kept;  ///< what opaque calls need
  /// Numbers of declared hooks and their places there.
  std::vector<std::pair<ValueId, uint32_t>> lifted_numbers;
  std::vector<Hold> holds;
  /// Part of it comes from a backward pass; known only with the names of hooks.
  bool walked = false;
  int64_t skipped_hooks = 0;  ///< declared hooks that did not have to be called
  /// What Instruction::hook refers to; names are kept only for those who ask.
  std::vector<std::string> hooks;
  std::vector<std::shared_ptr<const base::Remembered>> places;
  Words key;  ///< see Note [Keys] in capture/recorder.h

  std::span<const ValueId> inputs_of(const Instruction& c) const {
    return {ids.data() + c.operands, c.inputs};
  }
  std::span<const ValueId> outputs_of(const Instruction& c) const {
    return {ids.data() + c.operands + c.inputs, c.outputs};
  }
  const void* attrs_of(const Instruction& c) const { return attrs.data() + c.attrs; }
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
      if (slots[i].live) held[i]->data();
  }
  /// Forgets everything but the memory it was written in.
  void clear();
};

}  // namespace grapnel::capture
