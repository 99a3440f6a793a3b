/// What shape rules ask of attributes, and what definitions ask of arguments: some refuse types and
/// values that have no meaning there, although their kernel could compute them.
///
/// An op checks its attributes and operands where it infers its shape (`infer`, `geometry`,
/// `views`), not in the function that the user calls: eager code, recordings, gradients, graphs
/// that run on other inputs than they were traced with and graphs read from text all pass there,
/// and `run` may rely on it. The functions on top only turn what people write (negative dimensions,
/// defaults) into attributes. A test changes every attribute of every op to hostile values.
#pragma once

#include <string_view>

#include "grapnel/base/checked.h"
#include "grapnel/ops/op.h"
#include "grapnel/tensor/shape.h"

namespace grapnel {

/// What integers refuse.
enum class Refused : int64_t {
  floor_divide_by_zero,
  fmod_by_zero,
  remainder_by_zero,
  negative_exponent
};

void refuse_bool(std::string_view op, Inputs inputs, std::string_view advice);
void refuse_floats(std::string_view op, Inputs inputs);
void check_mask(std::string_view op, const Tensor& mask);

/// Fails if integers are computed with and `b` holds a value that is refused. Floating-point
/// operands are not looked at. Values that a recording has yet to compute are checked when it runs.
void check_integers(const Tensor& a, const Tensor& b, Refused rule);

namespace attrs {

/// No stride and no offset is larger than this, so that sums and products of a few of them with
/// sizes of tensors that exist do not wrap around.
inline constexpr int64_t kFarthest = int64_t{1} << 48;
/// Kernel sizes, strides, padding and dilation of windows, for the same reason.
inline constexpr int64_t kWidest = 0x7fffffff;
/// Of one call.
inline constexpr int64_t kMostResults = 1 << 26;

/// `dim` counts from 0, and there is such a dimension. A 0-dimensional tensor counts as having one.
inline int dim(std::string_view op, int64_t dim, int rank) {
  if (dim < 0 || dim >= (rank > 1 ? rank : 1)) [[unlikely]]
    fail(op, ": dimension ", dim, " is out of range for ", rank,
         rank == 1 ? " dimension." : " dimensions.");
  return static_cast<int>(dim);
}
/// The same for the dimension that a part is taken of.
inline int dim_to_cut(std::string_view op, int64_t dim, int rank) {
  if (rank == 0) [[unlikely]]
    fail(op,
         ": the tensor is 0-dimensional and has no dimension to take a part of.\nGive it one with "
         "unsqueeze(0).");
  return attrs::dim(op, dim, rank);
}
/// Dimensions in ascending order, none of them twice.
inline void dims(std::string_view op, const Shape& dims, int rank) {
  int64_t before = -1;
  for (const int64_t d : dims) {
    if (d <= before || d >= rank) [[unlikely]]
      fail(op, ": dimensions ", dims, " are not ascending or out of range for ", rank,
           rank == 1 ? " dimension." : " dimensions.");
    before = d;
  }
}
/// [vertical, horizontal], both in [least, kWidest].
inline void pair(std::string_view op, std::string_view what, const Shape& values, int64_t least) {
  const bool fits = values.size() == 2 && values[0] >= least && values[1] >= least &&
                    values[0] <= kWidest && values[1] <= kWidest;
  if (!fits) [[unlikely]]
    fail(op, ": ", what, " must be at least ", least, " and at most ", kWidest,
         " in both dimensions, got ", values, ".");
}

}  // namespace attrs
}  // namespace grapnel
