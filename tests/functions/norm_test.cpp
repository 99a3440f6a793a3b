#include <cmath>

#include "grapnel/autograd/gradcheck.h"
#include "tests/ops/sweep.h"
#include "tests/ops/values.h"

using namespace grapnel;

namespace {

/// Layer norm from the ops it stands for; narrow types in f32, rounded once.
Tensor composed(const Tensor& x, const Shape& dims, const Tensor& weight, const Tensor& bias,
                double eps) {
  const Tensor w = x.dtype() == kFloat64 ? x : x.to(kFloat32);
  const Tensor centred = w - w.mean(dims, true);
  Tensor y = centred * rsqrt((centred * centred).mean(dims, true) + eps);
  if (weight.defined()) y = y * weight.to(w.dtype());
  if (bias.defined()) y = y + bias.to(w.dtype());
  return y.to(x.dtype());
}

autograd::CheckedFunction norm_of_last(int64_t n) {
  return [n](const variable_list& in) {
    return variable_list{layer_norm(in[0], {n}, in[1], in[2], 1e-3)};
  };
}

}  // namespace

TEST_CASE(
    "layer_norm has the bits of its decomposition, whatever the type, length and instruction set") {
  for (const base::Isa isa : available_isas()) {
    const IsaScope scope(isa);
    for (const DType dtype : {kFloat32, kFloat64, kBFloat16, kFloat16})
      for (const int64_t n : {1, 7, 64, 768, 4096, 9000}) {
        CAPTURE(dtype);
        CAPTURE(n);
        const Tensor x = (sample_tensor({3, n}) * 2 + 1).to(dtype),
                     w = sample_tensor({n}, 0.5, 2).to(dtype), b = sample_tensor({n}).to(dtype);
        CHECK(same_bits(layer_norm(x, {n}, w, b), composed(x, {1}, w, b, 1e-5)));
        CHECK(same_bits(layer_norm(x, {n}), composed(x, {1}, {}, {}, 1e-5)));
        CHECK(same_bits(layer_norm(x, {n}, w), composed(x, {1}, w, {}, 1e-5)));
        CHECK(same_bits(layer_norm(x, {n}, {}, b), composed(x, {1}, {}, b, 1e-5)));
      }
  }
  const Tensor x = sample_tensor({4, 3, 5}).transpose(0, 1);
  CHECK(same_bits(layer_norm(x, {4, 5}), composed(x, {1, 2}, {}, {}, 1e-5)));
}

TEST_CASE("the gradients of layer_norm agree with those of its decomposition") {
  const Tensor g = sample_tensor({4, 6}, -1, 1);
  auto run = [&](auto fn) {
    const Tensor x = sample_tensor({4, 6}).set_requires_grad(true),
                 w = sample_tensor({6}, 0.5, 2).set_requires_grad(true);
    const Tensor b = sample_tensor({6}).set_requires_grad(true);
    fn(x, w, b).backward(g);
    return std::vector<Tensor>{x.grad(), w.grad(), b.grad()};
  };
  const auto fast = run([](auto x, auto w, auto b) { return layer_norm(x, {6}, w, b); });
  const auto slow = run([](auto x, auto w, auto b) { return composed(x, {1}, w, b, 1e-5); });
  for (size_t i = 0; i < 3; ++i) CHECK(allclose(fast[i], slow[i], 1e-12, 1e-13));
}

TEST_CASE("layer_norm can be differentiated twice, with respect to everything") {
  const variable_list in = {sample_tensor({2, 4}).set_requires_grad(true),
                            sample_tensor({4}, 0.5, 2).set_requires_grad(true),
                            sample_tensor({4}).set_requires_grad(true)};
  CHECK(autograd::gradcheck(norm_of_last(4), in));
  CHECK(autograd::gradgradcheck(norm_of_last(4), in));
  CHECK(autograd::gradgradcheck(norm_of_last(4), {in[0], Tensor(), Tensor()}));
}

TEST_CASE("errors of layer_norm show the shapes") {
  CHECK(contains(error_of([] { layer_norm(ones({2, 3}), {4}); }),
                 "layer_norm: the last dimensions of x must be [4], but x is [2, 3]"));
  CHECK(contains(error_of([] { layer_norm(ones({2, 3}), {3}, ones({2})); }),
                 "weight must have the normalised shape [3], got [2]"));
  CHECK(contains(error_of([] { layer_norm(ones({2, 3}), {3}, {}, ones({2})); }),
                 "bias must have the normalised shape [3], got [2]"));
  CHECK(contains(error_of([] { layer_norm(ones({2, 3}, kInt64), {3}); }),
                 "layer_norm: not defined for i64"));
  CHECK(layer_norm(empty({0, 3}), {3}).shape() == Shape{0, 3});
}

TEST_CASE("batch_norm normalises each channel and moves the running statistics") {
  const Tensor x = sample_tensor({4, 2, 3});
  const Tensor mean = zeros({2}, kFloat64), var = ones({2}, kFloat64),
               w = tensor({2.0, 3.0}, kFloat64), b = tensor({-1.0, 1.0}, kFloat64);
  const Tensor y = batch_norm(x, w, b, mean, var, true, 0.25);
  const Values means = values(y.mean({0, 2})), spreads = values(y.var({0, 2}, false));
  CHECK(means[0] == doctest::Approx(-1).epsilon(1e-9));
  CHECK(means[1] == doctest::Approx(1).epsilon(1e-9));
  CHECK(spreads[0] == doctest::Approx(4).epsilon(1e-4));
  CHECK(spreads[1] == doctest::Approx(9).epsilon(1e-4));
  CHECK(allclose(mean, x.mean({0, 2}) * 0.25));
  CHECK(allclose(var, x.var({0, 2}) * 0.25 + 0.75));
}

TEST_CASE("without training batch_norm uses the running statistics and changes nothing") {
  const Tensor x = sample_tensor({4, 2}), mean = tensor({1.0, 2.0}, kFloat64),
               var = tensor({4.0, 9.0}, kFloat64);
  const Tensor y = batch_norm(x, {}, {}, mean, var, false, 0.1, 0);
  CHECK(allclose(y, (x - mean) / var.sqrt()));
  CHECK(values(mean) == Values{1, 2});
  CHECK(mean._version() == 0);
}

TEST_CASE("batch_norm can be differentiated twice and says what it misses") {
  const autograd::CheckedFunction f = [](const variable_list& in) {
    return variable_list{batch_norm(in[0], in[1], in[2], {}, {}, true, 0.1, 1e-3)};
  };
  const variable_list in = {sample_tensor({3, 2}).set_requires_grad(true),
                            sample_tensor({2}, 0.5, 2).set_requires_grad(true),
                            sample_tensor({2}).set_requires_grad(true)};
  CHECK(autograd::gradcheck(f, in));
  CHECK(autograd::gradgradcheck(f, in));
  CHECK(contains(error_of([] { batch_norm(ones({1, 2}), {}, {}, {}, {}, true); }),
                 "more than one value per channel, got 1"));
  CHECK(contains(error_of([] { batch_norm(ones({2, 2}), {}, {}, {}, {}, false); }),
                 "running_mean and running_var"));
  CHECK(contains(error_of([] { batch_norm(ones({2, 2}), ones({3}), {}, {}, {}, true); }),
                 "weight must hold one number per channel"));
}

TEST_CASE("the number of threads changes no bit of layer_norm or its gradients") {
  auto run = [] {
    const Tensor x = sample_tensor({200, 700}).to(kFloat32).set_requires_grad(true),
                 w = sample_tensor({700}, 0.5, 2).to(kFloat32).set_requires_grad(true);
    const Tensor y = layer_norm(x, {700}, w);
    y.square().sum().backward();
    return Outputs{y.detach(), x.grad(), w.grad()};
  };
  Outputs one;
  {
    const ThreadsScope scope(1);
    one = run();
  }
  const ThreadsScope scope(2);
  CHECK(same_bits(one, run()));
}
