#include "grapnel/capture/key.h"

#include <algorithm>

namespace grapnel::capture::key {

namespace {

class AttrWords final : public AttrVisitor {
 public:
  AttrWords(Words& words, Which which) : words_(words), all_(which == Which::all) {}
  void on(std::string_view, bool value) override { words_.push_back(value); }
  void on(std::string_view, int64_t value) override {
    if (all_ || !is_argument) wide(words_, static_cast<uint64_t>(value));
  }
  void on(std::string_view, double value) override {
    if (all_) wide(words_, std::bit_cast<uint64_t>(value));
  }
  void on(std::string_view, DType value) override {
    words_.push_back(static_cast<uint32_t>(value));
  }
  void on(std::string_view, const Shape& value) override {
    words_.push_back(static_cast<uint32_t>(value.size()));
    if (all_ || !is_argument) wide(words_, value);
  }

 private:
  Words& words_;
  const bool all_;
};

}  // namespace

void attrs(Words& words, const Op& op, const void* attrs, Which which) {
  if (op.attrs_size == 0) return;
  AttrWords visitor(words, which);
  op.visit_attrs(attrs, visitor);
}

void look(Words& words, const Tensor& t, Storages& seen) {
  if (!t.defined()) return words.push_back(0);
  const TensorImpl& impl = t.impl();
  const auto at = std::find(seen.begin(), seen.end(), impl.storage.get());
  uint32_t* const head = words.extend(2);
  head[0] = type_word(
      kLook, impl.dtype, impl.storage->device(), impl.sizes.size(), impl.wrapped_number,
      static_cast<uint32_t>(t.requires_grad()) | static_cast<uint32_t>(impl.inference) << 1);
  head[1] = static_cast<uint32_t>(at - seen.begin());
  if (at == seen.end()) seen.push_back(impl.storage.get());
  wide(words, impl.sizes);
  wide(words, impl.strides);
  wide(words, static_cast<uint64_t>(impl.offset));
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
