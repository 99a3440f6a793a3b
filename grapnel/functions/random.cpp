/// Random fills as users call them: draws are fixed here, from the state of a generator.
#include "grapnel/functions/random.h"

#include <cmath>
#include <cstdint>

#include "grapnel/ops/defs/random.h"
#include "grapnel/ops/op_site.h"
#include "grapnel/ops/op_table.h"

namespace grapnel {

namespace {

template <class D>
Tensor& fill_inplace(const Tensor& self, Generator* generator, typename D::Attrs attrs) {
  const GeneratorState state = (generator ? *generator : default_generator()).advance(self.numel());
  attrs.seed = static_cast<int64_t>(state.seed);
  attrs.offset = static_cast<int64_t>(state.offset);
  const Tensor* inputs[] = {&self};
  return apply_inplace(op_of<D>, inputs, &attrs);
}

void check_floating(std::string_view op, const Tensor& t) {
  check(t.is_floating_point(), op, ": the numbers are fractions, which ", t.dtype(),
        " cannot hold.\nUse a floating-point type, or random_ for whole numbers.");
}

/// The whole numbers that a type holds, as [first, last].
std::pair<int64_t, int64_t> whole_range(DType t) {
  switch (t) {
    case DType::Bool: return {0, 1};
    case DType::UInt8: return {0, 255};
    case DType::Int32: return {INT32_MIN, INT32_MAX};
    case DType::Float16: return {-65504, 65504};
    default: return {INT64_MIN, INT64_MAX};
  }
}

}  // namespace

namespace random {

Tensor& uniform_(const Tensor& self, double low, double high, Generator* generator) {
  GRAPNEL_CALL_SITE;
  check_floating("uniform_", self);
  check(low <= high && std::isfinite(high - low), "uniform_: [", low, ", ", high,
        ") is no interval of finite length.");
  return fill_inplace<Uniform>(self, generator, {.a = low, .b = high});
}
Tensor& normal_(const Tensor& self, double mean, double std, Generator* generator) {
  GRAPNEL_CALL_SITE;
  check_floating("normal_", self);
  check(std >= 0, "normal_: the standard deviation must not be negative, got ", std, ".");
  return fill_inplace<Normal>(self, generator, {.a = mean, .b = std});
}
Tensor& exponential_(const Tensor& self, double lambda, Generator* generator) {
  GRAPNEL_CALL_SITE;
  check_floating("exponential_", self);
  check(lambda > 0, "exponential_: the rate must be positive, got ", lambda, ".");
  return fill_inplace<Exponential>(self, generator, {.a = lambda});
}
Tensor& bernoulli_(const Tensor& self, double p, Generator* generator) {
  GRAPNEL_CALL_SITE;
  check(p >= 0 && p <= 1, "bernoulli_: a probability lies between 0 and 1, got ", p, ".");
  return fill_inplace<Bernoulli>(self, generator, {.a = p});
}
Tensor& random_(const Tensor& self, int64_t low, int64_t high, Generator* generator) {
  GRAPNEL_CALL_SITE;
  check(low < high, "random_: no number lies in [", low, ", ", high, ").");
  const auto [first, last] = whole_range(self.dtype());
  check(low >= first && high - 1 <= last, "random_: [", low, ", ", high, ") goes beyond what ",
        self.dtype(), " holds, ", first, " to ", last, ".");
  return fill_inplace<RandomInts>(self, generator, {.low = low, .high = high});
}
Tensor& shuffle_(const Tensor& self, Generator* generator) {
  GRAPNEL_CALL_SITE;
  return fill_inplace<RandomOrder>(self, generator, {});
}

}  // namespace random

Tensor& Tensor::uniform_(double low, double high) const {
  GRAPNEL_CALL_SITE;
  return random::uniform_(*this, low, high);
}
Tensor& Tensor::normal_(double mean, double std) const {
  GRAPNEL_CALL_SITE;
  return random::normal_(*this, mean, std);
}
Tensor& Tensor::exponential_(double lambda) const {
  GRAPNEL_CALL_SITE;
  return random::exponential_(*this, lambda);
}
Tensor& Tensor::random_(int64_t high) const {
  GRAPNEL_CALL_SITE;
  return random::random_(*this, 0, high);
}
Tensor& Tensor::random_() const {
  GRAPNEL_CALL_SITE;
  // Numbers that the type holds exactly, as PyTorch has it.
  const auto digits = [](DType t) {
    return t == kFloat64 ? 53 : t == kFloat32 ? 24 : t == kFloat16 ? 11 : 8;
  };
  const int64_t high = is_floating_point() ? (int64_t{1} << digits(dtype())) + 1
                       : dtype() == kInt64 ? INT64_MAX
                                           : whole_range(dtype()).second + 1;
  return random::random_(*this, 0, high);
}
Tensor& Tensor::bernoulli_(double p) const {
  GRAPNEL_CALL_SITE;
  return random::bernoulli_(*this, p);
}
Tensor& Tensor::random_(int64_t low, int64_t high) const {
  GRAPNEL_CALL_SITE;
  return random::random_(*this, low, high);
}

}  // namespace grapnel
