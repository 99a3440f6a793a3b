/// Random fills in place, from a given generator or (null) the default one. Methods of Tensor and
/// the factories call these.
#pragma once

#include "grapnel/functions/generator.h"

namespace grapnel::random {

/// In [low, high), for floating-point types.
Tensor& uniform_(const Tensor& self, double low = 0, double high = 1,
                 Generator* generator = nullptr);
Tensor& normal_(const Tensor& self, double mean = 0, double std = 1,
                Generator* generator = nullptr);
Tensor& exponential_(const Tensor& self, double lambda = 1, Generator* generator = nullptr);
/// 1 with probability p, else 0.
Tensor& bernoulli_(const Tensor& self, double p = 0.5, Generator* generator = nullptr);
/// Whole numbers in [low, high), for every type that holds them.
Tensor& random_(const Tensor& self, int64_t low, int64_t high, Generator* generator = nullptr);
/// The numbers 0 to n - 1 in random order.
Tensor& shuffle_(const Tensor& self, Generator* generator = nullptr);

}  // namespace grapnel::random
