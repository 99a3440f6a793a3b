#include "grapnel/capture/key.h"

#include <algorithm>
#include <bit>

namespace grapnel::capture::key {

namespace {

// The first byte of every entry tells the kinds apart, so that no two sequences of entries give the same words.
enum Tag : uint32_t { kNumber = 1, kValue = 2, kCall = 3, kInplace = 4 };

uint32_t type_word(Tag tag, const Value& v) {
  return tag | static_cast<uint32_t>(v.dtype) << 8 | static_cast<uint32_t>(v.rank) << 12 | static_cast<uint32_t>(v.wrapped) << 16 |
         static_cast<uint32_t>(v.linear) << 17;
}

/// Attributes that say how much or where, not what: they are arguments of an executable, not part of it.
bool is_lifted(std::string_view name) {
  static constexpr std::string_view lifted[] = {"sizes", "size", "offset", "seed", "low", "high", "start", "end", "index",
                                                "base_sizes", "base_strides", "base_offset", "strides", "count"};
  return std::find(std::begin(lifted), std::end(lifted), name) != std::end(lifted);
}

class Words final : public AttrVisitor {
 public:
  explicit Words(std::vector<uint32_t>& words) : words_(words) {}
  void on(std::string_view, bool value) override { words_.push_back(value); }
  void on(std::string_view name, int64_t value) override {
    if (!is_lifted(name)) wide(static_cast<uint64_t>(value));
  }
  void on(std::string_view, double) override {}  // scalars are lifted
  void on(std::string_view, DType value) override { words_.push_back(static_cast<uint32_t>(value)); }
  void on(std::string_view name, const Shape& value) override {
    words_.push_back(static_cast<uint32_t>(value.size()));
    if (is_lifted(name)) return;
    for (int64_t x : value) wide(static_cast<uint64_t>(x));
  }

 private:
  void wide(uint64_t value) {
    words_.push_back(static_cast<uint32_t>(value));
    words_.push_back(static_cast<uint32_t>(value >> 32));
  }
  std::vector<uint32_t>& words_;
};

}  // namespace

void number(Trace& trace, const Value& v) { trace.key.push_back(type_word(kNumber, v)); }

void value(Trace& trace, const Value& v, bool with_sizes) {
  trace.key.push_back(type_word(kValue, v));
  trace.key.push_back(v.slot << 1 | static_cast<uint32_t>(trace.slots[v.slot].outside));
  if (!with_sizes) return;
  for (int64_t s : trace.sizes_of(v)) trace.key.push_back(static_cast<uint32_t>(s));
}

void call(Trace& trace, const Instruction& c) {
  const auto address = std::bit_cast<uint64_t>(c.op);
  const auto inputs = trace.inputs_of(c), outputs = trace.outputs_of(c);
  const size_t at = trace.key.size();
  trace.key.resize(at + 3 + inputs.size() + outputs.size());
  uint32_t* word = trace.key.data() + at;
  *word++ = (c.inplace ? kInplace : kCall) | static_cast<uint32_t>(c.inputs) << 8 | static_cast<uint32_t>(c.outputs) << 20;
  *word++ = static_cast<uint32_t>(address);
  *word++ = static_cast<uint32_t>(address >> 32);
  for (const ValueId id : inputs) {
    // Values are few enough that the top bit is free for: has the full shape of the result.
    const bool full = id != kNone && c.op->elementwise && trace.sizes_of(trace.values[id]) == trace.sizes_of(trace.values[outputs[0]]);
    *word++ = full ? id | 0x80000000 : id;
  }
  for (const ValueId id : outputs) *word++ = id;
  if (c.op->attrs_size > 0 && c.op->family != Family::view) {
    Words words(trace.key);
    c.op->visit_attrs(trace.attrs_of(c), words);
  }
}

uint64_t hash(const std::vector<uint32_t>& words) {
  // Multiply-and-fold over pairs of words.
  constexpr uint64_t odd = 0x9E3779B97F4A7C15;
  uint64_t h = words.size() * odd;
  size_t i = 0;
  for (; i + 1 < words.size(); i += 2) {
    const uint64_t pair = uint64_t{words[i]} | uint64_t{words[i + 1]} << 32;
    const auto product = static_cast<unsigned __int128>(h ^ pair) * odd;
    h = static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }
  if (i < words.size()) {
    const auto product = static_cast<unsigned __int128>(h ^ words[i]) * odd;
    h = static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }
  return h;
}

}  // namespace grapnel::capture::key
