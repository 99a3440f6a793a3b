// Forms that programs for LibTorch are written in: names, overloads and small helpers.
#include <doctest/doctest.h>

#include <cmath>
#include <sstream>

#include "grapnel/compat/torch.h"

namespace F = torch::nn::functional;

namespace {

namespace program {

// LibTorch has no function of this name that would be found beside it.
torch::Tensor cross_entropy(torch::Tensor prediction, torch::Tensor target) {
  return -(target * prediction.log()).sum();
}
double loss() {
  auto p = torch::tensor({0.25, 0.75});
  return cross_entropy(p, torch::tensor({0.0, 1.0})).item<double>();
}

}  // namespace program

namespace whole_namespace {

using namespace torch::nn;

torch::Tensor run(torch::Tensor x) {
  Linear layer(2, 2);
  init::ones_(layer->weight);
  init::zeros_(layer->bias);
  auto y = functional::relu(layer->forward(x));
  y.sum().backward();
  utils::clip_grad_norm_(layer->parameters(), 1.0);
  return y;
}

}  // namespace whole_namespace

}  // namespace

TEST_CASE(
    "a program's own cross_entropy is found, and namespace torch::nn may be used as a whole") {
  CHECK(program::loss() == doctest::Approx(-std::log(0.75)));
  CHECK(whole_namespace::run(torch::ones({1, 2})).sum().item<float>() == 4);
}

TEST_CASE("tensors go to devices and types in every form") {
  auto x = torch::ones({2});
  CHECK(x.to(torch::kCPU).is_cpu());
  CHECK(x.to(torch::Device(torch::kCPU), torch::kFloat64).scalar_type() == torch::kFloat64);
  CHECK(x.to(torch::kCPU, /*non_blocking=*/true).is_cpu());
  CHECK(x.to(torch::kInt64, /*non_blocking=*/false, /*copy=*/true).scalar_type() == torch::kInt64);
  CHECK(x.to(torch::zeros({1}, torch::kFloat64)).scalar_type() == torch::kFloat64);
  CHECK(
      x.to(torch::TensorOptions().dtype(torch::kFloat64).device(torch::kCPU)).is_floating_point());
  CHECK(torch::Device("cpu").type() == torch::kCPU);
  CHECK(x.device().str() == "cpu");
  CHECK(torch::Device("cuda:1").index() == 1);
  CHECK(x.layout() == torch::kStrided);
  CHECK(torch::empty({2}, torch::TensorOptions().layout(torch::kStrided)).numel() == 2);
}

TEST_CASE("a Scalar gives its number under LibTorch's names") {
  auto x = torch::tensor(2.75);
  CHECK(x.item().toDouble() == 2.75);
  CHECK(x.item().toFloat() == 2.75f);
  CHECK(x.item().toInt() == 2);
  CHECK(torch::tensor(7).item().toLong() == 7);
  CHECK(torch::tensor(true).item().toBool());
  CHECK(x.item().isFloatingPoint());
  CHECK(torch::tensor(7).item().isIntegral(/*includeBool=*/false));
}

TEST_CASE("helpers of c10 and macros do what they say") {
  int64_t sum = 0;
  for (const auto i : c10::irange(4)) sum += i;
  for (const auto i : c10::irange(10, 12)) sum += i;
  CHECK(sum == 6 + 21);
  CHECK(c10::str("a", 2, "b") == "a2b");
  for (int i = 0; i < 2; ++i) TORCH_WARN_ONCE("said once, by idioms_test ", i);
  torch::ExpandingArray<2> both(3), each({1, 2});
  CHECK(both->at(1) == 3);
  CHECK((*each)[1] == 2);
  CHECK(each.size() == 2);
  std::ostringstream out;
  out << torch::ones({1}, torch::requires_grad()).mul(2).grad_fn();
  CHECK_FALSE(out.str().empty());
}

TEST_CASE("losses are plain functions with a reduction") {
  auto x = torch::tensor({0.2, 0.9}), y = torch::tensor({0.0, 1.0});
  CHECK(torch::smooth_l1_loss(x, y).item<float>() == doctest::Approx(0.25 * (0.04 + 0.01)));
  CHECK(torch::huber_loss(x, y, torch::Reduction::Sum).item<float>() ==
        doctest::Approx(0.5 * (0.04 + 0.01)));
  CHECK(torch::binary_cross_entropy(x, y, {}, torch::Reduction::None).sizes() ==
        torch::IntArrayRef({2}));
  CHECK(torch::kl_div(x.log(), x, torch::Reduction::Sum).item<float>() == doctest::Approx(0));
}

TEST_CASE("layers without state are plain functions, too") {
  auto image = torch::arange(16, torch::kFloat32).view({1, 1, 4, 4});
  CHECK(torch::adaptive_avg_pool2d(image, {1, 1}).item<float>() == 7.5f);
  CHECK(torch::max_pool1d(image[0], 2).sizes() == torch::IntArrayRef({1, 4, 2}));
  CHECK(torch::group_norm(image, 1).mean().item<float>() == doctest::Approx(0).epsilon(1e-5));
  CHECK(torch::constant_pad_nd(image, {1, 1}, 3).size(3) == 6);
  CHECK(torch::reflection_pad2d(image, {1, 1, 1, 1})[0][0][0][0].item<float>() == 5);
  CHECK(torch::upsample_nearest2d(image, {8, 8}).size(2) == 8);
  auto x = torch::tensor({-2.0, 3.0});
  CHECK(torch::hardtanh(x).equal(torch::tensor({-1.0, 1.0})));
  CHECK(torch::selu(x)[1].item<float>() == doctest::Approx(3 * 1.0507009873554805));
  torch::relu_(x);
  CHECK(x.equal(torch::tensor({0.0, 3.0})));
}

TEST_CASE("functions with fixed arguments, and lambdas, are modules") {
  using torch::nn::Functional;
  auto x = torch::tensor({-1.0, 2.0});
  CHECK(Functional(torch::relu)(x).equal(torch::tensor({0.0, 2.0})));
  CHECK(Functional(torch::elu, 1, 0, 1)(x).equal(torch::tensor({0.0, 0.0})));
  CHECK(Functional([](const torch::Tensor& t) { return t * 2; })(x).equal(x * 2));
  CHECK(Functional([](torch::Tensor t) { return t + 1; })(x).equal(x + 1));
}

TEST_CASE("containers take holders, give what they hold, and are walked through") {
  torch::nn::ModuleList list(torch::nn::Linear(3, 4), torch::nn::ReLU());
  list->push_back(torch::nn::Linear(4, 2));
  list->extend(std::vector<torch::nn::Linear>{torch::nn::Linear(2, 1)});
  CHECK(list->size() == 4);
  CHECK(list[1]->as<torch::nn::ReLU>() != nullptr);
  CHECK(list->at<torch::nn::LinearImpl>(2).options.in_features() == 4);
  size_t count = 0;
  for (const auto& module : *list) count += module != nullptr;
  CHECK(count == 4);
  CHECK(list.get() == list.ptr().get());

  torch::nn::ModuleDict dict;
  torch::OrderedDict<std::string, std::shared_ptr<torch::nn::Module>> more;
  more.insert("fc", torch::nn::Linear(1, 2).ptr());
  more.insert("act", torch::nn::Tanh().ptr());
  dict->update(more);
  std::string keys;
  for (const auto& item : *dict) keys += item.key();
  CHECK(keys == "fcact");
  CHECK(dict["fc"]->parameters().size() == 2);

  torch::nn::ParameterList parameters(torch::ones({2}), torch::zeros({3}));
  parameters->append(torch::ones({4}));
  CHECK(parameters->parameters().size() == 3);
  CHECK(parameters[2].size(0) == 4);
  torch::nn::ParameterDict named;
  named->insert("w", torch::ones({2}, torch::requires_grad()));
  CHECK(named->named_parameters().contains("w"));
  CHECK(named["w"].requires_grad());
  named->pop("w");
  CHECK(named->empty());

  torch::nn::Sequential net(torch::nn::Linear(2, 2), torch::nn::Functional(torch::tanh));
  CHECK(net[0]->as<torch::nn::Linear>() != nullptr);
}

TEST_CASE("a constant module shows what is in it") {
  const torch::nn::Sequential net(torch::nn::Linear(2, 3), torch::nn::ReLU());
  const torch::nn::Module& module = *net;
  size_t seen = 0;
  module.apply([&](const torch::nn::Module&) { ++seen; });
  CHECK(seen == 3);
  CHECK(module.children().size() == 2);
  net->to(torch::Device(torch::kCPU), /*non_blocking=*/true);
}

TEST_CASE("activations and dropout work in place") {
  auto x = torch::tensor({-1.0, 2.0});
  torch::nn::LeakyReLU leaky(torch::nn::LeakyReLUOptions().negative_slope(0.5).inplace(true));
  leaky(x);
  CHECK(x.equal(torch::tensor({-0.5, 2.0})));
  F::elu(x, F::ELUFuncOptions().alpha(0).inplace(true));
  CHECK(x.equal(torch::tensor({0.0, 2.0})));
  // The gradient is that of the values from before.
  auto w = torch::tensor({-1.0, 2.0}, torch::requires_grad());
  auto y = w * 1;
  leaky(y).sum().backward();
  CHECK(w.grad().equal(torch::tensor({0.5, 1.0})));
  torch::nn::Dropout dropout(torch::nn::DropoutOptions(0.5).inplace(true));
  dropout->eval();
  CHECK(dropout(x).equal(torch::tensor({0.0, 2.0})));
}

TEST_CASE("dropout of channels drops whole channels") {
  torch::manual_seed(3);
  auto y = torch::nn::Dropout2d(0.5)(torch::ones({8, 16, 3, 3}));
  CHECK(y.amax({2, 3}).equal(y.amin({2, 3})));
  auto kept = y.gt(0).to(torch::kFloat32).mean().item<float>();
  CHECK(kept > 0.3);
  CHECK(kept < 0.7);
  CHECK(y.max().item<float>() == 2);
  // The other keeps mean and variance of what is normal.
  auto z = torch::nn::AlphaDropout(0.3)(torch::randn({20000}));
  CHECK(std::abs(z.mean().item<float>()) < 0.05);
  CHECK(std::abs(z.std().item<float>() - 1) < 0.05);
}

TEST_CASE("operators, extremes and random numbers have all forms") {
  auto x = torch::tensor({5, -3});
  CHECK((x % 4).equal(torch::tensor({1, 1})));
  CHECK((~x.gt(0)).equal(torch::tensor({false, true})));
  CHECK(x.max(torch::tensor({0, 0})).equal(torch::tensor({5, 0})));
  CHECK(x.repeat_interleave(2).equal(torch::tensor({5, 5, -3, -3})));
  CHECK(x.unsqueeze(0).swapaxes(0, 1).sizes() == torch::IntArrayRef({2, 1}));
  CHECK(torch::diag(torch::ones({2})).equal(torch::eye(2)));
  auto grid = torch::meshgrid({torch::arange(2), torch::arange(3)}, "ij");
  CHECK(grid[1].sizes() == torch::IntArrayRef({2, 3}));
  CHECK(std::get<1>(torch::std_mean(torch::ones({3}))).item<float>() == 1);
  CHECK(torch::zeros({100}).random_(5).max().item<float>() <= 4);
  CHECK(torch::normal(3.0, 0.0, {2}).equal(torch::full({2}, 3.0)));
  CHECK(
      torch::multinomial(torch::tensor({0.0, 1.0}), 3, true).equal(torch::ones({3}, torch::kLong)));
  CHECK(torch::bernoulli(torch::ones({3})).equal(torch::ones({3})));
  auto y = torch::zeros({2, 3});
  y.unsqueeze_(0).resize_({6}).t_();
  CHECK(y.sizes() == torch::IntArrayRef({6}));
  CHECK(y.new_ones({2}).sum().item<float>() == 2);
}

TEST_CASE("functional pads, resizes and samples") {
  auto x = torch::arange(4, torch::kFloat32).view({1, 1, 2, 2});
  CHECK(F::pad(x, F::PadFuncOptions({1, 0}).mode(torch::kReplicate)).sum().item<float>() == 8);
  CHECK(F::pad(x, F::PadFuncOptions({1, 0}).mode(torch::kConstant).value(5)).sum().item<float>() ==
        16);
  auto up = F::interpolate(x, F::InterpolateFuncOptions()
                                  .scale_factor(std::vector<double>({2, 2}))
                                  .mode(torch::kBilinear)
                                  .align_corners(false));
  CHECK(up.sizes() == torch::IntArrayRef({1, 1, 4, 4}));
  CHECK(up.mean().item<float>() == doctest::Approx(1.5));
  CHECK(F::interpolate(
            x, F::InterpolateFuncOptions().size(std::vector<int64_t>({4, 2})).mode(torch::kNearest))
            .sum()
            .item<float>() == 12);
  CHECK(F::cosine_similarity(x, x, F::CosineSimilarityFuncOptions().dim(3)).sizes() ==
        torch::IntArrayRef({1, 1, 2}));
  torch::manual_seed(1);
  auto hot = F::gumbel_softmax(torch::zeros({4, 3}), F::GumbelSoftmaxFuncOptions().hard(true));
  CHECK(hot.sum().item<float>() == doctest::Approx(4));
  CHECK(hot.max().item<float>() == doctest::Approx(1));
}

TEST_CASE("modules, tensors, lists and archives go through streams") {
  torch::manual_seed(5);
  torch::nn::Linear layer(3, 2), other(3, 2);
  std::stringstream stream;
  torch::save(layer, stream);
  torch::load(other, stream);
  CHECK(other->weight.equal(layer->weight));

  std::stringstream second;
  torch::save(torch::arange(4), second);
  torch::Tensor x;
  torch::load(x, second);
  CHECK(x.equal(torch::arange(4)));

  std::stringstream third;
  torch::save(std::vector<torch::Tensor>{torch::ones({2}), torch::zeros({1})}, third);
  std::vector<torch::Tensor> list;
  torch::load(list, third);
  REQUIRE(list.size() == 2);
  CHECK(list[1].equal(torch::zeros({1})));

  torch::serialize::OutputArchive out, inner;
  inner.write("bias", torch::ones({2}));
  out.write("weight", layer->weight);
  out.write("inner", inner);
  std::stringstream fourth;
  out.save_to(fourth);
  torch::serialize::InputArchive in, part;
  in.load_from(fourth);
  in.read("weight", x);
  CHECK(x.equal(layer->weight));
  in.read("inner", part);
  CHECK(part.try_read("bias", x));
  CHECK(x.size(0) == 2);
  CHECK_FALSE(part.try_read("scale", x));
}
