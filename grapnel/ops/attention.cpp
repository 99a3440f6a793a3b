/// Attention from matmul and softmax. q [..., L, E], k [..., S, E], v [..., S, D]; L queries, S keys.
#include <cmath>
#include <limits>

#include "grapnel/ops/factories.h"
#include "grapnel/ops/functions.h"
#include "grapnel/ops/op_site.h"

namespace grapnel {

namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

/// Softmax over the keys, where a query that may look at nothing gets zeros instead of 0 / 0.
Tensor weights_where(const Tensor& scores, const Tensor& nothing) {
  return masked_fill(softmax(masked_fill(scores, nothing, 0.0), -1), nothing, 0.0);
}

}  // namespace

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& attn_mask, double dropout_p,
                                    bool is_causal, std::optional<double> scale) {
  GRAPNEL_CALL_SITE;
  check(query.dim() >= 2 && key.dim() >= 2 && value.dim() >= 2, "scaled_dot_product_attention: query, key and value need at least two dimensions, ",
        "got shapes ", query.shape(), ", ", key.shape(), " and ", value.shape(), ".");
  check(query.size(-1) == key.size(-1), "scaled_dot_product_attention: query and key must have equally many features, got shapes ", query.shape(),
        " and ", key.shape(), ".");
  check(key.size(-2) == value.size(-2), "scaled_dot_product_attention: there must be one value per key, got shapes ", key.shape(), " and ",
        value.shape(), ".");
  check(!is_causal || !attn_mask.defined(), "scaled_dot_product_attention: is_causal is a mask of its own; pass either it or attn_mask.");

  const double factor = scale ? *scale : 1 / std::sqrt(static_cast<double>(query.size(-1)));
  const Tensor scores = matmul(query * factor, key.mT());
  Tensor weights;
  if (is_causal) {
    // Query i sees keys 0 to i, so none sees nothing.
    const Tensor seen = ones({query.size(-2), key.size(-2)}, kBool).tril();
    weights = softmax(masked_fill(scores, logical_not(seen), kNever), -1);
  } else if (!attn_mask.defined()) {
    weights = softmax(scores, -1);
  } else if (attn_mask.dtype() == kBool) {
    weights = weights_where(masked_fill(scores, logical_not(attn_mask), kNever), logical_not(attn_mask.any(-1, true)));
  } else {
    check(attn_mask.dtype() == query.dtype(), "scaled_dot_product_attention: attn_mask must be bool or ", query.dtype(), ", got ", attn_mask.dtype(), ".");
    weights = weights_where(scores + attn_mask, attn_mask.detach().amax({-1}, true) == kNever);
  }
  return matmul(dropout(weights, dropout_p, true), value);
}

}  // namespace grapnel
