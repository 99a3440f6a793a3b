/// Attention: one op where a mask is at most causal, else from matmul and softmax. q [..., L, E], k
/// [..., S, E], v [..., S, D]; L queries, S keys.
#include "grapnel/ops/defs/attention.h"

#include <cmath>

#include "grapnel/functions/functions.h"
#include "grapnel/ops/autocast.h"
#include "grapnel/ops/op_site.h"
#include "grapnel/ops/op_table.h"

namespace grapnel {

namespace {

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
    return matmul(dropout(attention_weights(query, key, factor, is_causal), dropout_p, true),
                  value);
  }
  const Tensor scores = matmul(query * factor, key.mT());
  Tensor weights;
  if (attn_mask.dtype() == kBool) {
    weights = weights_where(masked_fill(scores, logical_not(attn_mask), kUnseenScore),
                            logical_not(attn_mask.any(-1, true)));
  } else {
    check(attn_mask.dtype() == query.dtype(),
          "scaled_dot_product_attention: attn_mask must be bool or ", query.dtype(), ", got ",
          attn_mask.dtype(), ".");
    weights =
        weights_where(scores + attn_mask, attn_mask.detach().amax({-1}, true) == kUnseenScore);
  }
  return matmul(dropout(weights, dropout_p, true), value);
}

}  // namespace grapnel
