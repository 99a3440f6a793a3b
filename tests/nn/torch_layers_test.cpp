/// Layers against PyTorch: tools/record_torch.py wrote down what it computes, outputs and
/// gradients, in f64.
#include <doctest/doctest.h>

#include "grapnel/grapnel.h"
#include "grapnel/io/safetensors.h"

using namespace grapnel;

namespace {

using Tensors = std::vector<Tensor>;

const io::NamedTensors& recorded() {
  static const io::Safetensors file = io::load_safetensors("tests/nn/torch_layers.safetensors");
  return file.tensors;
}

/// What a layer returns, as a list; undefined results are left out.
void flatten_into(Tensors& out, const Tensor& t) {
  if (t.defined()) out.push_back(t);
}
template <class... T>
void flatten_into(Tensors& out, const std::tuple<T...>& t) {
  std::apply([&](const auto&... part) { (flatten_into(out, part), ...); }, t);
}

void check_close(const std::string& what, const Tensor& got) {
  const Tensor* expected = recorded().find(what);
  REQUIRE_MESSAGE(expected != nullptr, what, " was not recorded");
  REQUIRE_MESSAGE(got.defined(), what);
  CHECK_MESSAGE(got.shape() == expected->shape(), what);
  if (got.shape() == expected->shape())
    CHECK_MESSAGE(got.allclose(*expected, 1e-9, 1e-11), what, "\n", got.str(), "\n",
                  expected->str());
}

/// Runs `layer` on the recorded inputs with the recorded parameters; outputs, gradients and buffers
/// must be PyTorch's.
template <class Layer, class Call>
void compare(const std::string& name, const Layer& layer, Call call) {
  INFO(name);
  layer->to(kFloat64);
  nn::StateDict state;
  Tensors inputs;
  const std::string begin = name + "/";
  for (const auto& item : recorded()) {
    if (!item.key().starts_with(begin)) continue;
    const std::string key = item.key().substr(begin.size());
    if (key.starts_with("p.")) state.set(key.substr(2), item.value());
  }
  while (const Tensor* input = recorded().find(begin + "in." + std::to_string(inputs.size())))
    inputs.push_back(input->clone().set_requires_grad(
        recorded().contains(begin + "gin." + std::to_string(inputs.size()))));
  REQUIRE(!inputs.empty());
  layer->load_state_dict(state);
  Tensors outputs;
  flatten_into(outputs, call(layer, inputs));
  Tensor loss = zeros({}, kFloat64);
  for (size_t i = 0; i < outputs.size(); ++i) {
    check_close(begin + "out." + std::to_string(i), outputs[i]);
    loss = loss + (outputs[i] * recorded()[begin + "g." + std::to_string(i)]).sum();
  }
  CHECK_FALSE(recorded().contains(begin + "out." + std::to_string(outputs.size())));
  loss.backward();
  for (const auto& item : recorded()) {
    if (!item.key().starts_with(begin)) continue;
    const std::string key = item.key().substr(begin.size());
    if (key.starts_with("gp."))
      check_close(item.key(), layer->named_parameters()[key.substr(3)].grad());
    if (key.starts_with("b.")) check_close(item.key(), layer->named_buffers()[key.substr(2)]);
    if (key.starts_with("gin.")) check_close(item.key(), inputs[std::stoul(key.substr(4))].grad());
  }
}
template <class Layer>
void compare(const std::string& name, const Layer& layer) {
  compare(name, layer, [](const Layer& l, const Tensors& in) { return l(in[0]); });
}
template <class Layer>
void compare_loss(const std::string& name, const Layer& loss) {
  compare(name, loss, [](const Layer& l, const Tensors& in) { return l(in[0], in[1]); });
}

}  // namespace

TEST_CASE("Linear and convolutions give PyTorch's values and gradients") {
  compare("linear", nn::Linear(4, 3));
  compare("conv1d", nn::Conv1d(nn::Conv1dOptions(3, 4, 3).stride(2).padding(1)));
  compare("conv2d", nn::Conv2d(nn::Conv2dOptions(3, 8, 3).stride(2)));
  compare(
      "conv2d_groups",
      nn::Conv2d(
          nn::Conv2dOptions(4, 6, {3, 2}).padding({1, 0}).dilation({1, 2}).groups(2).bias(false)));
  compare("conv2d_same", nn::Conv2d(nn::Conv2dOptions(2, 3, {4, 3}).padding(nn::Padding::same)));
  compare("conv2d_reflect", nn::Conv2d(nn::Conv2dOptions(2, 3, 3).padding({2, 1}).padding_mode(
                                nn::PaddingMode::reflect)));
  compare("conv2d_replicate", nn::Conv2d(nn::Conv2dOptions(2, 3, 3).padding({2, 1}).padding_mode(
                                  nn::PaddingMode::replicate)));
  compare("conv2d_circular", nn::Conv2d(nn::Conv2dOptions(2, 3, 3).padding({2, 1}).padding_mode(
                                 nn::PaddingMode::circular)));
  compare("conv1d_unbatched", nn::Conv1d(2, 3, 2));
}

TEST_CASE("layers that normalise give PyTorch's values, gradients and running statistics") {
  compare("batch_norm1d", nn::BatchNorm1d(3));
  compare("batch_norm1d_length",
          nn::BatchNorm1d(nn::BatchNorm1dOptions(3).eps(1e-3).momentum(0.3)));
  compare("batch_norm2d", nn::BatchNorm2d(3));
  nn::BatchNorm2d still(3);
  still->eval();
  compare("batch_norm2d_eval", still);
  compare("batch_norm2d_cumulative",
          nn::BatchNorm2d(nn::BatchNorm2dOptions(2).momentum(std::nullopt)));
  nn::BatchNorm2d plain(nn::BatchNorm2dOptions(2).affine(false).track_running_stats(false));
  plain->eval();
  compare("batch_norm2d_plain", plain);
  compare("layer_norm", nn::LayerNorm(nn::LayerNormOptions({3, 4})));
  compare("group_norm", nn::GroupNorm(2, 4));
  compare("rms_norm", nn::RMSNorm(nn::RMSNormOptions({4})));
  compare("rms_norm_eps", nn::RMSNorm(nn::RMSNormOptions({2, 3}).eps(0.1)));
}

TEST_CASE("Embedding and activations give PyTorch's values and gradients") {
  compare("embedding", nn::Embedding(nn::EmbeddingOptions(6, 3).padding_idx(-2)));
  compare("prelu", nn::PReLU(nn::PReLUOptions().num_parameters(3)));
  compare("glu", nn::GLU(nn::GLUOptions(1)));
  compare("relu", nn::ReLU());
  compare("relu6", nn::ReLU6());
  compare("leaky_relu", nn::LeakyReLU(nn::LeakyReLUOptions().negative_slope(0.2)));
  compare("elu", nn::ELU(nn::ELUOptions().alpha(0.7)));
  compare("selu", nn::SELU());
  compare("silu", nn::SiLU());
  compare("mish", nn::Mish());
  compare("softplus", nn::Softplus(nn::SoftplusOptions().beta(2).threshold(3)));
  compare("log_sigmoid", nn::LogSigmoid());
  compare("softsign", nn::Softsign());
  compare("hardtanh", nn::Hardtanh(nn::HardtanhOptions().min_val(-0.5).max_val(0.8)));
  compare("gelu", nn::GELU());
  compare("gelu_tanh", nn::GELU(nn::GELUOptions().approximate("tanh")));
  compare("tanh", nn::Tanh());
  compare("sigmoid", nn::Sigmoid());
  compare("softmax", nn::Softmax(1));
  compare("log_softmax", nn::LogSoftmax(-1));
}

TEST_CASE("pooling layers give PyTorch's values and gradients") {
  compare("max_pool1d", nn::MaxPool1d(nn::MaxPool1dOptions(3).stride(2).padding(1)));
  compare("max_pool2d", nn::MaxPool2d(nn::MaxPool2dOptions({2, 3}).ceil_mode(true)));
  compare("avg_pool1d",
          nn::AvgPool1d(nn::AvgPool1dOptions(3).stride(2).padding(1).count_include_pad(false)));
  compare("avg_pool2d", nn::AvgPool2d(2));
  compare("adaptive_avg_pool1d", nn::AdaptiveAvgPool1d(4));
  compare("adaptive_avg_pool2d", nn::AdaptiveAvgPool2d(nn::AdaptiveAvgPool2dOptions({3, 1})));
  compare("adaptive_avg_pool2d_uneven",
          nn::AdaptiveAvgPool2d(nn::AdaptiveAvgPool2dOptions({3, 4})));
  compare("adaptive_max_pool2d", nn::AdaptiveMaxPool2d(nn::AdaptiveMaxPool2dOptions({2, 3})));
}

TEST_CASE("more activations and norms give PyTorch's values and gradients") {
  compare("celu", nn::CELU(nn::CELUOptions().alpha(0.5)));
  nn::RReLU rrelu;
  rrelu->eval();
  compare("rrelu", rrelu);
  compare("threshold", nn::Threshold(0.3, -2.0));
  compare("hardshrink", nn::Hardshrink(0.7));
  compare("softshrink", nn::Softshrink(0.4));
  compare("tanhshrink", nn::Tanhshrink());
  compare("softmin", nn::Softmin(1));
  compare("softmax2d", nn::Softmax2d());
  compare("batch_norm3d", nn::BatchNorm3d(2));
  compare("instance_norm1d", nn::InstanceNorm1d(3));
  compare("instance_norm2d",
          nn::InstanceNorm2d(nn::InstanceNorm2dOptions(3).affine(true).eps(1e-3)));
  compare("instance_norm2d_tracked",
          nn::InstanceNorm2d(
              nn::InstanceNorm2dOptions(2).affine(true).momentum(0.3).track_running_stats(true)));
  nn::InstanceNorm2d still(nn::InstanceNorm2dOptions(2).track_running_stats(true));
  still->eval();
  compare("instance_norm2d_eval", still);
  compare("instance_norm3d", nn::InstanceNorm3d(2));
  CHECK(nn::InstanceNorm1d(3)(ones({3, 5})).shape() == Shape{3, 5});
}

TEST_CASE("transposed convolutions give PyTorch's values and gradients") {
  using Options = nn::ConvTranspose2dOptions;
  compare("conv_transpose1d",
          nn::ConvTranspose1d(
              nn::ConvTranspose1dOptions(3, 4, 3).stride(2).padding(1).output_padding(1)));
  compare("conv_transpose2d",
          nn::ConvTranspose2d(Options(3, 2, {3, 2}).stride({2, 3}).bias(false)));
  compare("conv_transpose2d_groups",
          nn::ConvTranspose2d(Options(4, 6, 3).padding(1).groups(2).dilation({1, 2})));
  const nn::ConvTranspose2d sized(Options(2, 3, 3).stride(2).padding(1));
  compare("conv_transpose2d_size", sized, [](const auto& layer, const Tensors& in) {
    return layer->forward(in[0], std::vector<int64_t>{6, 7});
  });
  CHECK_THROWS_WITH_AS(sized->forward(ones({1, 2, 3, 4}, kFloat64), std::vector<int64_t>{9, 7}),
                       doctest::Contains("a size of 9 was asked for"), Error);
}

TEST_CASE("padding layers give PyTorch's values and gradients") {
  compare("reflection_pad1d", nn::ReflectionPad1d(nn::ReflectionPad1dOptions({2, 1})));
  compare("replication_pad1d", nn::ReplicationPad1d(nn::ReplicationPad1dOptions({0, 3})));
  compare("constant_pad1d", nn::ConstantPad1d(nn::ConstantPad1dOptions({1, -1}, 2.5)));
  compare("reflection_pad2d", nn::ReflectionPad2d(nn::ReflectionPad2dOptions({1, 2, 0, 3})));
  compare("replication_pad2d", nn::ReplicationPad2d(2));
  compare("zero_pad2d", nn::ZeroPad2d(nn::ZeroPad2dOptions({1, -1, 2, 0})));
  compare("constant_pad2d", nn::ConstantPad2d(nn::ConstantPad2dOptions({0, 1, 2, 3}, -1.5)));
  compare("replication_pad3d",
          nn::ReplicationPad3d(nn::ReplicationPad3dOptions({1, 0, 2, 1, 0, 1})));
}

TEST_CASE("layers that resize images give PyTorch's values and gradients") {
  using Options = nn::UpsampleOptions;
  const auto size = [](std::vector<int64_t> sizes) { return Options().size(std::move(sizes)); };
  const auto factor = [](std::vector<double> f) { return Options().scale_factor(std::move(f)); };
  compare("upsample_nearest", nn::Upsample(factor({2})));
  compare("upsample_size", nn::Upsample(size({7, 3})));
  compare("upsample_bilinear", nn::Upsample(factor({2.0, 1.5}).mode(Interpolation::bilinear)));
  compare("upsample_corners",
          nn::Upsample(size({5, 9}).mode(Interpolation::bilinear).align_corners(true)));
  compare("upsample_down", nn::Upsample(size({2, 3}).mode(Interpolation::bilinear)));
  compare("upsample_exact", nn::Upsample(size({7, 3}).mode(Interpolation::nearest_exact)));
  compare("upsample_linear", nn::Upsample(factor({3}).mode(Interpolation::linear)));
  compare("upsample_trilinear", nn::Upsample(size({3, 4, 5}).mode(Interpolation::trilinear)));
  compare("pixel_shuffle", nn::PixelShuffle(2));
  compare("pixel_unshuffle", nn::PixelUnshuffle(2));
}

TEST_CASE("distances as modules give PyTorch's values and gradients") {
  compare("cosine_similarity", nn::CosineSimilarity(),
          [](const auto& m, const Tensors& in) { return m(in[0], in[1]); });
  compare("pairwise_distance",
          nn::PairwiseDistance(nn::PairwiseDistanceOptions().p(3).keepdim(true)),
          [](const auto& m, const Tensors& in) { return m(in[0], in[1]); });
}

TEST_CASE("losses give PyTorch's values and gradients") {
  const Tensor weight = tensor({1.0, 2.0, 0.5, 1.5}, kFloat64);
  compare_loss(
      "cross_entropy",
      nn::CrossEntropyLoss(nn::CrossEntropyLossOptions().weight(weight).label_smoothing(0.1)));
  compare_loss("nll", nn::NLLLoss(nn::NLLLossOptions().ignore_index(0).reduction(Reduce::sum)));
  compare_loss("bce", nn::BCELoss());
  compare_loss("bce_logits", nn::BCEWithLogitsLoss(nn::BCEWithLogitsLossOptions().pos_weight(
                                 tensor({2.0, 0.5}, kFloat64))));
  compare_loss("mse", nn::MSELoss());
  compare_loss("l1", nn::L1Loss(nn::L1LossOptions(Reduce::none)));
  compare_loss("smooth_l1", nn::SmoothL1Loss(nn::SmoothL1LossOptions().beta(0.7)));
  compare_loss("huber", nn::HuberLoss(nn::HuberLossOptions().delta(0.6)));
  compare_loss("kl_div", nn::KLDivLoss(nn::functional::KLReduce::batch_mean));
  compare_loss("kl_div_log", nn::KLDivLoss(nn::KLDivLossOptions().log_target(true)));
}

TEST_CASE("MultiheadAttention gives PyTorch's values, weights and gradients") {
  using Options = nn::MultiheadAttentionOptions;
  using Layer = const nn::MultiheadAttention&;
  compare("attention", nn::MultiheadAttention(6, 2),
          [](Layer m, const Tensors& in) { return m(in[0], in[0], in[0]); });
  compare(
      "attention_cross",
      nn::MultiheadAttention(
          Options(6, 3).kdim(4).vdim(5).add_bias_kv(true).add_zero_attn(true).batch_first(true)),
      [](Layer m, const Tensors& in) {
        return m(in[0], in[1], in[2], Tensor(), true, Tensor(), false);
      });
  compare("attention_masks", nn::MultiheadAttention(4, 2),
          [](Layer m, const Tensors& in) { return m(in[0], in[1], in[2], in[3], true, in[4]); });
  compare("attention_unbatched", nn::MultiheadAttention(Options(4, 2).bias(false)),
          [](Layer m, const Tensors& in) { return m(in[0], in[0], in[0], Tensor(), false); });
}

TEST_CASE("transformer layers give PyTorch's values and gradients") {
  using Options = nn::TransformerEncoderLayerOptions;
  compare("encoder", nn::TransformerEncoderLayer(Options(6, 2).dim_feedforward(8).dropout(0)));
  compare(
      "encoder_first",
      nn::TransformerEncoderLayer(
          Options(6, 2).dim_feedforward(8).dropout(0).batch_first(true).norm_first(true).activation(
              [](const Tensor& x) { return gelu(x); })));
  compare("decoder", nn::TransformerDecoderLayer(Options(6, 2).dim_feedforward(8).dropout(0)),
          [](const nn::TransformerDecoderLayer& m, const Tensors& in) {
            return m(in[0], in[1], ones({4, 4}, kBool).triu(1));
          });
}

TEST_CASE("LSTM and GRU give PyTorch's values, states and gradients") {
  compare("lstm", nn::LSTM(3, 4));
  compare("lstm_deep",
          nn::LSTM(nn::LSTMOptions(3, 4).num_layers(2).bidirectional(true).batch_first(true)),
          [](const nn::LSTM& m, const Tensors& in) {
            return m(in[0], std::optional(std::tuple(in[1], in[2])));
          });
  compare("lstm_proj", nn::LSTM(nn::LSTMOptions(3, 4).num_layers(2).proj_size(2).bias(false)));
  compare("gru", nn::GRU(3, 4));
  compare("gru_deep", nn::GRU(nn::GRUOptions(3, 4).num_layers(2).bidirectional(true)),
          [](const nn::GRU& m, const Tensors& in) { return m(in[0], in[1]); });
  compare("gru_unbatched", nn::GRU(3, 4),
          [](const nn::GRU& m, const Tensors& in) { return m(in[0], in[1]); });
}

TEST_CASE("RNN and single cells give PyTorch's values, states and gradients") {
  const auto two = [](const auto& m, const Tensors& in) { return m(in[0], in[1]); };
  compare("rnn", nn::RNN(nn::RNNOptions(3, 4).num_layers(2).bidirectional(true)), two);
  compare("rnn_relu",
          nn::RNN(nn::RNNOptions(3, 4).nonlinearity(nn::Nonlinearity::relu).bias(false)));
  compare("lstm_cell", nn::LSTMCell(3, 4), [](const nn::LSTMCell& m, const Tensors& in) {
    return m(in[0], std::optional(std::tuple(in[1], in[2])));
  });
  compare("gru_cell", nn::GRUCell(nn::GRUCellOptions(3, 4).bias(false)), two);
  compare("rnn_cell", nn::RNNCell(3, 4));
  compare("rnn_cell_relu",
          nn::RNNCell(nn::RNNCellOptions(3, 4).nonlinearity(nn::Nonlinearity::relu)), two);
}
