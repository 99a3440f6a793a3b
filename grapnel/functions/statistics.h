/// Spread, medians, quantiles, counts, and where values stand in a sorted sequence.
#pragma once

#include <optional>
#include <tuple>

#include "grapnel/functions/functions.h"

namespace grapnel {

/// The standard deviation and the mean of all elements or along dimensions.
std::tuple<Tensor, Tensor> std_mean(const Tensor& x, IntArrayRef dims = {}, bool unbiased = true,
                                    bool keepdim = false);
/// The variance and the mean of all elements or along dimensions.
std::tuple<Tensor, Tensor> var_mean(const Tensor& x, IntArrayRef dims = {}, bool unbiased = true,
                                    bool keepdim = false);
/// The value in the middle, the lower one of two; NaN if there is one.
Tensor median(const Tensor& x);
std::tuple<Tensor, Tensor> median(const Tensor& x, int64_t dim, bool keepdim = false);
/// The value that the share q (from 0 to 1) of all elements does not exceed. `interpolation` says
/// what is between two of them: "linear", "lower", "higher", "nearest" or "midpoint".
Tensor quantile(const Tensor& x, double q, std::optional<int64_t> dim = {}, bool keepdim = false,
                std::string_view interpolation = "linear");
/// One quantile for each element of the vector q, along a new first dimension.
Tensor quantile(const Tensor& x, const Tensor& q, std::optional<int64_t> dim = {},
                bool keepdim = false, std::string_view interpolation = "linear");
/// How many elements are not zero, of all or along dimensions.
Tensor count_nonzero(const Tensor& x, IntArrayRef dims = {});
/// How often each of the numbers 0, 1, 2, ... occurs in a vector, or the sum of its weights. The
/// size depends on values, so it ends a recording.
Tensor bincount(const Tensor& x, const Tensor& weights = {}, int64_t minlength = 0);
/// How many elements lie in each of `bins` equal parts of [min, max], or of the range of x if both
/// are equal. Looks at values then, which ends a recording.
Tensor histc(const Tensor& x, int64_t bins = 100, const Scalar& min = 0, const Scalar& max = 0);
/// The place in a sorted sequence where each value would stand: before equal ones, or behind them
/// if `right`. The sequence is a vector, or has one row for each row of values.
Tensor searchsorted(const Tensor& sorted_sequence, const Tensor& values, bool right = false);
/// The same with the boundaries behind the values.
Tensor bucketize(const Tensor& x, const Tensor& boundaries, bool right = false);
/// The different values in ascending order, for each element the place of its value among them, and
/// how often each occurs. Sizes depend on values, so it ends a recording.
std::tuple<Tensor, Tensor, Tensor> unique(const Tensor& x);

}  // namespace grapnel
