/// Attention on the CPU: heads, and parts of their queries, are shared out among threads.
#include "grapnel/ops/defs/attention.h"

#include <algorithm>
#include <cstring>

#include "grapnel/base/thread_pool.h"
#include "grapnel/cpu/dense.h"
#include "grapnel/cpu/kernels/attention.h"
#include "grapnel/cpu/run.h"

namespace grapnel::cpu {

namespace {

/// An operand [B, H, rows, features] whose features lie side by side.
struct Heads {
  Tensor tensor;
  int64_t batch = 0, head = 0, row = 0;

  static Heads operand(const Tensor& t, DType wide) { return of(readable(t, wide), 1, 2); }
  /// [B, rows, H, features]
  static Heads side_by_side(const Tensor& t, DType wide) { return of(readable(t, wide), 2, 1); }

  kernels::AttentionRows at(int64_t b, int64_t h, int64_t r = 0) const {
    const int64_t offset = b * batch + h * head + r * row;
    return {tensor.impl().host() + offset * static_cast<int64_t>(tensor.element_size()), row};
  }

 private:
  static Tensor readable(const Tensor& t, DType wide) {
    return t.dtype() == wide && (t.stride(-1) == 1 || t.size(-1) == 1) ? t : dense(t, wide);
  }
  static Heads of(const Tensor& t, int head, int row) {
    return {t, t.stride(0), t.stride(head), t.stride(row)};
  }
};

kernels::AttentionArgs sizes_of(const Tensor& q, const Tensor& k, const Tensor& v,
                                const AttentionAttrs& attrs) {
  return {.queries = q.size(2),
          .keys = k.size(2),
          .features = q.size(3),
          .value_features = v.size(3),
          .scale = attrs.scale,
          .causal = attrs.causal};
}

/// For a result that no key reached.
void store_zeros(const Tensor& out, const Tensor& buffer) {
  if (buffer.numel() > 0) std::memset(buffer.impl().host(), 0, buffer.nbytes());
  store_result(out, buffer);
}

}  // namespace

template <>
void run<Attention>(Inputs in, const Attention::Attrs& attrs, std::span<Tensor> out) {
  if (out[0].numel() == 0) return;
  const DType wide = dtype_of(compute_type(out[0].dtype()));
  const Tensor result = result_buffer(out[0], wide);
  const kernels::AttentionArgs sizes = sizes_of(*in[0], *in[1], *in[2], attrs);
  if (sizes.keys == 0) return store_zeros(out[0], result);
  const Heads q = Heads::operand(*in[0], wide), k = Heads::operand(*in[1], wide),
              v = Heads::operand(*in[2], wide), y = Heads::side_by_side(result, wide);
  // Many queries of one head are several pieces of work.
  constexpr int64_t kQueries = 256;
  const int64_t heads = q.tensor.size(1), parts = (sizes.queries + kQueries - 1) / kQueries;
  base::parallel_for(q.tensor.size(0) * heads * parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t b = i / parts / heads, h = i / parts % heads, first = i % parts * kQueries;
      kernels::AttentionArgs args = sizes;
      args.queries = std::min(kQueries, sizes.queries - first);
      args.first_query = first;
      args.q = q.at(b, h, first);
      args.k = k.at(b, h);
      args.v = v.at(b, h);
      args.out = y.at(b, h, first);
      kernels::attention(compute_type(wide), args);
    }
  });
  store_result(out[0], result);
}

template <>
void run<AttentionBackward>(Inputs in, const AttentionBackward::Attrs& attrs,
                            std::span<Tensor> out) {
  const kernels::AttentionArgs sizes = sizes_of(*in[1], *in[2], *in[3], attrs);
  const DType wide = dtype_of(compute_type(in[0]->dtype()));
  Tensor results[3];
  for (size_t i = 0; i < 3; ++i) results[i] = result_buffer(out[i], wide);
  if (in[0]->numel() == 0 || sizes.keys == 0) {
    for (size_t i = 0; i < 3; ++i) store_zeros(out[i], results[i]);
    return;
  }
  const Heads g = Heads::side_by_side(*in[0], wide), q = Heads::operand(*in[1], wide),
              k = Heads::operand(*in[2], wide), v = Heads::operand(*in[3], wide);
  const Heads dq = Heads::side_by_side(results[0], wide),
              dk = Heads::side_by_side(results[1], wide),
              dv = Heads::side_by_side(results[2], wide);
  const int64_t heads = q.tensor.size(1);
  base::parallel_for(q.tensor.size(0) * heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t b = i / heads, h = i % heads;
      kernels::AttentionArgs args = sizes;
      args.q = q.at(b, h);
      args.k = k.at(b, h);
      args.v = v.at(b, h);
      args.g = g.at(b, h);
      args.dq = dq.at(b, h);
      args.dk = dk.at(b, h);
      args.dv = dv.at(b, h);
      kernels::attention_backward(compute_type(wide), args);
    }
  });
  for (size_t i = 0; i < 3; ++i) store_result(out[i], results[i]);
}

}  // namespace grapnel::cpu
