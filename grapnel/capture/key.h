/// The one writer of keys: words that tell apart what was recorded, and what it was recorded for.
///
/// `number`, `value` and `call` write the words of Note [Keys], inline, because they do so for every
/// op that is recorded. `look` writes those of a tensor that is given to a declared hook or a
/// replayed function.
#pragma once

#include <bit>
#include <cstring>
#include <string_view>

#include "grapnel/capture/trace.h"

namespace grapnel::capture::key {

// The first byte of every entry tells the kinds apart, so that no two sequences of entries give the
// same words. Holds and live slots end a closed trace.
inline constexpr uint32_t kManyOperands = 0xfff;
enum Tag : uint32_t {
  kNumber = 1,
  kValue = 2,
  kCall = 3,
  kInplace = 4,
  kLive = 5,
  kHold = 6,
  kLook = 7
};

/// `more` has eight bits of its own meaning for each tag; the device has the seven above them.
inline uint32_t type_word(Tag tag, DType dtype, Device device, int rank, bool wrapped,
                          uint32_t more) {
  static_assert(kMostDevices <= 64);
  return tag | static_cast<uint32_t>(dtype) << 8 | static_cast<uint32_t>(rank) << 12 |
         static_cast<uint32_t>(wrapped) << 16 | more << 17 |
         static_cast<uint32_t>(device.type()) << 25 | static_cast<uint32_t>(device.index()) << 26;
}
inline void wide(Words& words, uint64_t value) {
  uint32_t* const at = words.extend(2);
  at[0] = static_cast<uint32_t>(value);
  at[1] = static_cast<uint32_t>(value >> 32);
}
inline void wide(Words& words, IntArrayRef values) {
  for (const int64_t x : values) wide(words, static_cast<uint64_t>(x));
}
/// Any bytes, with their number.
inline void bytes(Words& words, std::string_view plain) {
  uint32_t* const at = words.extend(1 + (plain.size() + 3) / 4);
  words[words.size() - 1] = 0;  // of which the bytes may fill a part only
  at[0] = static_cast<uint32_t>(plain.size());
  std::memcpy(at + 1, plain.data(), plain.size());
}

/// A number was lifted.
inline void number(Trace& trace, const Value& v) {
  trace.key.push_back(type_word(kNumber, v.dtype, kCPU, v.rank, v.wrapped, v.linear));
}

/// A tensor appeared for the first time.
inline void value(Trace& trace, const Value& v, bool with_sizes) {
  uint32_t* const words = trace.key.extend(2);
  const Slot& slot = trace.slots[v.slot];
  words[0] = type_word(kValue, v.dtype, slot.device, v.rank, v.wrapped, v.linear);
  words[1] = v.slot << 1 | static_cast<uint32_t>(slot.outside);
  if (with_sizes) wide(trace.key, trace.sizes_of(v));
}

/// What a tensor looks like: type, sizes, layout, and which of those seen before share its memory.
void look(Words& words, const Tensor& t, Storages& seen);

/// The attributes of a call: those that graphs are told apart by, or all of them.
enum class Which : uint8_t { settings, all };
void attrs(Words& words, const Op& op, const void* attrs, Which which);

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
  if (c.op->attrs_size > 0 && c.op->family != Family::view)
    attrs(trace.key, *c.op, trace.attrs_of(c), Which::settings);
}

/// Hash of all words.
uint64_t hash(const Words& words);

}  // namespace grapnel::capture::key
