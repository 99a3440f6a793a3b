/// Distances and angles of vectors, and products along several dimensions.
#pragma once

#include <optional>

#include "grapnel/functions/functions.h"

namespace grapnel {

/// The cosine of the angle between vectors along a dimension; norms count as at least eps.
Tensor cosine_similarity(const Tensor& a, const Tensor& b, int64_t dim = 1, double eps = 1e-8);
/// The p-norm of a - b + eps along the last dimension.
Tensor pairwise_distance(const Tensor& a, const Tensor& b, double p = 2, double eps = 1e-6,
                         bool keepdim = false);
/// The p-norm of the differences of every row of a and every row of b: [..., n, d] and [..., m, d]
/// give [..., n, m].
Tensor cdist(const Tensor& a, const Tensor& b, double p = 2);
/// The vector product along a dimension of size 3, the last unless told otherwise.
Tensor cross(const Tensor& a, const Tensor& b, int64_t dim = -1);
/// Sums of products over the last `dims` dimensions of a and the first of b.
Tensor tensordot(const Tensor& a, const Tensor& b, int64_t dims = 2);
/// Sums of products over the dimensions named of both.
Tensor tensordot(const Tensor& a, const Tensor& b, IntArrayRef dims_self, IntArrayRef dims_other);

}  // namespace grapnel
