/// Walking tensors line by line along one dimension, for ops in which that dimension is special:
/// sorting, running sums, gathering. Lines are shared out among threads; the elements of one line
/// stay in order.
#pragma once

#include <array>

#include "grapnel/base/thread_pool.h"
#include "grapnel/cpu/loop_nest.h"
#include "grapnel/ops/define.h"

namespace grapnel::cpu {

/// Neighbouring lines of K tensors. Element i of line j of tensor k is at<T>(k, j, i).
template <int K>
struct LinePiece {
  char* data[K];
  int64_t step[K];   ///< in elements, from line to line
  int64_t along[K];  ///< in elements, from element to element of a line
  int64_t lines;
  int64_t begin, end;  ///< the part of each line to do

  template <class T>
  T& at(int k, int64_t line, int64_t i) const {
    return reinterpret_cast<T*>(data[k])[line * step[k] + i * along[k]];
  }
  /// Calls fn(line, i) for every element, i growing within each line, neighbours in memory
  /// innermost.
  template <class Fn>
  void for_each(Fn&& fn) const {
    if (step[0] < along[0]) {
      for (int64_t i = begin; i < end; ++i)
        for (int64_t j = 0; j < lines; ++j) fn(j, i);
    } else {
      for (int64_t j = 0; j < lines; ++j)
        for (int64_t i = begin; i < end; ++i) fn(j, i);
    }
  }
};

/// Whether a line must be done by one thread from its first element to its last.
enum class LineOrder : uint8_t { kept, free };

/// Calls fn(piece) for all lines of `length` elements. `starts` hold the first elements of the
/// lines, all in one shape.
template <int K, class Fn>
void walk_lines(int64_t length, const std::array<Tensor, K>& starts,
                const std::array<int64_t, K>& along, LineOrder order, Fn&& fn) {
  LoopNest<K> nest(starts[0]);
  for (int k = 1; k < K; ++k) nest.add(starts[static_cast<size_t>(k)]);
  nest.merge();
  if (nest.numel == 0 || length == 0) return;
  constexpr int64_t grain = 32768;
  // Where lines lie side by side in memory, a piece takes many of them: whole cache lines at least,
  // and as many as there are if the lines themselves may be cut.
  const bool side_by_side = nest.row_stride(0) < along[0], cuttable = order == LineOrder::free;
  const int64_t fewest = !side_by_side ? 1
                         : cuttable    ? std::clamp<int64_t>(nest.row_length(), 64, grain)
                                       : std::clamp<int64_t>(nest.row_length() / 4, 64, 1024);
  const int64_t lines = std::max(grain / length, fewest);
  const int64_t part =
      cuttable ? std::max<int64_t>(1, grain / std::min(lines, nest.numel)) : length;
  const int64_t parts = (length + part - 1) / part, groups = (nest.numel + lines - 1) / lines;
  base::parallel_for(groups * parts, 1, [&](int64_t first, int64_t last) {
    for (int64_t job = first; job < last; ++job) {
      const int64_t begin = (job / parts) * lines, from = (job % parts) * part;
      nest.for_rows(begin, std::min(nest.numel, begin + lines), [&](int64_t i, int64_t n) {
        LinePiece<K> piece;
        for (int k = 0; k < K; ++k) {
          const auto& o = nest.operands[k];
          piece.data[k] = o.data + nest.offset(k, i) * static_cast<int64_t>(element_size(o.dtype));
          piece.step[k] = nest.row_stride(k);
          piece.along[k] = along[static_cast<size_t>(k)];
        }
        piece.lines = n;
        piece.begin = from;
        piece.end = std::min(length, from + part);
        fn(piece);
      });
    }
  });
}

/// The same for the lines along `dim` of the box `space`. Tensors may reach beyond the box; a
/// 0-dimensional one counts as having one dimension.
template <int K, class Fn>
void for_lines(const Shape& space, int dim, const std::array<Tensor, K>& tensors, LineOrder order,
               Fn&& fn) {
  Shape rest = space;
  if (!space.empty()) rest.erase(dim);
  std::array<Tensor, K> starts;
  std::array<int64_t, K> along;
  for (size_t k = 0; k < K; ++k) {
    const TensorImpl& t = tensors[k].impl();
    Shape strides = t.strides;
    along[k] = space.empty() ? 1 : strides[dim];
    if (!space.empty()) strides.erase(dim);
    starts[k] = make_alias(tensors[k], {rest, strides, t.offset});
  }
  walk_lines<K>(space.empty() ? 1 : space[dim], starts, along, order, fn);
}

}  // namespace grapnel::cpu
