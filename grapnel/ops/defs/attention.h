/// Attention as one op: the scores of a block of queries live in the cache and never in memory, and
/// a causal block is no wider than it sees.
#pragma once

#include <limits>

#include "grapnel/functions/functions.h"
#include "grapnel/ops/define.h"

namespace grapnel {

struct AttentionAttrs {
  double scale = 1;
  bool causal = false;  ///< query i sees keys 0 to i
  static void visit(auto& self, auto&& v) {
    v("scale", self.scale);
    v("causal", self.causal);
  }
};

/// softmax(scale * q @ k.mT) @ v of q [B, H, L, E], k [B, H, S, E] and v [B, H, S, D], given as [B,
/// L, H, D]: the heads of a token side by side, as the layer after attention reads them. Narrow
/// types are computed in f32 and rounded once.
struct Attention : Call<3> {
  static constexpr std::string_view name = "attention";
  using Attrs = AttentionAttrs;
  static void infer(Inputs in, const Attrs&, Specs& out);
  static constexpr SaveMask kAll = input(0) | input(1) | input(2);
  static constexpr SaveMask saves[] = {kAll, kAll, kAll};
  static Grads grad(const Saved& s, const Tensor& g);
  static Outputs lower(Inputs in, const Attrs& a);
  static Samples samples();
};

/// Takes the gradient of the result, q, k and v; gives the gradients of q, k and v, heads side by
/// side. Weights are computed again: that is less work than fetching them from memory, which they
/// would fill with the square of the length.
struct AttentionBackward : Call<4> {
  static constexpr std::string_view name = "attention_backward";
  using Attrs = AttentionAttrs;
  static void infer(Inputs in, const Attrs&, Specs& out);
  static constexpr SaveMask kAll = input(0) | input(1) | input(2) | input(3);
  static constexpr SaveMask saves[] = {kAll, kAll, kAll, kAll};
  static Grads grad(const Saved& s, const Grads& g);
  static Outputs lower(Inputs in, const Attrs& a);
  static Samples samples();
};

// --- by other ops, for its second gradient and for other masks ---

/// The score of a key that a query must not see.
inline constexpr double kUnseenScore = -std::numeric_limits<double>::infinity();
/// The weights of each key for each query.
Tensor attention_weights(const Tensor& query, const Tensor& key, double scale, bool causal);

using AttentionOps = OpList<Attention, AttentionBackward>;

}  // namespace grapnel
