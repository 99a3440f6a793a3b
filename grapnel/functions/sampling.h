/// Random numbers from distributions that tensors describe. They have no gradient.
#pragma once

#include <optional>

#include "grapnel/functions/generator.h"

namespace grapnel {

/// Normal numbers, each with the mean and the standard deviation at its place.
Tensor normal(const Tensor& mean, double std = 1, std::optional<Generator> generator = {});
Tensor normal(const Tensor& mean, const Tensor& std, std::optional<Generator> generator = {});
Tensor normal(double mean, const Tensor& std, std::optional<Generator> generator = {});
/// Normal numbers of one mean and standard deviation.
Tensor normal(double mean, double std, IntArrayRef sizes, std::optional<Generator> generator = {},
              const TensorOptions& options = {});
/// 1 with the probability at its place, else 0.
Tensor bernoulli(const Tensor& p, std::optional<Generator> generator = {});
/// 1 with probability p, else 0, in the shape of x.
Tensor bernoulli(const Tensor& x, double p, std::optional<Generator> generator = {});
/// Positions, each drawn with a probability in proportion to the weight there: from a vector, or
/// from each row of a matrix. Looks at the weights, which ends a recording.
Tensor multinomial(const Tensor& weights, int64_t num_samples, bool replacement = false,
                   std::optional<Generator> generator = {});

}  // namespace grapnel
