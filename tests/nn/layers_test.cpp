/// Layers beyond their values: containers, copies, initialisers, summaries, and what goes wrong.
#include <doctest/doctest.h>

#include <sstream>

#include "grapnel/grapnel.h"
#include "tests/ops/error_text.h"

using namespace grapnel;

namespace {

/// Every layer that has something to copy.
std::vector<std::shared_ptr<nn::Module>> all_layers() {
  return {nn::Conv1d(2, 3, 2).ptr(),
          nn::Conv2d(2, 3, 2).ptr(),
          nn::BatchNorm1d(3).ptr(),
          nn::BatchNorm2d(3).ptr(),
          nn::LayerNorm(nn::LayerNormOptions({3})).ptr(),
          nn::GroupNorm(2, 4).ptr(),
          nn::RMSNorm(nn::RMSNormOptions({3})).ptr(),
          nn::Embedding(5, 3).ptr(),
          nn::PReLU().ptr(),
          nn::MultiheadAttention(4, 2).ptr(),
          nn::TransformerEncoderLayer(nn::TransformerEncoderLayerOptions(4, 2).dim_feedforward(8))
              .ptr(),
          nn::TransformerDecoderLayer(nn::TransformerDecoderLayerOptions(4, 2).dim_feedforward(8))
              .ptr(),
          nn::LSTM(nn::LSTMOptions(3, 4).num_layers(2)).ptr(),
          nn::GRU(3, 4).ptr(),
          nn::CrossEntropyLoss(nn::CrossEntropyLossOptions().weight(ones({3}))).ptr(),
          nn::ModuleList(nn::Linear(2, 2).ptr(), nn::Conv1d(2, 3, 2).ptr()).ptr(),
          nn::ModuleDict(std::vector<std::pair<std::string, std::shared_ptr<nn::Module>>>{
                             {"a", nn::Linear(2, 2).ptr()}})
              .ptr()};
}

}  // namespace

TEST_CASE("a copy of any layer has equal values in memory of its own") {
  for (const auto& layer : all_layers()) {
    INFO(layer->name());
    const auto copy = layer->clone();
    const auto mine = layer->state_dict(), theirs = copy->state_dict();
    REQUIRE(mine.keys() == theirs.keys());
    for (const auto& item : mine) {
      CHECK(item->equal(theirs[item.key()]));
      CHECK_FALSE(item->is_alias_of(theirs[item.key()]));
    }
    std::ostringstream text;
    text << *copy;
    CHECK(text.str().find("grapnel::nn::") == 0);
  }
}

TEST_CASE("relu6 and hardtanh have no gradient at their bounds") {
  Tensor x = tensor({-7.0, 0.0, 3.0, 6.0, 7.0}, requires_grad());
  nn::ReLU6()(x).sum().backward();
  CHECK(x.grad().equal(tensor({0.0, 0.0, 1.0, 0.0, 0.0})));
  x.reset_grad();
  const auto limits = nn::HardtanhOptions().min_val(-7).max_val(3);
  const Tensor y = nn::Hardtanh(limits)(x);
  CHECK(y.equal(tensor({-7.0, 0.0, 3.0, 3.0, 3.0})));
  y.sum().backward();
  CHECK(x.grad().equal(tensor({0.0, 1.0, 0.0, 0.0, 0.0})));
}

TEST_CASE("ModuleList keeps modules in order, under their numbers") {
  nn::ModuleList list;
  list->push_back(nn::Linear(2, 3));
  list->push_back(nn::Linear(3, 4));
  list->insert(1, nn::ReLU().ptr());
  CHECK(list->size() == 3);
  CHECK(list->at<nn::Linear>(2).options.out_features() == 4);
  CHECK(list->named_parameters().keys() ==
        std::vector<std::string>{"0.weight", "0.bias", "2.weight", "2.bias"});
  Tensor x = ones({1, 2});
  for (const auto& module : *list) {
    if (auto* layer = module->as<nn::Linear>()) x = nn::call(*layer, x);
    else x = nn::call(*module->as<nn::ReLU>(), x);
  }
  CHECK(x.shape() == Shape{1, 4});
  CHECK(error_text([&] { list->ptr(7); }) ==
        "ModuleList: module 7 was asked for, but there are 3.");
  CHECK(error_text([&] { list->at<nn::ReLU>(0); }).starts_with("ModuleList: module 0 is"));
}

TEST_CASE("ModuleDict finds modules by name") {
  nn::ModuleDict dict;
  dict->insert("encode", nn::Linear(4, 2));
  dict->insert("decode", nn::Linear(2, 4));
  CHECK(dict->keys() == std::vector<std::string>{"encode", "decode"});
  CHECK(dict->at<nn::Linear>("decode").options.out_features() == 4);
  CHECK(dict->pop("encode")->as<nn::Linear>() != nullptr);
  CHECK_FALSE(dict->contains("encode"));
  CHECK(error_text([&] { dict->ptr("encode"); }) == "ModuleDict: there is no module 'encode'.");
}

TEST_CASE("apply reaches every layer, so a model is initialised in one call") {
  nn::Sequential net(nn::Linear(4, 3), nn::ReLU(), nn::Linear(3, 2));
  net->apply([](nn::Module& m) {
    if (auto* linear = m.as<nn::Linear>()) nn::init::constant_(linear->weight, 0.5);
  });
  for (const auto& p : net->named_parameters())
    if (p.key().ends_with("weight")) CHECK(p->eq(0.5).all().item<bool>());
}

TEST_CASE("initialisers give what they promise") {
  manual_seed(3);
  const Tensor q = nn::init::orthogonal_(empty({3, 5}, kFloat64), 2);
  CHECK(matmul(q, q.t()).allclose(4 * eye(3, kFloat64), 0, 1e-12));
  const Tensor tall = nn::init::orthogonal_(empty({6, 2, 2}, kFloat64)).view({6, 4});
  CHECK(matmul(tall.t(), tall).allclose(eye(4, kFloat64), 0, 1e-12));

  const Tensor cut = nn::init::trunc_normal_(empty({2000}), 0, 1, -0.5, 1);
  CHECK(cut.min().item<double>() >= -0.5);
  CHECK(cut.max().item<double>() <= 1);
  CHECK(cut.std().item<double>() > 0.3);
  CHECK(nn::init::eye_(empty({2, 3})).equal(tensor({{1.0, 0.0, 0.0}, {0.0, 1.0, 0.0}})));

  // A Dirac kernel passes its input through.
  nn::Conv1d conv(nn::Conv1dOptions(2, 2, 3).padding(1).bias(false));
  nn::init::dirac_(conv->weight);
  const Tensor x = randn({1, 2, 5});
  CHECK(conv(x).allclose(x));

  const Tensor sparse = nn::init::sparse_(empty({10, 4}), 0.3);
  CHECK(sparse.eq(0).sum({0}).equal(full({4}, 3)));

  const Tensor w = empty({400, 300});
  const auto deviation = [](const Tensor& t) { return t.std().item<double>(); };
  CHECK(deviation(nn::init::kaiming_normal_(w)) ==
        doctest::Approx(std::sqrt(2.0 / 300)).epsilon(0.02));
  CHECK(deviation(nn::init::kaiming_uniform_(w, 0, nn::FanMode::out, nn::Nonlinearity::linear)) ==
        doctest::Approx(std::sqrt(1.0 / 400)).epsilon(0.02));
  CHECK(deviation(nn::init::xavier_normal_(w, 2)) ==
        doctest::Approx(2 * std::sqrt(2.0 / 700)).epsilon(0.02));
}

TEST_CASE("a summary counts parameters layer by layer") {
  nn::Sequential net(nn::Linear(4, 3), nn::BatchNorm1d(3),
                     nn::Linear(nn::LinearOptions(3, 2).bias(false)));
  net->parameters()[0].set_requires_grad(false);
  const nn::ModuleSummary s = nn::summary(*net);
  CHECK(s.parameters == 15 + 6 + 6);
  CHECK(s.trainable == 15);
  CHECK(s.buffers == 7);
  CHECK(s.bytes == 27 * 4 + 6 * 4 + 8);
  std::ostringstream text;
  text << s;
  CHECK(text.str().find("0: grapnel::nn::Linear(in_features=4, out_features=3, bias=true)") !=
        std::string::npos);
  CHECK(text.str().find("parameters 27 (15 trainable), buffers 7, 1 KiB") != std::string::npos);
}

TEST_CASE("gradients are clipped by their common norm, or each element by itself") {
  const Tensor a = tensor({3.0, 0.0}, requires_grad()), b = tensor({4.0}, requires_grad()),
               unused = tensor({1.0}, requires_grad());
  ((a * a).sum() / 2 + (b * b).sum() / 2).backward();
  const Tensor norm = nn::utils::clip_grad_norm_({a, b, unused}, 1);
  CHECK(norm.item<double>() == doctest::Approx(5));
  CHECK(a.grad().allclose(tensor({0.6, 0.0}), 1e-5));
  CHECK(b.grad().allclose(tensor({0.8}), 1e-5));
  CHECK(nn::utils::clip_grad_norm_({a, b}, 10).item<double>() == doctest::Approx(1));
  CHECK(a.grad().allclose(tensor({0.6, 0.0}), 1e-5));
  nn::utils::clip_grad_value_({a, b, unused}, 0.7);
  CHECK(a.grad().allclose(tensor({0.6, 0.0}), 1e-5));
  CHECK(b.grad().allclose(tensor({0.7})));
  CHECK(
      nn::utils::clip_grad_norm_({a, b}, 1, {.norm_type = std::numeric_limits<double>::infinity()})
          .item<double>() == doctest::Approx(0.7));

  a.mutable_grad().fill_(std::numeric_limits<double>::quiet_NaN());
  CHECK(error_text([&] {
          nn::utils::clip_grad_norm_({a, b}, 1, {.error_if_nonfinite = true});
        }).starts_with("clip_grad_norm_: the norm of the gradients is nan"));
}

TEST_CASE("parameters become one vector and come back from it") {
  nn::Linear layer(2, 3);
  const Tensor all = nn::utils::parameters_to_vector(layer->parameters());
  CHECK(all.numel() == 9);
  nn::utils::vector_to_parameters(arange(9).to(kFloat32), layer->parameters());
  CHECK(layer->bias.equal(tensor({6.0, 7.0, 8.0})));
  CHECK(error_text([&] { nn::utils::vector_to_parameters(ones({4}), layer->parameters()); }) ==
        "vector_to_parameters: the parameters have 9 numbers, the vector has shape [4].");
}

TEST_CASE("an embedding shortens the rows that are looked up and longer than max_norm") {
  const auto table = [] { return tensor({{3.0, 4.0}, {6.0, 8.0}, {0.3, 0.4}, {30.0, 40.0}}); };
  nn::Embedding layer(nn::EmbeddingOptions(4, 2).max_norm(5));
  layer->weight.set_data(table());
  const Tensor y = layer(tensor({{1, 2}, {1, 0}}));
  const Tensor want =
      tensor({{3.0, 4.0}, {3.0, 4.0}, {0.3, 0.4}, {30.0, 40.0}});  // row 3 was not asked for
  CHECK(layer->weight.allclose(want));
  CHECK(layer->weight[0].equal(table()[0]));  // not longer than allowed, so untouched
  CHECK(layer->weight[2].equal(table()[2]));
  CHECK(y.equal(layer->weight.index({tensor({{1, 2}, {1, 0}})})));
  y.sum().backward();
  CHECK(layer->weight.grad().equal(tensor({{1.0, 1.0}, {2.0, 2.0}, {1.0, 1.0}, {0.0, 0.0}})));
  CHECK(str(*layer) == "grapnel::nn::Embedding(num_embeddings=4, embedding_dim=2, max_norm=5)");

  // Another norm, a table that exists already, and the same bits compiled, without a break.
  const auto options = nn::EmbeddingFromPretrainedOptions().padding_idx(0).max_norm(7).norm_type(1);
  nn::Embedding eager = nn::Embedding::from_pretrained(table(), options),
                compiled = nn::Embedding::from_pretrained(table(), options);
  CHECK_FALSE(eager->weight.requires_grad());
  CHECK(nn::Embedding::from_pretrained(table(), false)->weight.requires_grad());
  const Tensor ids = tensor({3, 0, 3});
  auto look_up = compile([&](const Tensor& i) { return compiled(i); }, {.fullgraph = true});
  CHECK(eager(ids).equal(look_up(ids)));
  CHECK(eager->weight.equal(compiled->weight));
  CHECK(eager->weight.abs().sum({1}).allclose(tensor({7.0, 14.0, 0.7, 7.0})));
}

TEST_CASE("dropout between layers follows the mode of the module") {
  manual_seed(1);
  nn::LSTM lstm(nn::LSTMOptions(3, 4).num_layers(2).dropout(0.5));
  const Tensor x = randn({5, 2, 3});
  lstm->eval();
  CHECK(std::get<0>(lstm(x)).equal(std::get<0>(lstm(x))));
  lstm->train();
  CHECK_FALSE(std::get<0>(lstm(x)).equal(std::get<0>(lstm(x))));
}

TEST_CASE("layers say what is wrong with options and inputs") {
  CHECK(error_text([] { nn::Conv2d(nn::Conv2dOptions(3, 4, 3).groups(2)); }) ==
        "Conv2d: groups must divide in_channels and out_channels, got groups 2, in_channels 3 and "
        "out_channels 4.");
  CHECK(error_text([] {
          nn::Conv2d(nn::Conv2dOptions(2, 2, 3).stride(2).padding(nn::Padding::same));
        }) == "Conv2d: the padding `same` needs stride 1, got [2, 2].");
  CHECK(error_text([] { nn::Conv2dOptions(2, 2, {1, 2, 3}); }) ==
        "expected 1 or 2 numbers, one per dimension, got 3.");
  CHECK(error_text([] { nn::BatchNorm2d(3)(ones({2, 3})); }) ==
        "BatchNorm2d: the input must have 4 dimensions, got shape [2, 3].");
  CHECK(error_text([] { nn::GroupNorm(2, 3); }) ==
        "GroupNorm: num_groups must divide num_channels, got 2 and 3.");
  CHECK(error_text([] { nn::MultiheadAttention(5, 2); }) ==
        "MultiheadAttention: num_heads must divide embed_dim, got 2 and 5.");
  CHECK(error_text([] { nn::GRU(3, 4)(ones({5, 2, 2})); }) ==
        "GRU: the input must be [time, batch, 3], got shape [5, 2, 2].");
  CHECK(error_text([] { nn::Embedding(nn::EmbeddingOptions(3, 2).padding_idx(3)); }) ==
        "Embedding: padding_idx must be in [-3, 3), got 3.");
  CHECK(error_text([] { nn::GLU()(ones({3})); }) ==
        "glu: dimension -1 must have an even size to be halved, x is [3].");
}
