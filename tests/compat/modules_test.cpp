// LibTorch-style programs with nn::Module, torch::nn::functional and torch::optim.
#include <doctest/doctest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <sstream>

#include "grapnel/compat/torch.h"

namespace F = torch::nn::functional;

namespace {

struct NetImpl : torch::nn::Module {
  explicit NetImpl(int64_t hidden)
      : first(register_module("first", torch::nn::Linear(2, hidden))),
        second(register_module("second",
                               torch::nn::Linear(torch::nn::LinearOptions(hidden, 1).bias(true)))) {
    scale = register_parameter("scale", torch::ones({1}));
    calls = register_buffer("calls", torch::zeros({}, torch::kInt64));
  }
  torch::Tensor forward(torch::Tensor x) {
    calls += 1;
    return second->forward(torch::tanh(first->forward(x))) * scale;
  }
  torch::nn::Linear first{nullptr}, second{nullptr};
  torch::Tensor scale, calls;
};
TORCH_MODULE(Net);

const double xor_inputs[4][2] = {{0, 0}, {0, 1}, {1, 0}, {1, 1}};

std::pair<torch::Tensor, torch::Tensor> xor_data() {
  auto x = torch::from_blob(const_cast<double*>(&xor_inputs[0][0]), {4, 2}, torch::kFloat64)
               .to(torch::kFloat32);
  return {x, torch::ne(x.select(1, 0), x.select(1, 1)).to(torch::kFloat32).unsqueeze(1)};
}

}  // namespace

TEST_CASE("a module lists its parameters and buffers by path") {
  Net net(3);
  std::vector<std::string> names;
  for (const auto& item : net->named_parameters()) names.push_back(item.key());
  CHECK(names == std::vector<std::string>{"scale", "first.weight", "first.bias", "second.weight",
                                          "second.bias"});
  CHECK(net->named_buffers().contains("calls"));
  CHECK(net->parameters().size() == 5);
  CHECK(net->named_parameters()["first.weight"].sizes() == torch::IntArrayRef({3, 2}));
}

TEST_CASE("a module is trained on XOR by SGD with momentum") {
  torch::manual_seed(11);
  auto [x, y] = xor_data();
  Net net(8);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.5).momentum(0.9));
  for (int epoch = 0; epoch < 400; ++epoch) {
    optimizer.zero_grad();
    auto loss = F::mse_loss(net->forward(x), y, F::MSELossFuncOptions().reduction(torch::kMean));
    loss.backward();
    torch::nn::utils::clip_grad_norm_(net->parameters(), 1.0);
    optimizer.step();
  }
  net->eval();
  torch::NoGradGuard no_grad;
  CHECK((net(x) - y).abs().max().item<float>() < 0.05);
  CHECK(net->calls.item<int64_t>() == 401);
}

TEST_CASE("a Sequential is trained by AdamW with a schedule") {
  torch::manual_seed(5);
  torch::nn::Sequential model(torch::nn::Linear(2, 16), torch::nn::ReLU(),
                              torch::nn::Linear(16, 2));
  auto [x, y] = xor_data();
  auto target = y.squeeze(1).to(torch::kLong);
  torch::optim::AdamW optimizer(
      model->parameters(),
      torch::optim::AdamWOptions(0.05).weight_decay(1e-3).betas(std::make_tuple(0.9, 0.99)));
  torch::optim::StepLR schedule(optimizer, /*step_size=*/50, /*gamma=*/0.5);
  torch::nn::CrossEntropyLoss criterion;
  for (int step = 0; step < 200; ++step) {
    optimizer.zero_grad();
    criterion(model->forward(x), target).backward();
    optimizer.step();
    schedule.step();
  }
  CHECK(torch::equal(model->forward(x).argmax(1), target));
  CHECK(optimizer.param_groups()[0].options().get_lr() == doctest::Approx(0.05 / 8));
}

TEST_CASE("groups of parameters have learning rates of their own") {
  auto a = torch::zeros({1}, torch::requires_grad()), b = torch::zeros({1}, torch::requires_grad());
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<torch::Tensor>{a},
                      std::make_unique<torch::optim::SGDOptions>(0.5));
  groups.emplace_back(std::vector<torch::Tensor>{b});
  torch::optim::SGD optimizer(groups, /*defaults=*/0.1);
  (a + b).sum().backward();
  optimizer.step();
  CHECK(a.item<double>() == doctest::Approx(-0.5));
  CHECK(b.item<double>() == doctest::Approx(-0.1));
  static_cast<torch::optim::SGDOptions&>(optimizer.param_groups()[1].options()).lr(1.0);
  optimizer.step();
  CHECK(b.item<double>() == doctest::Approx(-1.1));
}

TEST_CASE("functional options mean what LibTorch's mean") {
  auto x = torch::tensor({{1.0, -1.0}, {0.0, 2.0}}, torch::kFloat64);
  auto t = torch::tensor({0, 1});
  CHECK(
      F::cross_entropy(x, t, F::CrossEntropyFuncOptions().reduction(torch::kSum)).item<double>() ==
      doctest::Approx(2 * std::log1p(std::exp(-2.0))));
  CHECK(F::cross_entropy(x, t, F::CrossEntropyFuncOptions().reduction(torch::kNone)).sizes() ==
        torch::IntArrayRef({2}));
  CHECK(torch::allclose(F::nll_loss(F::log_softmax(x, 1), t), F::cross_entropy(x, t)));
  CHECK(torch::equal(F::dropout(x, F::DropoutFuncOptions().p(0.9).training(false)), x));
  CHECK(torch::allclose(F::softmax(x, F::SoftmaxFuncOptions(-1)).sum(1),
                        torch::ones({2}, torch::kFloat64)));
  CHECK(F::leaky_relu(x, F::LeakyReLUFuncOptions().negative_slope(0.5))
            .index({0, 1})
            .item<double>() == -0.5);
  CHECK(torch::mse_loss(x, torch::zeros_like(x), at::Reduction::Sum).item<double>() == 6);
  auto p = torch::sigmoid(x);
  CHECK(torch::allclose(F::binary_cross_entropy(p, torch::ones_like(x)),
                        F::binary_cross_entropy_with_logits(x, torch::ones_like(x))));
  auto image = torch::arange(16, torch::kFloat32).view({1, 1, 4, 4});
  CHECK(torch::equal(F::max_pool2d(image, F::MaxPool2dFuncOptions(2)).flatten(),
                     torch::tensor({5.0, 7.0, 13.0, 15.0})));
  CHECK(
      F::conv2d(image, torch::ones({2, 1, 3, 3}), F::Conv2dFuncOptions().padding(1).stride({2, 1}))
          .sizes() == torch::IntArrayRef({1, 2, 2, 4}));
}

TEST_CASE("functional losses, pooling and norms mean what LibTorch's mean") {
  auto x = torch::tensor({{1.0, -1.0}, {0.0, 2.5}}, torch::kFloat64), zero = torch::zeros_like(x);
  CHECK(F::smooth_l1_loss(x, zero, F::SmoothL1LossFuncOptions(torch::kSum)).item<double>() == 3);
  CHECK(F::smooth_l1_loss(x, zero, F::SmoothL1LossFuncOptions(torch::kSum), 0.5).item<double>() ==
        3.75);
  CHECK(F::huber_loss(x, zero, F::HuberLossFuncOptions().reduction(torch::kSum).delta(0.5))
            .item<double>() == doctest::Approx(1.875));
  auto target = torch::full({2, 2}, 0.5, torch::kFloat64);
  auto divergence = [&](F::KLDivFuncOptions options) {
    return F::kl_div(x, target, options).item<double>();
  };
  const double sum = divergence(F::KLDivFuncOptions().reduction(torch::kSum));
  CHECK(sum == doctest::Approx(2 * std::log(0.5) - 1.25));
  CHECK(divergence(F::KLDivFuncOptions(torch::kBatchMean)) == doctest::Approx(sum / 2));
  CHECK(torch::nn::KLDivLoss(torch::nn::KLDivLossOptions(torch::kMean))
            ->forward(x, target)
            .item<double>() == doctest::Approx(sum / 4));

  auto row = torch::tensor({{{1.0, 3.0, 2.0, 5.0}}});
  CHECK(
      torch::equal(F::max_pool1d(row, F::MaxPool1dFuncOptions(2)), torch::tensor({{{3.0, 5.0}}})));
  CHECK(torch::equal(F::avg_pool1d(row, F::AvgPool1dFuncOptions(2).stride(1)),
                     torch::tensor({{{2.0, 2.5, 3.5}}})));
  CHECK(torch::equal(F::adaptive_avg_pool1d(row, F::AdaptiveAvgPool1dFuncOptions(1)),
                     torch::tensor({{{2.75}}})));
  auto image = torch::arange(16, torch::kFloat32).view({1, 1, 4, 4});
  CHECK(
      torch::equal(F::adaptive_max_pool2d(image, F::AdaptiveMaxPool2dFuncOptions({2, 1})).flatten(),
                   torch::tensor({7.0, 15.0})));
  CHECK(torch::allclose(F::group_norm(image, F::GroupNormFuncOptions(1)).mean(), torch::zeros({}),
                        0, 1e-6));
  auto mean = torch::ones({1}), variance = torch::full({1}, 4.0);
  CHECK(torch::allclose(F::batch_norm(image, mean, variance, F::BatchNormFuncOptions().eps(0)),
                        (image - 1) / 2));

  CHECK(torch::allclose(F::normalize(torch::tensor({{3.0, 4.0}})), torch::tensor({{0.6, 0.8}})));
  CHECK(torch::equal(F::hardtanh(x, F::HardtanhFuncOptions().min_val(-0.5).max_val(2)),
                     torch::tensor({{1.0, -0.5}, {0.0, 2.0}}, torch::kFloat64)));
  CHECK(torch::equal(F::relu6(x * 4), torch::tensor({{4.0, 0.0}, {0.0, 6.0}}, torch::kFloat64)));
  CHECK(torch::allclose(F::glu(x, 1),
                        x.select(1, 0).unsqueeze(1) * x.select(1, 1).unsqueeze(1).sigmoid()));
  CHECK(torch::allclose(F::logsigmoid(x), torch::log(torch::sigmoid(x))));
  CHECK(torch::allclose(F::softsign(x), x / (1 + x.abs())));
  CHECK(torch::allclose(F::mish(x), x * torch::tanh(F::softplus(x))));
  CHECK(torch::allclose(F::selu(x).clamp_min(0), 1.0507009873554805 * x.clamp_min(0)));
}

TEST_CASE("an embedding renormalises the rows that it looks up") {
  auto table = torch::tensor({{3.0, 4.0}, {0.3, 0.4}, {6.0, 8.0}});
  auto ids = torch::tensor({0, 1});
  auto y = F::embedding(ids, table, F::EmbeddingFuncOptions().max_norm(1));
  auto want = torch::tensor({{0.6, 0.8}, {0.3, 0.4}, {6.0, 8.0}});
  CHECK(torch::allclose(table, want));
  CHECK(torch::allclose(y, want.slice(0, 0, 2)));
  torch::nn::Embedding layer(
      torch::nn::EmbeddingOptions(3, 2).max_norm(2).norm_type(1).padding_idx(1));
  CHECK(layer->forward(torch::tensor({0, 1, 2})).abs().sum(1).max().item<double>() <= 2.00001);
  auto loaded = torch::nn::Embedding::from_pretrained(
      want, torch::nn::EmbeddingFromPretrainedOptions().freeze(false).max_norm(5));
  CHECK(loaded->weight.requires_grad());
  CHECK(torch::allclose(loaded->forward(torch::tensor({2})), torch::tensor({{3.0, 4.0}})));
}

TEST_CASE("layers, recurrent and others, are found under LibTorch's names") {
  torch::manual_seed(2);
  torch::nn::LSTM lstm(torch::nn::LSTMOptions(3, 4).num_layers(2).batch_first(true));
  auto [sequence, state] = lstm->forward(torch::randn({2, 5, 3}));
  CHECK(sequence.sizes() == torch::IntArrayRef({2, 5, 4}));
  CHECK(std::get<1>(state).sizes() == torch::IntArrayRef({2, 2, 4}));
  torch::nn::GRU gru(torch::nn::GRUOptions(3, 4).bidirectional(true));
  CHECK(std::get<0>(gru->forward(torch::randn({5, 2, 3}))).sizes() ==
        torch::IntArrayRef({5, 2, 8}));
  torch::nn::TransformerEncoderLayer encoder(torch::nn::TransformerEncoderLayerOptions(8, 2)
                                                 .dim_feedforward(16)
                                                 .activation(torch::kGELU)
                                                 .dropout(0));
  CHECK(encoder->forward(torch::randn({4, 2, 8})).sizes() == torch::IntArrayRef({4, 2, 8}));
  torch::nn::MultiheadAttention attention(torch::nn::MultiheadAttentionOptions(8, 2));
  auto q = torch::randn({4, 2, 8});
  CHECK(std::get<1>(attention->forward(q, q, q)).sizes() == torch::IntArrayRef({2, 4, 4}));
  torch::nn::Sequential net(
      torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 2, 3).padding(torch::kSame)),
      torch::nn::BatchNorm2d(2), torch::nn::ReLU(), torch::nn::MaxPool2d(2),
      torch::nn::AdaptiveAvgPool2d(1), torch::nn::Flatten(), torch::nn::Linear(2, 3));
  CHECK(net->forward(torch::randn({2, 1, 6, 6})).sizes() == torch::IntArrayRef({2, 3}));
}

TEST_CASE("what torch::save wrote, torch::load reads: modules, optimisers, tensors, lists") {
  const std::string file =
      std::filesystem::temp_directory_path() / ("compat-" + std::to_string(getpid()) + ".pt");
  torch::manual_seed(3);
  Net net(3), other(3);
  torch::save(net, file);
  torch::load(other, file);
  CHECK(torch::equal(net->first->weight, other->first->weight));
  auto inner = std::make_shared<NetImpl>(3);
  torch::load(inner, file);
  CHECK(torch::equal(net->second->bias, inner->second->bias));
  torch::save(inner, file);
  torch::load(other, file, torch::Device(torch::kCPU));

  torch::optim::Adam optimizer(net->parameters(), 0.1), resumed(other->parameters(), 0.1);
  const auto step = [](Net& model, torch::optim::Adam& adam, double scale) {
    adam.zero_grad();
    (model->forward(torch::ones({1, 2})) * scale).sum().backward();
    adam.step();
  };
  step(net, optimizer, 1);
  torch::save(optimizer, file);
  torch::load(resumed, file);
  torch::save(net, file);
  torch::load(other, file);
  step(net, optimizer, -3);  // Adam remembers the step before
  step(other, resumed, -3);
  CHECK(torch::equal(net->first->weight, other->first->weight));

  auto x = torch::randn({2, 3});
  torch::save(x, file);
  torch::Tensor y;
  torch::load(y, file);
  CHECK(torch::equal(x, y));
  torch::save(std::vector<torch::Tensor>{x, x * 2}, file);
  std::vector<torch::Tensor> list;
  torch::load(list, file);
  CHECK(list.size() == 2);
  CHECK(torch::equal(list[1], x * 2));
  std::filesystem::remove(file);
}

TEST_CASE("initialisers take LibTorch's fan and nonlinearity") {
  torch::manual_seed(1);
  auto w = torch::empty({200, 50});
  torch::nn::init::kaiming_normal_(w, 0, torch::kFanOut, torch::kReLU);
  CHECK(w.std().item<double>() == doctest::Approx(std::sqrt(2.0 / 200)).epsilon(0.03));
  torch::nn::init::xavier_uniform_(w);
  CHECK(w.abs().max().item<double>() <= std::sqrt(6.0 / 250));
  CHECK(torch::nn::init::calculate_gain(torch::kTanh) == doctest::Approx(5.0 / 3));
}

TEST_CASE("parameters go into one vector and come back") {
  Net net(2);
  auto flat = torch::nn::utils::parameters_to_vector(net->parameters());
  CHECK(flat.sizes() == torch::IntArrayRef({10}));
  torch::nn::utils::vector_to_parameters(torch::arange(10, torch::kFloat32), net->parameters());
  CHECK(net->scale.item<float>() == 0);
  CHECK(net->second->bias.item<float>() == 9);
}
