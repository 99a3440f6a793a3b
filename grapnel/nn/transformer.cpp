#include "grapnel/nn/transformer.h"

#include "grapnel/functions/functions.h"

namespace grapnel::nn {

namespace {

MultiheadAttentionOptions attention_options(const TransformerLayerOptions& o) {
  return MultiheadAttentionOptions(o.d_model(), o.nhead())
      .dropout(o.dropout())
      .batch_first(o.batch_first());
}
LayerNorm norm_of(const TransformerLayerOptions& o) {
  return LayerNorm(LayerNormOptions({o.d_model()}).eps(o.layer_norm_eps()));
}

Tensor attend(const MultiheadAttention& attention, const Tensor& x, const Tensor& memory,
              const Tensor& mask, const Tensor& padding) {
  return std::get<0>(attention(x, memory, memory, padding, false, mask));
}

/// x plus a branch of x, with the norm before the branch or behind the sum.
template <class Branch>
Tensor shortcut(const Tensor& x, const LayerNorm& norm, bool norm_first, Branch branch) {
  return norm_first ? x + branch(norm(x)) : norm(x + branch(x));
}

}  // namespace

TransformerActivation::TransformerActivation(Nonlinearity f) {
  switch (f) {
    case Nonlinearity::linear: function_ = [](const Tensor& x) { return x; }; break;
    case Nonlinearity::sigmoid: function_ = [](const Tensor& x) { return x.sigmoid(); }; break;
    case Nonlinearity::tanh: function_ = [](const Tensor& x) { return x.tanh(); }; break;
    case Nonlinearity::relu: function_ = [](const Tensor& x) { return x.relu(); }; break;
    case Nonlinearity::leaky_relu: function_ = [](const Tensor& x) { return leaky_relu(x); }; break;
  }
}

void TransformerEncoderLayerImpl::reset() {
  const auto& o = options;
  self_attn = register_module("self_attn", MultiheadAttention(attention_options(o)));
  linear1 = register_module("linear1", Linear(o.d_model(), o.dim_feedforward()));
  dropout = register_module("dropout", Dropout(o.dropout()));
  linear2 = register_module("linear2", Linear(o.dim_feedforward(), o.d_model()));
  norm1 = register_module("norm1", norm_of(o));
  norm2 = register_module("norm2", norm_of(o));
  dropout1 = register_module("dropout1", Dropout(o.dropout()));
  dropout2 = register_module("dropout2", Dropout(o.dropout()));
}

Tensor TransformerEncoderLayerImpl::forward(const Tensor& src, const Tensor& src_mask,
                                            const Tensor& src_key_padding_mask) {
  const bool first = options.norm_first();
  const Tensor x = shortcut(src, norm1, first, [&](const Tensor& t) {
    return dropout1(attend(self_attn, t, t, src_mask, src_key_padding_mask));
  });
  return shortcut(x, norm2, first, [&](const Tensor& t) {
    return dropout2(linear2(dropout(options.activation()(linear1(t)))));
  });
}

void TransformerDecoderLayerImpl::reset() {
  const auto& o = options;
  self_attn = register_module("self_attn", MultiheadAttention(attention_options(o)));
  multihead_attn = register_module("multihead_attn", MultiheadAttention(attention_options(o)));
  linear1 = register_module("linear1", Linear(o.d_model(), o.dim_feedforward()));
  dropout = register_module("dropout", Dropout(o.dropout()));
  linear2 = register_module("linear2", Linear(o.dim_feedforward(), o.d_model()));
  norm1 = register_module("norm1", norm_of(o));
  norm2 = register_module("norm2", norm_of(o));
  norm3 = register_module("norm3", norm_of(o));
  dropout1 = register_module("dropout1", Dropout(o.dropout()));
  dropout2 = register_module("dropout2", Dropout(o.dropout()));
  dropout3 = register_module("dropout3", Dropout(o.dropout()));
}

Tensor TransformerDecoderLayerImpl::forward(const Tensor& tgt, const Tensor& memory,
                                            const Tensor& tgt_mask, const Tensor& memory_mask,
                                            const Tensor& tgt_key_padding_mask,
                                            const Tensor& memory_key_padding_mask) {
  const bool first = options.norm_first();
  Tensor x = shortcut(tgt, norm1, first, [&](const Tensor& t) {
    return dropout1(attend(self_attn, t, t, tgt_mask, tgt_key_padding_mask));
  });
  x = shortcut(x, norm2, first, [&](const Tensor& t) {
    return dropout2(attend(multihead_attn, t, memory, memory_mask, memory_key_padding_mask));
  });
  return shortcut(x, norm3, first, [&](const Tensor& t) {
    return dropout3(linear2(dropout(options.activation()(linear1(t)))));
  });
}

}  // namespace grapnel::nn
