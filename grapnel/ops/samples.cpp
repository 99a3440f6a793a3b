/// Inputs for the op sweep: few, deterministic, and without ties.
#include "grapnel/ops/define.h"
#include "grapnel/ops/vectors.h"

namespace grapnel {

namespace {

Tensor tensor_of(std::initializer_list<double> values, const Shape& sizes) {
  return from_vector(std::vector<double>(values), sizes);
}

}  // namespace

Samples sample_values(std::initializer_list<double> values) {
  return {{{tensor_of(values, {static_cast<int64_t>(values.size())})}, {}}};
}

Samples sample_pairs(std::initializer_list<double> a, std::initializer_list<double> b) {
  const auto n = static_cast<int64_t>(a.size()), m = static_cast<int64_t>(b.size());
  return {{{tensor_of(a, {n}), tensor_of(b, {m})}, {}},
          {{tensor_of(a, {n, 1}), tensor_of(b, {m})}, {}}};
}

Tensor sample_tensor(IntArrayRef sizes, double low, double high) {
  std::vector<double> out(static_cast<size_t>(checked_numel(sizes, "sample_tensor")));
  // Multiples of the golden ratio, modulo 1, are as far from each other as so many numbers can be.
  constexpr double golden = 0.618033988749894848;
  double fraction = 0;
  for (double& value : out) {
    fraction += golden;
    if (fraction >= 1) fraction -= 1;
    value = low + (high - low) * fraction;
  }
  return from_vector(out, Shape(sizes));
}

}  // namespace grapnel
