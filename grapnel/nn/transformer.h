/// TransformerEncoderLayer and TransformerDecoderLayer. Shape letters: N batch, L and S lengths, E
/// d_model.
#pragma once

#include <functional>

#include "grapnel/nn/activation.h"
#include "grapnel/nn/attention.h"
#include "grapnel/nn/init.h"
#include "grapnel/nn/norm.h"

namespace grapnel::nn {

/// What stands between the two linear layers: `Nonlinearity::relu`, or any function of a tensor.
class TransformerActivation {
 public:
  TransformerActivation(Nonlinearity f);
  template <class F>
    requires(std::is_invocable_r_v<Tensor, F&, const Tensor&>)
  TransformerActivation(F f) : function_(std::move(f)) {}
  Tensor operator()(const Tensor& x) const { return function_(x); }

 private:
  std::function<Tensor(const Tensor&)> function_;
};

/// Options of both layers.
struct TransformerLayerOptions {
  TransformerLayerOptions(int64_t d_model, int64_t nhead) : d_model_(d_model), nhead_(nhead) {}
  GRAPNEL_ARG(int64_t, d_model);
  GRAPNEL_ARG(int64_t, nhead);
  GRAPNEL_ARG(int64_t, dim_feedforward) = 2048;
  GRAPNEL_ARG(double, dropout) = 0.1;
  GRAPNEL_ARG(TransformerActivation, activation) = Nonlinearity::relu;
  GRAPNEL_ARG(double, layer_norm_eps) = 1e-5;
  /// Sequences are [N, L, E] instead of [L, N, E].
  GRAPNEL_ARG(bool, batch_first) = false;
  /// Normalises what goes into attention and feed-forward instead of what comes out.
  GRAPNEL_ARG(bool, norm_first) = false;
};
using TransformerEncoderLayerOptions = TransformerLayerOptions;
using TransformerDecoderLayerOptions = TransformerLayerOptions;

/// Self-attention and feed-forward, each with dropout, a shortcut and a norm.
class TransformerEncoderLayerImpl : public Cloneable<TransformerEncoderLayerImpl> {
 public:
  explicit TransformerEncoderLayerImpl(const TransformerEncoderLayerOptions& options_)
      : options(options_) {
    TransformerEncoderLayerImpl::reset();
  }
  TransformerEncoderLayerImpl(int64_t d_model, int64_t nhead)
      : TransformerEncoderLayerImpl(TransformerEncoderLayerOptions(d_model, nhead)) {}
  void reset() override;
  void pretty_print(std::ostream& stream) const override {
    stream << "grapnel::nn::TransformerEncoderLayer";
  }
  /// Masks as in MultiheadAttention.
  Tensor forward(const Tensor& src, const Tensor& src_mask = {},
                 const Tensor& src_key_padding_mask = {});

  TransformerEncoderLayerOptions options;
  MultiheadAttention self_attn{nullptr};
  Linear linear1{nullptr}, linear2{nullptr};
  LayerNorm norm1{nullptr}, norm2{nullptr};
  Dropout dropout{nullptr}, dropout1{nullptr}, dropout2{nullptr};
};
GRAPNEL_MODULE(TransformerEncoderLayer);

/// Self-attention, attention to `memory`, and feed-forward, each with dropout, a shortcut and a
/// norm.
class TransformerDecoderLayerImpl : public Cloneable<TransformerDecoderLayerImpl> {
 public:
  explicit TransformerDecoderLayerImpl(const TransformerDecoderLayerOptions& options_)
      : options(options_) {
    TransformerDecoderLayerImpl::reset();
  }
  TransformerDecoderLayerImpl(int64_t d_model, int64_t nhead)
      : TransformerDecoderLayerImpl(TransformerDecoderLayerOptions(d_model, nhead)) {}
  void reset() override;
  void pretty_print(std::ostream& stream) const override {
    stream << "grapnel::nn::TransformerDecoderLayer";
  }
  Tensor forward(const Tensor& tgt, const Tensor& memory, const Tensor& tgt_mask = {},
                 const Tensor& memory_mask = {}, const Tensor& tgt_key_padding_mask = {},
                 const Tensor& memory_key_padding_mask = {});

  TransformerDecoderLayerOptions options;
  MultiheadAttention self_attn{nullptr}, multihead_attn{nullptr};
  Linear linear1{nullptr}, linear2{nullptr};
  LayerNorm norm1{nullptr}, norm2{nullptr}, norm3{nullptr};
  Dropout dropout{nullptr}, dropout1{nullptr}, dropout2{nullptr}, dropout3{nullptr};
};
GRAPNEL_MODULE(TransformerDecoderLayer);

}  // namespace grapnel::nn
