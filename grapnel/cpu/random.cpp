/// Random fills: the driver that cuts a fill into pieces.
#include "grapnel/ops/defs/random.h"

#include <numeric>

#include "grapnel/base/philox.h"
#include "grapnel/base/thread_pool.h"
#include "grapnel/cpu/kernels/random_kernel.h"
#include "grapnel/cpu/kernels/table.h"
#include "grapnel/cpu/loop_nest.h"
#include "grapnel/cpu/run.h"

namespace grapnel::cpu {

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
  kernels::table().random<T>()(call, block, blocks, out);
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

}  // namespace

template <>
void run<Uniform>(Inputs, const Uniform::Attrs& attrs, std::span<Tensor> out) {
  fill_random(Draw::uniform, attrs, out[0]);
}
template <>
void run<Normal>(Inputs, const Normal::Attrs& attrs, std::span<Tensor> out) {
  fill_random(Draw::normal, attrs, out[0]);
}
template <>
void run<Exponential>(Inputs, const Exponential::Attrs& attrs, std::span<Tensor> out) {
  fill_random(Draw::exponential, attrs, out[0]);
}
template <>
void run<Bernoulli>(Inputs, const Bernoulli::Attrs& attrs, std::span<Tensor> out) {
  fill_random(Draw::bernoulli, attrs, out[0]);
}

template <>
void run<RandomInts>(Inputs, const RandomInts::Attrs& attrs, std::span<Tensor> out) {
  check(attrs.low < attrs.high, RandomInts::name, ": no number lies in [", attrs.low, ", ",
        attrs.high, ").");
  const auto seed = static_cast<uint64_t>(attrs.seed), offset = static_cast<uint64_t>(attrs.offset);
  fill<int64_t>(out[0], [&](int64_t first, int64_t n, int64_t* values) {
    for (int64_t i = 0; i < n; ++i)
      values[i] = base::uniform_int(seed, offset + static_cast<uint64_t>(first + i), 0, attrs.low,
                                    attrs.high);
  });
}

template <>
void run<RandomOrder>(Inputs, const RandomOrder::Attrs& attrs, std::span<Tensor> out) {
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

}  // namespace grapnel::cpu
