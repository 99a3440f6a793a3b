#include "grapnel/nn/attention.h"

#include <cmath>
#include <limits>

#include "grapnel/base/checked.h"
#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"
#include "grapnel/nn/init.h"

namespace grapnel::nn {

namespace {

/// A mask as numbers to add to scores.
Tensor additive(const Tensor& mask, DType dtype) {
  if (mask.dtype() != kBool) return mask.to(dtype);
  return masked_fill(zeros(mask.shape(), mask.options().dtype(dtype)), mask,
                     -std::numeric_limits<double>::infinity());
}

Tensor add_defined(const Tensor& a, const Tensor& b) {
  return !a.defined() ? b : !b.defined() ? a : a + b;
}

/// `mask` with columns for the keys that were added behind the caller's.
Tensor widened(const Tensor& mask, int64_t keys) {
  if (!mask.defined() || mask.size(-1) == keys) return mask;
  Shape extra = mask.shape();
  extra[extra.size() - 1] = keys - mask.size(-1);
  return cat({mask, zeros(extra, mask.options())}, -1);
}

}  // namespace

MultiheadAttentionImpl::MultiheadAttentionImpl(const MultiheadAttentionOptions& options_)
    : options(options_) {
  check(options.num_heads() > 0 && options.embed_dim() > 0 &&
            options.embed_dim() % options.num_heads() == 0,
        "MultiheadAttention: num_heads must divide embed_dim, got ", options.num_heads(), " and ",
        options.embed_dim(), ".");
  MultiheadAttentionImpl::reset();
}

void MultiheadAttentionImpl::reset() {
  const int64_t e = options.embed_dim(), k = options.kdim().value_or(e),
                v = options.vdim().value_or(e);
  const bool one_weight = k == e && v == e;
  const int64_t rows = checked_mul<int64_t>(3, e, "MultiheadAttention");
  in_proj_weight = register_parameter("in_proj_weight", one_weight ? empty({rows, e}) : Tensor());
  q_proj_weight = register_parameter("q_proj_weight", one_weight ? Tensor() : empty({e, e}));
  k_proj_weight = register_parameter("k_proj_weight", one_weight ? Tensor() : empty({e, k}));
  v_proj_weight = register_parameter("v_proj_weight", one_weight ? Tensor() : empty({e, v}));
  in_proj_bias = register_parameter("in_proj_bias", options.bias() ? empty({rows}) : Tensor());
  bias_k = register_parameter("bias_k", options.add_bias_kv() ? empty({1, 1, e}) : Tensor());
  bias_v = register_parameter("bias_v", options.add_bias_kv() ? empty({1, 1, e}) : Tensor());
  out_proj = register_module("out_proj", Linear(LinearOptions(e, e).bias(options.bias())));
  reset_parameters();
}

void MultiheadAttentionImpl::reset_parameters() {
  for (const Tensor& w : {in_proj_weight, q_proj_weight, k_proj_weight, v_proj_weight})
    if (w.defined()) init::xavier_uniform_(w);
  if (in_proj_bias.defined()) {
    init::zeros_(in_proj_bias);
    init::zeros_(out_proj->bias);
  }
  if (bias_k.defined()) init::xavier_normal_(bias_k);
  if (bias_v.defined()) init::xavier_normal_(bias_v);
}

void MultiheadAttentionImpl::pretty_print(std::ostream& stream) const {
  stream << "grapnel::nn::MultiheadAttention(embed_dim=" << options.embed_dim()
         << ", num_heads=" << options.num_heads() << ')';
}

std::tuple<Tensor, Tensor, Tensor> MultiheadAttentionImpl::project(const Tensor& query,
                                                                   const Tensor& key,
                                                                   const Tensor& value) const {
  const int64_t e = options.embed_dim();
  if (in_proj_weight.defined() && query.is_same(key) && key.is_same(value)) {
    // Self-attention: one product for all three.
    const auto parts = linear(query, in_proj_weight, in_proj_bias).chunk(3, -1);
    return {parts[0], parts[1], parts[2]};
  }
  const auto part = [&](int64_t i, const Tensor& own) {
    return own.defined() ? own : in_proj_weight.narrow(0, i * e, e);
  };
  const auto bias = [&](int64_t i) {
    return in_proj_bias.defined() ? in_proj_bias.narrow(0, i * e, e) : Tensor();
  };
  return {linear(query, part(0, q_proj_weight), bias(0)),
          linear(key, part(1, k_proj_weight), bias(1)),
          linear(value, part(2, v_proj_weight), bias(2))};
}

std::tuple<Tensor, Tensor> MultiheadAttentionImpl::forward(
    const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& key_padding_mask,
    bool need_weights, const Tensor& attn_mask, bool average_attn_weights) {
  const int64_t dims = query.dim(), batch_dim = options.batch_first() ? 0 : 1;
  check((dims == 2 || dims == 3) && key.dim() == dims && value.dim() == dims,
        "MultiheadAttention: query, key and value must all be [length, batch, features] or all "
        "[length, "
        "features], got shapes ",
        query.shape(), ", ", key.shape(), " and ", value.shape(), ".");
  if (dims == 2) {
    // The same tensor three times stays the same tensor, which project() looks at.
    const Tensor q = query.unsqueeze(batch_dim),
                 k = key.is_same(query) ? q : key.unsqueeze(batch_dim);
    const Tensor v = value.is_same(query) ? q : value.is_same(key) ? k : value.unsqueeze(batch_dim);
    auto [out, weights] =
        forward(q, k, v, key_padding_mask.defined() ? key_padding_mask.unsqueeze(0) : Tensor(),
                need_weights, attn_mask, average_attn_weights);
    return {out.squeeze(batch_dim), weights.defined() ? weights.squeeze(0) : weights};
  }
  check(key.size(1 - batch_dim) == value.size(1 - batch_dim),
        "MultiheadAttention: there must be one value per key, got shapes ", key.shape(), " and ",
        value.shape(), ".");

  auto [q, k, v] = project(query, key, value);
  if (!options.batch_first()) q = q.transpose(0, 1), k = k.transpose(0, 1), v = v.transpose(0, 1);
  const int64_t n = q.size(0), heads = options.num_heads(), head_dim = options.embed_dim() / heads,
                length = q.size(1);
  if (bias_k.defined()) {
    k = cat({k, bias_k.expand({n, 1, options.embed_dim()})}, 1);
    v = cat({v, bias_v.expand({n, 1, options.embed_dim()})}, 1);
  }
  if (options.add_zero_attn()) {
    const Tensor zero = zeros({n, 1, options.embed_dim()}, k.options());
    k = cat({k, zero}, 1);
    v = cat({v, zero}, 1);
  }
  const int64_t keys = k.size(1);
  const auto split = [&](const Tensor& t) {
    return t.unflatten(2, {heads, head_dim}).transpose(1, 2);
  };  // [N, H, length, head_dim]
  q = split(q), k = split(k), v = split(v);

  Tensor mask = attn_mask.defined() ? additive(attn_mask, q.dtype()) : Tensor();
  if (mask.defined()) {
    check(mask.dim() == 2 || mask.dim() == 3, "MultiheadAttention: attn_mask must be [", length,
          ", ", key.size(1 - batch_dim), "] or have one such mask per example and head, got shape ",
          attn_mask.shape(), ".");
    mask = widened(mask.dim() == 3 ? mask.unflatten(0, {n, heads}) : mask, keys);
  }
  if (key_padding_mask.defined()) {
    check(key_padding_mask.dim() == 2 && key_padding_mask.size(0) == n,
          "MultiheadAttention: key_padding_mask must be [batch, keys], got shape ",
          key_padding_mask.shape(), " for a batch of ", n, ".");
    mask = add_defined(mask,
                       widened(additive(key_padding_mask, q.dtype()), keys).view({n, 1, 1, keys}));
  }

  const double drop = is_training() ? options.dropout() : 0;
  Tensor out, weights;
  if (need_weights) {
    const Tensor scores = matmul(q * (1 / std::sqrt(static_cast<double>(head_dim))), k.mT());
    weights = dropout(softmax(add_defined(scores, mask), -1), drop, true);
    out = matmul(weights, v);
    if (average_attn_weights) weights = weights.mean({1});
  } else {
    out = scaled_dot_product_attention(q, k, v, mask, drop);
  }
  out = out_proj(out.transpose(1, 2).reshape({n, length, options.embed_dim()}));
  return {options.batch_first() ? out : out.transpose(0, 1), weights};
}

}  // namespace grapnel::nn
