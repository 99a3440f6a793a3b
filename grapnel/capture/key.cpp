#include "grapnel/capture/key.h"

namespace grapnel::capture::key {

namespace {

class AttrWords final : public AttrVisitor {
 public:
  explicit AttrWords(Words& words) : words_(words) {}
  void on(std::string_view, bool value) override { words_.push_back(value); }
  void on(std::string_view, int64_t value) override {
    if (!is_argument) wide(static_cast<uint64_t>(value));
  }
  void on(std::string_view, double) override {}
  void on(std::string_view, DType value) override {
    words_.push_back(static_cast<uint32_t>(value));
  }
  void on(std::string_view, const Shape& value) override {
    words_.push_back(static_cast<uint32_t>(value.size()));
    if (is_argument) return;
    for (int64_t x : value) wide(static_cast<uint64_t>(x));
  }

 private:
  void wide(uint64_t value) {
    words_.push_back(static_cast<uint32_t>(value));
    words_.push_back(static_cast<uint32_t>(value >> 32));
  }
  Words& words_;
};

class AllAttrs final : public AttrVisitor {
 public:
  std::vector<uint64_t> words;
  void on(std::string_view, bool value) override { words.push_back(value); }
  void on(std::string_view, int64_t value) override {
    words.push_back(static_cast<uint64_t>(value));
  }
  void on(std::string_view, double value) override {
    words.push_back(std::bit_cast<uint64_t>(value));
  }
  void on(std::string_view, DType value) override { words.push_back(static_cast<uint64_t>(value)); }
  void on(std::string_view, const Shape& value) override {
    words.push_back(static_cast<uint64_t>(value.size()));
    for (const int64_t x : value) words.push_back(static_cast<uint64_t>(x));
  }
};

}  // namespace

std::vector<uint64_t> all_attrs(const Op& op, const void* attrs) {
  AllAttrs visitor;
  if (op.attrs_size > 0) op.visit_attrs(attrs, visitor);
  return std::move(visitor.words);
}

void attrs(Trace& trace, const Instruction& c) {
  AttrWords words(trace.key);
  c.op->visit_attrs(trace.attrs_of(c), words);
}

uint64_t hash(const Words& words) {
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
