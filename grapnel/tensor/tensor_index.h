/// What stands between the brackets of x.index({...}), as in LibTorch:
///
///   using namespace grapnel::indexing;
///   x.index({0, Slice(1, None, 2), Ellipsis, None, mask})  // Python's x[0, 1::2, ..., None, mask]
#pragma once

#include <concepts>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "grapnel/tensor/tensor.h"

namespace grapnel {

namespace indexing {

/// A new dimension of size 1; inside Slice, an open end.
inline constexpr std::nullopt_t None = std::nullopt;

/// All dimensions not mentioned. The text "..." means the same.
struct EllipsisIndexType {};
inline constexpr EllipsisIndexType Ellipsis{};

/// Every step-th index in [start, stop). Negative bounds count from the end; bounds outside are cut
/// off.
struct Slice {
  std::optional<int64_t> start, stop;
  int64_t step;
  Slice(std::optional<int64_t> from = {}, std::optional<int64_t> to = {},
        std::optional<int64_t> by = {})
      : start(from), stop(to), step(by.value_or(1)) {}
};

}  // namespace indexing

/// What may stand in `x.index({...})`: a position, a Slice, an ellipsis, None, a tensor of
/// positions or a mask.
class TensorIndex {
 public:
  using Value = std::variant<std::nullopt_t, indexing::EllipsisIndexType, int64_t, bool,
                             indexing::Slice, Tensor>;

  TensorIndex(std::nullopt_t none) : value_(none) {}
  TensorIndex(indexing::EllipsisIndexType all) : value_(all) {}
  TensorIndex(const char* text) : value_(indexing::Ellipsis) {
    check(std::string_view(text) == "...", "index: the text \"", text,
          "\" is no index; only \"...\" is.");
  }
  template <std::integral T>
  TensorIndex(T position)
      : value_(std::in_place_type<std::conditional_t<std::same_as<T, bool>, bool, int64_t>>,
               position) {}
  TensorIndex(indexing::Slice slice) : value_(slice) {}
  TensorIndex(Tensor positions_or_mask) : value_(std::move(positions_or_mask)) {}

  const Value& value() const { return value_; }

 private:
  Value value_;
};

/// All that stands between the brackets, borrowed: it is meant for arguments of functions.
class IndexList : public IndexArgument {
 public:
  IndexList(std::initializer_list<TensorIndex> list) : list_(std::data(list), list.size()) {}
  IndexList(const std::vector<TensorIndex>& list) : list_(list) {}
  IndexList(std::span<const TensorIndex> list) : list_(list) {}

  auto begin() const { return list_.begin(); }
  auto end() const { return list_.end(); }

 private:
  std::span<const TensorIndex> list_;
};

namespace indexing {
using grapnel::TensorIndex;
}

}  // namespace grapnel
