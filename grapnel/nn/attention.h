/// MultiheadAttention. Shape letters: N batch, L queries, S keys, E embed_dim, H heads.
#pragma once

#include <optional>
#include <tuple>

#include "grapnel/base/arg.h"
#include "grapnel/nn/linear.h"

namespace grapnel::nn {

struct MultiheadAttentionOptions {
  MultiheadAttentionOptions(int64_t embed_dim, int64_t num_heads)
      : embed_dim_(embed_dim), num_heads_(num_heads) {}
  GRAPNEL_ARG(int64_t, embed_dim);
  GRAPNEL_ARG(int64_t, num_heads);
  /// Of attention weights, in training.
  GRAPNEL_ARG(double, dropout) = 0;
  GRAPNEL_ARG(bool, bias) = true;
  /// Adds one learnt key and value to every sequence.
  GRAPNEL_ARG(bool, add_bias_kv) = false;
  /// Adds one key and value of zeros to every sequence.
  GRAPNEL_ARG(bool, add_zero_attn) = false;
  /// Features of keys and values, if not embed_dim.
  GRAPNEL_ARG(std::optional<int64_t>, kdim);
  GRAPNEL_ARG(std::optional<int64_t>, vdim);
  /// Sequences are [N, L, E] instead of [L, N, E].
  GRAPNEL_ARG(bool, batch_first) = false;
};

/// Attention with several heads and the projections around it.
class MultiheadAttentionImpl : public Cloneable<MultiheadAttentionImpl> {
 public:
  explicit MultiheadAttentionImpl(const MultiheadAttentionOptions& options_);
  MultiheadAttentionImpl(int64_t embed_dim, int64_t num_heads)
      : MultiheadAttentionImpl(MultiheadAttentionOptions(embed_dim, num_heads)) {}
  void reset() override;
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;

  /// Query [L, N, E], key [S, N, kdim], value [S, N, vdim], or all three without N. Returns the
  /// result, shaped like the query, and the attention weights [N, L, S] ([N, H, L, S] unless
  /// averaged), undefined unless needed.
  ///
  /// key_padding_mask [N, S] says which keys to leave out; attn_mask [L, S] or [N * H, L, S] which
  /// pairs. Both are bool (true: leave out) or numbers that are added to the scores.
  std::tuple<Tensor, Tensor> forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                     const Tensor& key_padding_mask = {}, bool need_weights = true,
                                     const Tensor& attn_mask = {},
                                     bool average_attn_weights = true);

  MultiheadAttentionOptions options;
  /// One weight for query, key and value; or three, if their features differ.
  Tensor in_proj_weight, q_proj_weight, k_proj_weight, v_proj_weight;
  Tensor in_proj_bias, bias_k, bias_v;
  Linear out_proj{nullptr};

 private:
  std::tuple<Tensor, Tensor, Tensor> project(const Tensor& query, const Tensor& key,
                                             const Tensor& value) const;
};
GRAPNEL_MODULE(MultiheadAttention);

}  // namespace grapnel::nn
