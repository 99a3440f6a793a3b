/// Random fills: the ops, the driver that cuts a fill into pieces, and the methods of Tensor.
#include "grapnel/ops/random.h"

#include <cmath>
#include <limits>
#include <numeric>

#include "grapnel/base/cpu.h"
#include "grapnel/base/philox.h"
#include "grapnel/base/thread_pool.h"
#include "grapnel/ops/defs/random.h"
#include "grapnel/ops/kernels/random_kernel.h"
#include "grapnel/ops/kernels/table.h"
#include "grapnel/ops/loop_nest.h"
#include "grapnel/ops/op_site.h"
#include "grapnel/ops/op_table.h"

namespace grapnel {

namespace {

using kernels::Draw;
using kernels::RandomCall;

/// A multiple of what one block of random bits yields in any type.
constexpr int64_t kBlock = 1024;
constexpr int64_t kGrain = 16 * kBlock;

template <class T>
void draw(const RandomCall& call, int64_t first, int64_t n, T* out) {
  const int64_t block = first / kernels::per_block<T>,
                blocks = (n + kernels::per_block<T> - 1) / kernels::per_block<T>;
#ifdef GRAPNEL_X86_KERNELS
  switch (base::cpu_isa()) {
    case base::Isa::avx512: return kernels::random_kernel<T, IsaAvx512>(call, block, blocks, out);
    case base::Isa::avx2: return kernels::random_kernel<T, IsaAvx2>(call, block, blocks, out);
    case base::Isa::baseline: break;
  }
#endif
  kernels::random_kernel<T, IsaBaseline>(call, block, blocks, out);
}

/// Fills `out` with make(first, n, values), which makes n <= kBlock elements of type T from number
/// `first` on.
template <class T, class Make>
void fill(const Tensor& out, Make make) {
  LoopNest<1> nest(out);
  nest.merge();
  const auto size = static_cast<int64_t>(element_size(out.dtype()));
  const kernels::StoreFn store =
      kernels::table()
          .store[static_cast<int>(out.dtype())][static_cast<int>(compute_type(dtype_v<T>))];
  base::parallel_for(nest.numel, kGrain, [&](int64_t begin, int64_t end) {
    alignas(64) T values[kBlock];
    for (int64_t first = begin; first < end; first += kBlock) {
      const int64_t n = std::min(kBlock, end - first);
      make(first, n, values);
      nest.for_rows(first, first + n, [&](int64_t i, int64_t length) {
        store(values + (i - first), nest.operands[0].data + nest.offset(0, i) * size,
              nest.row_stride(0), length);
      });
    }
  });
}

int digits_of(DType t) { return t == kFloat16 ? 11 : t == kBFloat16 ? 8 : t == kFloat64 ? 53 : 24; }

/// Rounding to a half type may reach the end of the interval, which does not belong to it.
template <class T>
void keep_below(float low, float high, float* values, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    if (!(static_cast<float>(T(values[i])) < high)) values[i] = low;
}

void fill_random(Draw kind, const RandomAttrs& attrs, const Tensor& out) {
  const DType type = out.dtype();
  const RandomCall call{kind,
                        static_cast<uint64_t>(attrs.seed),
                        static_cast<uint64_t>(attrs.offset),
                        attrs.a,
                        attrs.b,
                        digits_of(type)};
  if (type == kFloat64 && kind != Draw::bernoulli) {
    fill<double>(out,
                 [&](int64_t first, int64_t n, double* values) { draw(call, first, n, values); });
    return;
  }
  fill<float>(out, [&](int64_t first, int64_t n, float* values) {
    draw(call, first, n, values);
    if (kind != Draw::uniform || call.a == call.b) return;
    const auto low = static_cast<float>(call.a), high = static_cast<float>(call.b);
    if (type == kFloat16) keep_below<Half>(low, high, values, n);
    if (type == kBFloat16) keep_below<BFloat16>(low, high, values, n);
  });
}

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

void Uniform::run(Inputs, const Attrs& attrs, std::span<Tensor> out) {
  fill_random(Draw::uniform, attrs, out[0]);
}
void Normal::run(Inputs, const Attrs& attrs, std::span<Tensor> out) {
  fill_random(Draw::normal, attrs, out[0]);
}
void Exponential::run(Inputs, const Attrs& attrs, std::span<Tensor> out) {
  fill_random(Draw::exponential, attrs, out[0]);
}
void Bernoulli::run(Inputs, const Attrs& attrs, std::span<Tensor> out) {
  fill_random(Draw::bernoulli, attrs, out[0]);
}

void RandomInts::run(Inputs, const Attrs& attrs, std::span<Tensor> out) {
  check(attrs.low < attrs.high, name, ": no number lies in [", attrs.low, ", ", attrs.high, ").");
  const auto seed = static_cast<uint64_t>(attrs.seed), offset = static_cast<uint64_t>(attrs.offset);
  fill<int64_t>(out[0], [&](int64_t first, int64_t n, int64_t* values) {
    for (int64_t i = 0; i < n; ++i)
      values[i] = base::uniform_int(seed, offset + static_cast<uint64_t>(first + i), 0, attrs.low,
                                    attrs.high);
  });
}

void RandomOrder::run(Inputs, const Attrs& attrs, std::span<Tensor> out) {
  const auto seed = static_cast<uint64_t>(attrs.seed), offset = static_cast<uint64_t>(attrs.offset);
  const int64_t n = out[0].numel();
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), int64_t{0});
  for (int64_t i = 0; i + 1 < n; ++i) {
    const int64_t j = base::uniform_int(seed, offset + static_cast<uint64_t>(i), 0, i, n);
    std::swap(order[static_cast<size_t>(i)], order[static_cast<size_t>(j)]);
  }
  fill<int64_t>(out[0], [&](int64_t first, int64_t count, int64_t* values) {
    std::copy_n(order.data() + first, count, values);
  });
}

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
Tensor& Tensor::bernoulli_(double p) const {
  GRAPNEL_CALL_SITE;
  return random::bernoulli_(*this, p);
}
Tensor& Tensor::random_(int64_t low, int64_t high) const {
  GRAPNEL_CALL_SITE;
  return random::random_(*this, low, high);
}

}  // namespace grapnel
