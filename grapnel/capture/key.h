/// The words of Note [Keys]. Inline, because they are written for every op that is recorded.
#pragma once

#include <bit>

#include "grapnel/capture/trace.h"

namespace grapnel::capture::key {

// The first byte of every entry tells the kinds apart, so that no two sequences of entries give the
// same words. Holds and live slots end a closed trace.
inline constexpr uint32_t kManyOperands = 0xfff;
enum Tag : uint32_t { kNumber = 1, kValue = 2, kCall = 3, kInplace = 4, kLive = 5, kHold = 6 };

inline uint32_t type_word(Tag tag, const Value& v) {
  return tag | static_cast<uint32_t>(v.dtype) << 8 | static_cast<uint32_t>(v.rank) << 12 |
         static_cast<uint32_t>(v.wrapped) << 16 | static_cast<uint32_t>(v.linear) << 17;
}

/// A number was lifted.
inline void number(Trace& trace, const Value& v) { trace.key.push_back(type_word(kNumber, v)); }

/// A tensor appeared for the first time.
inline void value(Trace& trace, const Value& v, bool with_sizes) {
  uint32_t* const words = trace.key.extend(2);
  words[0] = type_word(kValue, v);
  words[1] = v.slot << 1 | static_cast<uint32_t>(trace.slots[v.slot].outside);
  if (!with_sizes) return;
  for (int64_t s : trace.sizes_of(v)) {
    trace.key.push_back(static_cast<uint32_t>(s));
    trace.key.push_back(static_cast<uint32_t>(static_cast<uint64_t>(s) >> 32));
  }
}

/// The attributes of a call.
void attrs(Trace& trace, const Instruction& call);

/// All attributes of a call, those included that are no part of keys.
std::vector<uint64_t> all_attrs(const Op& op, const void* attrs);

/// A call is about to be appended.
[[gnu::always_inline]] inline void call(Trace& trace, const Instruction& c) {
  const auto address = std::bit_cast<uint64_t>(c.op);
  const uint32_t operands = c.inputs, all = operands + c.outputs;
  const ValueId* const ids = trace.ids.data() + c.operands;
  // Both counts have twelve bits; where one needs more, two more words hold them.
  const bool many = operands >= kManyOperands || c.outputs >= kManyOperands;
  uint32_t* words = trace.key.extend(3 + all + (many ? 2 : 0));
  words[0] = (c.inplace ? kInplace : kCall) | (many ? kManyOperands : operands) << 8 |
             (many ? kManyOperands : c.outputs) << 20;
  words[1] = static_cast<uint32_t>(address);
  words[2] = static_cast<uint32_t>(address >> 32);
  if (many) [[unlikely]] {
    words[3] = operands;
    words[4] = c.outputs;
    words += 2;
  }
  for (uint32_t i = 0; i < all; ++i) words[3 + i] = ids[i];
  if (c.op->elementwise) {
    const Value* const values = trace.values.data();
    const IntArrayRef full = trace.sizes_of(values[ids[operands]]);
    // Values are few enough that the top bit is free for: has the full shape of the result.
    for (uint32_t i = 0; i < operands; ++i)
      if (ids[i] != kNone && trace.sizes_of(values[ids[i]]) == full) words[3 + i] |= 0x80000000;
  }
  if (c.op->attrs_size > 0 && c.op->family != Family::view) attrs(trace, c);
}

/// Hash of all words.
uint64_t hash(const Words& words);

}  // namespace grapnel::capture::key
