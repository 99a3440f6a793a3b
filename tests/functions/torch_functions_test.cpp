/// Functions that are made of others, against PyTorch: tools/record_torch.py wrote down what it
/// computes, in f64. Each is also checked against finite differences, twice, and compiled.
#include <doctest/doctest.h>

#include <functional>

#include "grapnel/grapnel.h"
#include "grapnel/io/safetensors.h"

using namespace grapnel;

namespace {

using Tensors = std::vector<Tensor>;
using Fn = std::function<Tensors(const Tensors&)>;

const io::NamedTensors& recorded() {
  static const io::Safetensors file =
      io::load_safetensors("tests/functions/torch_functions.safetensors");
  return file.tensors;
}

Tensors as_list(const Tensor& t) { return {t}; }
Tensors as_list(const Tensors& t) { return t; }
template <class... T>
Tensors as_list(const std::tuple<T...>& t) {
  return std::apply([](const auto&... part) { return Tensors{part...}; }, t);
}

void check_close(const std::string& what, const Tensor& got) {
  const Tensor* expected = recorded().find(what);
  REQUIRE_MESSAGE(expected != nullptr, what, " was not recorded");
  REQUIRE_MESSAGE(got.defined(), what);
  CHECK_MESSAGE(got.dtype() == expected->dtype(), what);
  REQUIRE_MESSAGE(got.shape() == expected->shape(), what);
  CHECK_MESSAGE(allclose(got.to(kFloat64), expected->to(kFloat64), 1e-10, 1e-12, true), what, "\n",
                got.str(), "\n", expected->str());
}

/// Whether a result has a gradient that was recorded.
bool flows(const std::string& name, size_t i) {
  return recorded().contains(name + "/g." + std::to_string(i));
}

Tensors inputs_of(const std::string& name) {
  Tensors inputs;
  while (const Tensor* in = recorded().find(name + "/in." + std::to_string(inputs.size())))
    inputs.push_back(in->clone().set_requires_grad(
        recorded().contains(name + "/gin." + std::to_string(inputs.size()))));
  return inputs;
}

void check_values_and_gradients(const std::string& name, const Fn& fn) {
  const Tensors inputs = inputs_of(name), out = fn(inputs);
  Tensor loss = zeros({}, kFloat64);
  for (size_t i = 0; i < out.size(); ++i) {
    check_close(name + "/out." + std::to_string(i), out[i]);
    if (flows(name, i)) loss = loss + (out[i] * recorded()[name + "/g." + std::to_string(i)]).sum();
  }
  CHECK_MESSAGE(!recorded().contains(name + "/out." + std::to_string(out.size())), name);
  if (!loss.requires_grad()) return;
  loss.backward();
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].requires_grad())
      check_close(name + "/gin." + std::to_string(i), inputs[i].grad());
}

/// Finite differences of the results that have a gradient, and of the gradient.
void check_differences(const std::string& name, const Fn& fn) {
  const Fn smooth = [&](const Tensors& in) {
    Tensors kept;
    const Tensors out = fn(in);
    for (size_t i = 0; i < out.size(); ++i)
      if (flows(name, i)) kept.push_back(out[i]);
    return kept;
  };
  const Tensors inputs = inputs_of(name);
  if (smooth(inputs).empty() || name == "nan_to_num") return;  // infinities have no differences
  CHECK_MESSAGE(autograd::gradcheck(smooth, inputs), name);
  CHECK_MESSAGE(autograd::gradgradcheck(smooth, inputs), name);
}

/// Eager and compiled have the same bits, in f64 and in f32: results and gradients.
void check_compiled(const std::string& name, const Fn& fn) {
  for (const DType type : {kFloat64, kFloat32}) {
    const auto run = [&](auto&& f) {
      Tensors inputs = inputs_of(name);
      for (Tensor& t : inputs)
        if (t.is_floating_point()) t = t.detach().to(type).set_requires_grad(t.requires_grad());
      Tensors out = f(inputs), results = out;
      Tensor loss = zeros({}, type);
      for (size_t i = 0; i < out.size(); ++i)
        if (flows(name, i)) loss = loss + (out[i] * out[i]).sum();
      if (loss.requires_grad()) loss.backward();
      for (const Tensor& t : inputs)
        if (t.requires_grad()) results.push_back(t.grad());
      return results;
    };
    auto compiled = compile([&](const Tensors& in) { return fn(in); });
    const Tensors eager = run(fn), fused = run(compiled);
    REQUIRE(eager.size() == fused.size());
    for (size_t i = 0; i < eager.size(); ++i)
      CHECK_MESSAGE(allclose(eager[i], fused[i], 0, 0, true), name, " in ", type, "\n",
                    eager[i].str(), "\n", fused[i].str());
  }
}

struct Case {
  const char* name;
  Fn fn;
};
#define CASE(name, ...)                                                           \
  Case {                                                                          \
    name, []([[maybe_unused]] const Tensors& in) { return as_list(__VA_ARGS__); } \
  }

void check_all(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    INFO(c.name);
    check_values_and_gradients(c.name, c.fn);
    check_differences(c.name, c.fn);
    check_compiled(c.name, c.fn);
  }
}

}  // namespace

TEST_CASE("activations made of other functions are PyTorch's") {
  check_all({CASE("selu", selu(in[0])), CASE("celu", celu(in[0])), CASE("relu6", relu6(in[0])),
             CASE("hardtanh", hardtanh(in[0])), CASE("hardsigmoid", hardsigmoid(in[0])),
             CASE("hardswish", hardswish(in[0])), CASE("hardshrink", hardshrink(in[0])),
             CASE("softshrink", softshrink(in[0])), CASE("tanhshrink", tanhshrink(in[0])),
             CASE("mish", mish(in[0])), CASE("softsign", softsign(in[0])),
             CASE("glu", glu(in[0], 0)), CASE("elu", elu(in[0], 0.7, 1.5, 2.0)),
             CASE("logit", logit(in[0], 0.1)), CASE("nan_to_num", nan_to_num(in[0], 1.0, 2.0)),
             CASE("isclose", isclose(in[0], in[1]))});
}

TEST_CASE("padding, resizing and transposed convolutions are PyTorch's") {
  check_all({CASE("pad", pad(in[0], {1, 2, 0, 1}, PadMode::constant, 0.5)),
             CASE("pad_negative", pad(in[0], {3, -2})),
             CASE("pad_reflect", pad(in[0], {2, 1, 1, 3}, PadMode::reflect)),
             CASE("pad_replicate", pad(in[0], {2, 0, 0, 3}, PadMode::replicate)),
             CASE("pad_circular", pad(in[0], {2, 1, 4, 0}, PadMode::circular)),
             CASE("interpolate", interpolate(in[0], {3, 8}, Interpolation::bilinear)),
             CASE("interpolate_corners", interpolate(in[0], {7, 1}, Interpolation::bilinear, true)),
             CASE("interpolate_nearest", interpolate(in[0], {3, 9})),
             CASE("conv_transpose2d",
                  conv_transpose2d(in[0], in[1], in[2], {2, 1}, {1, 0}, {1, 0}, 1, {1, 2})),
             CASE("conv_transpose1d", conv_transpose1d(in[0], in[1], {}, {3}, {1}, {2}, 2)),
             CASE("pixel_shuffle", pixel_shuffle(in[0], 3)),
             CASE("pixel_unshuffle", pixel_unshuffle(in[0], 2))});
}

TEST_CASE("rearranged elements are where PyTorch has them") {
  check_all({CASE("repeat_interleave", repeat_interleave(in[0], 3, 1)),
             CASE("repeat_interleave_flat", in[0].repeat_interleave(2)),
             CASE("repeat_interleave_each", repeat_interleave(in[0], in[1], 1)),
             CASE("tile", tile(in[0], {2, 1, 3})), CASE("diag", diag(in[0])),
             CASE("diag_matrix", diag(in[0], -1)), CASE("diag_embed", diag_embed(in[0], -2)),
             CASE("diag_above", diag(in[0], 1)), CASE("meshgrid", meshgrid(in)),
             CASE("meshgrid_xy", meshgrid(in, "xy")), CASE("unfold", in[0].unfold(1, 3, 2)),
             CASE("vstack", vstack(in)), CASE("hstack", hstack(in))});
}

TEST_CASE("statistics and searches are PyTorch's") {
  check_all({CASE("std_mean", std_mean(in[0], {1})),
             CASE("var_mean", var_mean(in[0], {0, 2}, false, true)),
             CASE("median", median(in[0], 1)),
             CASE("median_all", median(in[0])),
             CASE("quantile_linear", quantile(in[0], in[1].detach(), 1)),
             CASE("quantile_lower", quantile(in[0], in[1].detach(), 1, false, "lower")),
             CASE("quantile_higher", quantile(in[0], in[1].detach(), 1, false, "higher")),
             CASE("quantile_nearest", quantile(in[0], in[1].detach(), 1, false, "nearest")),
             CASE("quantile_midpoint", quantile(in[0], in[1].detach(), 1, false, "midpoint")),
             CASE("quantile_all", quantile(in[0], 0.4)),
             CASE("count_nonzero", count_nonzero(in[0], {0})),
             CASE("bincount", bincount(in[0], {}, 6)),
             CASE("bincount_weights", bincount(in[0], in[1])),
             CASE("histc", histc(in[0], 5, -1, 2)),
             CASE("histc_range", histc(in[0], 4)),
             CASE("searchsorted", searchsorted(in[0], in[1])),
             CASE("searchsorted_right", searchsorted(in[0], in[1], true)),
             CASE("searchsorted_rows", searchsorted(in[0], in[1])),
             CASE("bucketize", bucketize(in[0], in[1], true)),
             CASE("unique", unique(in[0]))});
}

TEST_CASE("distances, angles and products of many dimensions are PyTorch's") {
  check_all({CASE("cosine_similarity", cosine_similarity(in[0], in[1], 0)),
             CASE("pairwise_distance", pairwise_distance(in[0], in[1])),
             CASE("cdist_1.0", cdist(in[0], in[1], 1)), CASE("cdist_2.0", cdist(in[0], in[1])),
             CASE("cdist_3.0", cdist(in[0], in[1], 3)),
             CASE("cdist_inf", cdist(in[0], in[1], INFINITY)),
             CASE("cross", cross(in[0], in[1], 1)), CASE("tensordot", tensordot(in[0], in[1])),
             CASE("tensordot_dims", tensordot(in[0], in[1], {1, 0}, {0, 2})),
             CASE("logspace", logspace(-1, 2, 7, 10, kFloat64))});
}

TEST_CASE("samples are drawn as often as their weights say, and from a generator if one is given") {
  manual_seed(4);
  const Tensor weights = tensor({0.0, 1.0, 3.0, 0.0, 4.0});
  const Tensor drawn = multinomial(weights, 20000, /*replacement=*/true);
  const Tensor shares = bincount(drawn, {}, 5).to(kFloat64) / 20000.0;
  CHECK(allclose(shares, tensor({0.0, 0.125, 0.375, 0.0, 0.5}, kFloat64), 0, 0.02));
  // Without replacement every one is drawn once, and the likely ones come first most often.
  const Tensor rows = multinomial(weights.expand({4000, 5}), 3);
  CHECK(std::get<0>(rows.sort(1)).equal(tensor({1, 2, 4}).expand({4000, 3})));
  CHECK(std::abs(rows.select(1, 0).eq(4).to(kFloat64).mean().item<double>() - 0.5) < 0.03);
  CHECK_THROWS_WITH_AS(multinomial(weights, 4), doctest::Contains("cannot be drawn without"),
                       Error);
  CHECK_THROWS_WITH_AS(multinomial(tensor({1.0, -1.0}), 1), doctest::Contains("not negative"),
                       Error);

  const Tensor p = tensor({0.0, 0.25, 1.0}).expand({20000, 3});
  CHECK(allclose(bernoulli(p).mean({0}), tensor({0.0, 0.25, 1.0}), 0, 0.02));
  CHECK(std::abs(bernoulli(p, 0.75).mean().item<double>() - 0.75) < 0.01);
  const Tensor spread = normal(tensor({-5.0, 5.0}).expand({20000, 2}), tensor({0.5, 2.0}));
  CHECK(allclose(spread.mean({0}), tensor({-5.0, 5.0}), 0, 0.06));
  CHECK(allclose(spread.std({0}), tensor({0.5, 2.0}), 0, 0.06));
  CHECK(normal(1.0, 0.0, {3}).equal(ones({3})));
  CHECK(normal(2.0, zeros({2})).equal(full({2}, 2.0)));

  Generator one(7), other(7);
  CHECK(normal(zeros({8}), 1, one).equal(normal(zeros({8}), 1, other)));
  CHECK(multinomial(weights, 8, true, one).equal(multinomial(weights, 8, true, other)));
}

TEST_CASE("a tensor without a gradient changes its sizes in place") {
  Tensor x = arange(6, kFloat64);
  Tensor y = x;
  x.resize_({2, 3}).t_();
  CHECK(y.shape() == Shape{3, 2});
  CHECK(y.is_same(x));
  x.unsqueeze_(0).transpose_(1, 2);
  CHECK(x.equal(arange(6, kFloat64).view({1, 2, 3})));
  x.squeeze_(0);
  CHECK(x.shape() == Shape{2, 3});
  // Smaller in the same memory, larger in new memory with the old values in front.
  const void* memory = x.data_ptr();
  x.resize_({4});
  CHECK(x.data_ptr() == memory);
  x.resize_({2, 4});
  CHECK(x.reshape({-1}).narrow(0, 0, 4).equal(arange(4, kFloat64)));
  x.resize_as_(zeros({5}));
  CHECK(x.shape() == Shape{5});
  CHECK_THROWS_WITH_AS(ones({2}, requires_grad()).unsqueeze_(0), doctest::Contains("requires grad"),
                       Error);

  // What was recorded with the old sizes is not read with the new ones.
  const Tensor w = ones({3}, requires_grad());
  Tensor data = ones({3});
  const Tensor loss = (w * data).sum();
  data.unsqueeze_(0);
  CHECK_THROWS_AS(loss.backward(), Error);

  // Compiled code does the same.
  const auto fn = [](const Tensor& t) {
    Tensor own = t * 2;
    own.unsqueeze_(0);
    return own + ones({3, 1});
  };
  CHECK(compile(fn)(ones({3})).equal(fn(ones({3}))));
}

TEST_CASE("new tensors like another have its type, and positions given twice add up") {
  const Tensor x = ones({2}, kFloat64);
  CHECK(x.new_zeros({3}).dtype() == kFloat64);
  CHECK(x.new_ones({3}, kInt64).dtype() == kInt64);
  CHECK(x.new_full({1}, 7).item<double>() == 7);
  CHECK(x.new_empty({2, 2}).shape() == Shape{2, 2});
  Tensor sums = zeros({3});
  sums.index_put_({tensor({0, 2, 0})}, tensor({1.0, 2.0, 4.0}), /*accumulate=*/true);
  CHECK(sums.equal(tensor({5.0, 0.0, 2.0})));
  sums.index_put_({tensor({1})}, tensor({9.0}), /*accumulate=*/false);
  CHECK(sums.equal(tensor({5.0, 9.0, 2.0})));
  CHECK((~tensor({true, false})).equal(tensor({false, true})));
  CHECK((~tensor({0, 5, -1})).equal(tensor({-1, -6, 0})));
  CHECK((tensor({7, -7}) % 4).equal(tensor({3, 1})));
  CHECK((tensor({7.5}) % tensor({2.0})).item<double>() == 1.5);
  CHECK(zeros({4000}).random_(3).max().item<double>() == 2);
  CHECK(zeros({64}, kInt64).random_().max().item<int64_t>() > 1000);
  CHECK(x.max(tensor({0.5, 3.0}, kFloat64)).equal(tensor({1.0, 3.0}, kFloat64)));
  CHECK(x.to(x.new_zeros({1}, kFloat32)).dtype() == kFloat32);
  CHECK_FALSE(x.to(kFloat64, false, /*copy=*/true).is_alias_of(x));
  CHECK(x.get_device() == -1);
}
