// Layers that are made of several: attention, transformers, and recurrent ones.
#include "grapnel/base/error_kinds.h"
#include "grapnel/nn/attention.h"
#include "grapnel/nn/rnn.h"
#include "grapnel/nn/transformer.h"
#include "python/src/nn_layers.h"

namespace grapnel::python {

namespace {

nn::TransformerActivation activation(const Arguments& a) {
  const nb::object given = a.at("activation");
  if (nb::isinstance<nb::str>(given)) {
    const std::string name = a.text("activation");
    if (name == "relu") return nn::Nonlinearity::relu;
    check(name == "gelu", "activation is 'relu', 'gelu' or a function, got '", name, "'.");
    return [](const Tensor& x) { return gelu(x, "none"); };
  }
  return [f = Held::borrow(given.ptr())](const Tensor& x) {
    return in_python([&] {
      const nb::object out = nb::handle(f.get())(x);
      return nb::cast<Tensor>(out);
    });
  };
}

nn::TransformerLayerOptions transformer(const Arguments& a) {
  return nn::TransformerLayerOptions(a.integer("d_model"), a.integer("nhead"))
      .dim_feedforward(a.integer("dim_feedforward"))
      .dropout(a.number("dropout"))
      .activation(activation(a))
      .layer_norm_eps(a.number("layer_norm_eps"))
      .batch_first(a.flag("batch_first"))
      .norm_first(a.flag("norm_first"));
}

nn::Nonlinearity nonlinearity(const Arguments& a) {
  const std::string name = a.text("nonlinearity");
  check_as<ValueError>(name == "tanh" || name == "relu",
                       "nonlinearity must be 'tanh' or 'relu', got '", name, "'.");
  return name == "relu" ? nn::Nonlinearity::relu : nn::Nonlinearity::tanh;
}

nn::RNNCellOptionsBase rnn_cell(const Arguments& a) {
  return nn::RNNCellOptionsBase(a.integer("input_size"), a.integer("hidden_size"))
      .bias(a.flag("bias"));
}

nn::RNNOptionsBase rnn(const Arguments& a) {
  return nn::RNNOptionsBase(a.integer("input_size"), a.integer("hidden_size"))
      .num_layers(a.integer("num_layers"))
      .bias(a.flag("bias"))
      .batch_first(a.flag("batch_first"))
      .dropout(a.number("dropout"))
      .bidirectional(a.flag("bidirectional"));
}

constexpr const char* kTransformer =
    "d_model, nhead, dim_feedforward=2048, dropout=0.1, activation='relu', layer_norm_eps=1e-5, "
    "batch_first=False, norm_first=False";
constexpr const char* kRnn =
    "input_size, hidden_size, num_layers=1, bias=True, batch_first=False, dropout=0.0, "
    "bidirectional=False";
constexpr const char* kLstm =
    "input_size, hidden_size, num_layers=1, bias=True, batch_first=False, dropout=0.0, "
    "bidirectional=False, proj_size=0";
constexpr const char* kSimpleRnn =
    "input_size, hidden_size, num_layers=1, nonlinearity='tanh', bias=True, batch_first=False, "
    "dropout=0.0, bidirectional=False";

template <class M, auto... fields>
std::vector<Layer::TensorMember> tensors(std::initializer_list<const char*> names) {
  const char* const* name = names.begin();
  return {tensor_in<M, fields>(*name++)...};
}
template <class M, auto... fields>
std::vector<Layer::ModuleMember> modules(std::initializer_list<const char*> names) {
  const char* const* name = names.begin();
  return {module_in<M, fields>(*name++)...};
}

}  // namespace

void add_large_layers(std::vector<Layer>& out) {
  using namespace nn;
  using A = const Arguments&;
  using Made = std::unique_ptr<Module>;
  using MHA = MultiheadAttentionImpl;
  out.push_back(layer<MHA>(
      "MultiheadAttention",
      "embed_dim, num_heads, dropout=0.0, bias=True, add_bias_kv=False, add_zero_attn=False, "
      "kdim=None, vdim=None, batch_first=False",
      [](A a) -> Made {
        return std::make_unique<MHA>(
            MultiheadAttentionOptions(a.integer("embed_dim"), a.integer("num_heads"))
                .dropout(a.number("dropout"))
                .bias(a.flag("bias"))
                .add_bias_kv(a.flag("add_bias_kv"))
                .add_zero_attn(a.flag("add_zero_attn"))
                .kdim(a.maybe_integer("kdim"))
                .vdim(a.maybe_integer("vdim"))
                .batch_first(a.flag("batch_first")));
      }));
  out.back().describe = [](const Module& m, nb::dict& d) {
    const MultiheadAttentionOptions& o = static_cast<const MHA&>(m).options;
    d["embed_dim"] = o.embed_dim();
    d["num_heads"] = o.num_heads();
    d["dropout"] = o.dropout();
    d["bias"] = o.bias();
    d["add_bias_kv"] = o.add_bias_kv();
    d["add_zero_attn"] = o.add_zero_attn();
    d["kdim"] = nb::none();
    d["vdim"] = nb::none();
    d["batch_first"] = o.batch_first();
  };
  out.back().inputs =
      "query, key, value, key_padding_mask=None, need_weights=True, attn_mask=None, "
      "average_attn_weights=True";
  out.back().tensors =
      tensors<MHA, &MHA::in_proj_weight, &MHA::q_proj_weight, &MHA::k_proj_weight,
              &MHA::v_proj_weight, &MHA::in_proj_bias, &MHA::bias_k, &MHA::bias_v>(
          {"in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight", "in_proj_bias",
           "bias_k", "bias_v"});
  out.back().modules = modules<MHA, &MHA::out_proj>({"out_proj"});

  using Encoder = TransformerEncoderLayerImpl;
  out.push_back(layer<Encoder>("TransformerEncoderLayer", kTransformer, [](A a) -> Made {
    return std::make_unique<Encoder>(transformer(a));
  }));
  out.back().inputs = "src, src_mask=None, src_key_padding_mask=None";
  out.back().modules =
      modules<Encoder, &Encoder::self_attn, &Encoder::linear1, &Encoder::linear2, &Encoder::norm1,
              &Encoder::norm2, &Encoder::dropout, &Encoder::dropout1, &Encoder::dropout2>(
          {"self_attn", "linear1", "linear2", "norm1", "norm2", "dropout", "dropout1",
           "dropout2"});

  using Decoder = TransformerDecoderLayerImpl;
  out.push_back(layer<Decoder>("TransformerDecoderLayer", kTransformer, [](A a) -> Made {
    return std::make_unique<Decoder>(transformer(a));
  }));
  out.back().inputs =
      "tgt, memory, tgt_mask=None, memory_mask=None, tgt_key_padding_mask=None, "
      "memory_key_padding_mask=None";
  out.back().modules =
      modules<Decoder, &Decoder::self_attn, &Decoder::multihead_attn, &Decoder::linear1,
              &Decoder::linear2, &Decoder::norm1, &Decoder::norm2, &Decoder::norm3,
              &Decoder::dropout, &Decoder::dropout1, &Decoder::dropout2, &Decoder::dropout3>(
          {"self_attn", "multihead_attn", "linear1", "linear2", "norm1", "norm2", "norm3",
           "dropout", "dropout1", "dropout2", "dropout3"});

  const auto recurrent = [&](Layer made) {
    made.inputs = "input, hx=None";
    out.push_back(std::move(made));
  };
  recurrent(layer<LSTMImpl>("LSTM", kLstm, [](A a) -> Made {
    return std::make_unique<LSTMImpl>(rnn(a).proj_size(a.integer("proj_size")));
  }));
  recurrent(layer<GRUImpl>("GRU", kRnn,
                           [](A a) -> Made { return std::make_unique<GRUImpl>(rnn(a)); }));
  recurrent(layer<RNNImpl>("RNN", kSimpleRnn, [](A a) -> Made {
    return std::make_unique<RNNImpl>(rnn(a).nonlinearity(nonlinearity(a)));
  }));
  const auto cell = [&]<class M>(const char* name) {
    Layer made = layer<M>(name, "input_size, hidden_size, bias=True", [](A a) -> Made {
      return std::make_unique<M>(rnn_cell(a));
    });
    made.tensors = tensors<M, &M::weight_ih, &M::weight_hh, &M::bias_ih, &M::bias_hh>(
        {"weight_ih", "weight_hh", "bias_ih", "bias_hh"});
    return made;
  };
  recurrent(cell.operator()<LSTMCellImpl>("LSTMCell"));
  recurrent(cell.operator()<GRUCellImpl>("GRUCell"));
  Layer simple = cell.operator()<RNNCellImpl>("RNNCell");
  simple.arguments = "input_size, hidden_size, bias=True, nonlinearity='tanh'";
  simple.make = [](A a) -> Made {
    return std::make_unique<RNNCellImpl>(rnn_cell(a).nonlinearity(nonlinearity(a)));
  };
  recurrent(std::move(simple));
}

}  // namespace grapnel::python
