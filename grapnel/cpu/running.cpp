/// Running sums and products, each line from one end to the other.
#include "grapnel/cpu/lines.h"
#include "grapnel/cpu/raw.h"
#include "grapnel/ops/defs/sort.h"

namespace grapnel::cpu {

namespace {

/// Computes each line in the compute type, from the first element to the last, or the other way
/// round: step(before, input, output, has_before) writes the output.
template <int K, class Fn>
void run_lines(std::array<Tensor, K> inputs, const Tensor& out, int dim, bool backwards, Fn step) {
  if (out.numel() == 0) return;
  const DType wide = dtype_of(compute_type(out.dtype()));
  const Tensor result = result_buffer(out, wide);
  visit_compute(out.dtype(), [&]<class T>() {
    std::array<Tensor, K + 1> tensors;
    tensors[0] = result;
    for (size_t k = 0; k < K; ++k) tensors[k + 1] = converted(inputs[k], wide);
    for_lines<K + 1>(out.shape(), dim, tensors, LineOrder::kept, [&](const LinePiece<K + 1>& p) {
      p.for_each([&](int64_t j, int64_t n) {
        const int64_t i = backwards ? p.end - 1 - n : n, before = backwards ? i + 1 : i - 1;
        p.template at<T>(0, j, i) =
            step(p, j, i, n == 0 ? T(0) : p.template at<T>(0, j, before), n == 0);
      });
    });
  });
  store_result(out, result);
}

}  // namespace

template <>
void run<Cumsum>(Inputs in, const Cumsum::Attrs& a, std::span<Tensor> out) {
  run_lines<1>({*in[0]}, out[0], static_cast<int>(a.dim), a.backwards,
               []<class T>(const auto& p, int64_t j, int64_t i, T before, bool first) {
                 const T x = p.template at<T>(1, j, i);
                 return first ? x : (wrapping(before) + wrapping(x)).v;
               });
}

template <>
void run<Cumprod>(Inputs in, const Cumprod::Attrs& a, std::span<Tensor> out) {
  run_lines<1>({*in[0]}, out[0], static_cast<int>(a.dim), false,
               []<class T>(const auto& p, int64_t j, int64_t i, T before, bool first) {
                 const T x = p.template at<T>(1, j, i);
                 return first ? x : (wrapping(before) * wrapping(x)).v;
               });
}

template <>
void run<Recurrence>(Inputs in, const Recurrence::Attrs& a, std::span<Tensor> out) {
  run_lines<2>({*in[0], *in[1]}, out[0], static_cast<int>(a.dim), a.backwards,
               [&]<class T>(const auto& p, int64_t j, int64_t i, T before, bool first) {
                 const T b = p.template at<T>(1, j, i);
                 return first ? b : b + p.template at<T>(2, j, a.backwards ? i + 1 : i) * before;
               });
}

}  // namespace grapnel::cpu
