/// Attention: one op where a mask is at most causal, else from matmul and softmax. q [..., L, E], k
/// [..., S, E], v [..., S, D]; L queries, S keys.
#include "grapnel/ops/defs/attention.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "grapnel/base/thread_pool.h"
#include "grapnel/ops/autocast.h"
#include "grapnel/ops/dense.h"
#include "grapnel/ops/factories.h"
#include "grapnel/ops/functions.h"
#include "grapnel/ops/kernels/attention.h"
#include "grapnel/ops/op_site.h"
#include "grapnel/ops/op_table.h"

namespace grapnel {

namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

// --- one head after another on raw memory ---

/// An operand [B, H, rows, features] whose features lie side by side.
struct Heads {
  Tensor tensor;
  int64_t batch = 0, head = 0, row = 0;

  static Heads operand(const Tensor& t, DType wide) { return of(readable(t, wide), 1, 2); }
  /// [B, rows, H, features]
  static Heads side_by_side(const Tensor& t, DType wide) { return of(readable(t, wide), 2, 1); }

  kernels::AttentionRows at(int64_t b, int64_t h, int64_t r = 0) const {
    const int64_t offset = b * batch + h * head + r * row;
    return {tensor.impl().data() + offset * static_cast<int64_t>(tensor.element_size()), row};
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
  if (buffer.numel() > 0) std::memset(buffer.impl().data(), 0, buffer.nbytes());
  store_result(out, buffer);
}

// --- by other ops ---

/// The weights of each key for each query.
Tensor plain_weights(const Tensor& query, const Tensor& key, double scale, bool causal) {
  const Tensor scores = matmul(query * scale, key.mT());
  if (!causal) return softmax(scores, -1);
  // Query i sees keys 0 to i, so none sees nothing.
  const Tensor seen = ones({query.size(-2), key.size(-2)}, kBool).tril();
  return softmax(masked_fill(scores, logical_not(seen), kNever), -1);
}

/// Softmax over the keys, where a query that may look at nothing gets zeros instead of 0 / 0.
Tensor weights_where(const Tensor& scores, const Tensor& nothing) {
  return masked_fill(softmax(masked_fill(scores, nothing, 0.0), -1), nothing, 0.0);
}

/// Whether the op serves: equal batches and types, and nobody asks for other types than these.
bool is_plain(const Tensor& q, const Tensor& k, const Tensor& v) {
  if (q.dim() > 4 || k.dim() != q.dim() || v.dim() != q.dim() || Autocast::is_enabled())
    return false;
  for (int i = 0; i < q.dim() - 2; ++i)
    if (k.shape()[i] != q.shape()[i] || v.shape()[i] != q.shape()[i]) return false;
  return is_floating(q.dtype()) && k.dtype() == q.dtype() && v.dtype() == q.dtype();
}

Tensor with_four_dims(Tensor t) {
  while (t.dim() < 4) t = t.unsqueeze(t.dim() == 3 ? 1 : 0);
  return t;
}

Tensor one_op(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionAttrs& attrs) {
  Tensor out = apply<Attention>(attrs, with_four_dims(q), with_four_dims(k), with_four_dims(v))
                   .transpose(1, 2);
  if (q.dim() < 4) out = out.squeeze(1);
  return q.dim() < 3 ? out.squeeze(0) : out;
}

}  // namespace

// --- the op ---

namespace {

TensorSpec result_spec(std::string_view op, const Tensor& q, const Tensor& k, const Tensor& v) {
  check(is_floating(q.dtype()), op, ": not defined for ", q.dtype(),
        ".\nConvert first: x.to(kFloat32).");
  check(q.dim() == 4 && k.shape() == Shape{q.size(0), q.size(1), k.size(-2), q.size(3)} &&
            v.shape() == Shape{q.size(0), q.size(1), k.size(-2), v.size(-1)},
        op, ": needs q [B, H, L, E], k [B, H, S, E] and v [B, H, S, D], got ", q.shape(), ", ",
        k.shape(), " and ", v.shape(), ".");
  return {{q.size(0), q.size(2), q.size(1), v.size(3)}, q.dtype()};
}

}  // namespace

void Attention::infer(Inputs in, const Attrs&, Specs& out) {
  out.push_back(result_spec(name, *in[0], *in[1], *in[2]));
}

void Attention::run(Inputs in, const Attrs& attrs, std::span<Tensor> out) {
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

Grads Attention::grad(const Saved& s, const Tensor& g) {
  const Outputs grads =
      apply_all<AttentionBackward>(s.attrs<Attrs>(), g, s.input(0), s.input(1), s.input(2));
  return {grads[0].transpose(1, 2), grads[1].transpose(1, 2), grads[2].transpose(1, 2)};
}

Samples Attention::samples() {
  const auto of = [](int64_t queries, int64_t keys, Attrs attrs) {
    return sample({sample_tensor({2, 2, queries, 3}, -1, 1),
                   sample_tensor({2, 2, keys, 3}, -1, 1.5), sample_tensor({2, 2, keys, 2})},
                  attrs);
  };
  return {of(3, 4, {.scale = 0.7, .causal = false}), of(4, 3, {.scale = 0.7, .causal = true}),
          of(2, 4, {.scale = -0.5, .causal = true})};
}

// --- its gradient ---

void AttentionBackward::infer(Inputs in, const Attrs&, Specs& out) {
  const TensorSpec result = result_spec(name, *in[1], *in[2], *in[3]);
  check(in[0]->shape() == result.sizes && in[0]->dtype() == result.dtype, name, ": the result is ",
        result.dtype, result.sizes, ", its gradient ", in[0]->dtype(), in[0]->shape(), ".");
  for (const Tensor* t : in.subspan(1))
    out.push_back({{t->size(0), t->size(2), t->size(1), t->size(3)}, t->dtype()});
}

void AttentionBackward::run(Inputs in, const Attrs& attrs, std::span<Tensor> out) {
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

/// With w the weights, d = g @ v.mT and s = w * (d - sum(w * d)), the outputs are scale * s @ k,
/// scale * s.mT @ q and w.mT @ g.
Grads AttentionBackward::grad(const Saved& saved, const Grads& incoming) {
  const Attrs& attrs = saved.attrs<Attrs>();
  const Tensor g = saved.input(0).transpose(1, 2), q = saved.input(1), k = saved.input(2),
               v = saved.input(3);
  const auto along = [](const Tensor& t) { return t.sum(-1, true); };
  const auto add = [](Tensor& to, const Tensor& more) { to = to.defined() ? to + more : more; };
  const Tensor w = plain_weights(q, k, attrs.scale, attrs.causal), d = matmul(g, v.mT()),
               centred = d - along(w * d), s = w * centred * attrs.scale;

  Tensor gg, gq, gk, gv, gw, gs;  // gs: of s, with the scale
  if (incoming[0].defined()) {
    const Tensor u = incoming[0].transpose(1, 2);
    add(gs, matmul(u, k.mT()) * attrs.scale);
    add(gk, matmul(s.mT(), u));
  }
  if (incoming[1].defined()) {
    const Tensor u = incoming[1].transpose(1, 2);
    add(gs, matmul(q, u.mT()) * attrs.scale);
    add(gq, matmul(s, u));
  }
  if (incoming[2].defined()) {
    const Tensor u = incoming[2].transpose(1, 2);
    add(gw, matmul(g, u.mT()));
    add(gg, matmul(w, u));
  }
  if (gs.defined()) {
    const Tensor sum = along(gs * w), gd = w * (gs - sum);
    add(gw, gs * centred - d * sum);
    add(gg, matmul(gd, v));
    add(gv, matmul(gd.mT(), g));
  }
  const Tensor scores = w * (gw - along(gw * w)) * attrs.scale;
  add(gq, matmul(scores, k));
  add(gk, matmul(scores.mT(), q));
  return {gg.defined() ? gg.transpose(1, 2) : gg, gq, gk, gv};
}

Samples AttentionBackward::samples() {
  Samples samples = Attention::samples();
  for (Sample& s : samples)
    s.inputs.insert(s.inputs.begin(), sample_tensor({s.inputs[0].size(0), s.inputs[0].size(2),
                                                     s.inputs[0].size(1), s.inputs[2].size(3)},
                                                    -1, 2));
  return samples;
}

// --- the function ---

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const Tensor& attn_mask, double dropout_p, bool is_causal,
                                    std::optional<double> scale) {
  GRAPNEL_CALL_SITE;
  check(query.dim() >= 2 && key.dim() >= 2 && value.dim() >= 2,
        "scaled_dot_product_attention: query, key and value need at least two dimensions, ",
        "got shapes ", query.shape(), ", ", key.shape(), " and ", value.shape(), ".");
  check(query.size(-1) == key.size(-1),
        "scaled_dot_product_attention: query and key must have equally many features, got shapes ",
        query.shape(), " and ", key.shape(), ".");
  check(key.size(-2) == value.size(-2),
        "scaled_dot_product_attention: there must be one value per key, got shapes ", key.shape(),
        " and ", value.shape(), ".");
  check(
      !is_causal || !attn_mask.defined(),
      "scaled_dot_product_attention: is_causal is a mask of its own; pass either it or attn_mask.");

  const double factor = scale ? *scale : 1 / std::sqrt(static_cast<double>(query.size(-1)));
  if (!attn_mask.defined()) {
    if (dropout_p == 0 && is_plain(query, key, value))
      return one_op(query, key, value, {.scale = factor, .causal = is_causal});
    return matmul(dropout(plain_weights(query, key, factor, is_causal), dropout_p, true), value);
  }
  const Tensor scores = matmul(query * factor, key.mT());
  Tensor weights;
  if (attn_mask.dtype() == kBool) {
    weights = weights_where(masked_fill(scores, logical_not(attn_mask), kNever),
                            logical_not(attn_mask.any(-1, true)));
  } else {
    check(attn_mask.dtype() == query.dtype(),
          "scaled_dot_product_attention: attn_mask must be bool or ", query.dtype(), ", got ",
          attn_mask.dtype(), ".");
    weights = weights_where(scores + attn_mask, attn_mask.detach().amax({-1}, true) == kNever);
  }
  return matmul(dropout(weights, dropout_p, true), value);
}

}  // namespace grapnel
