// LibTorch-style programs with operations of their own: save_for_backward, saved_data, mark_dirty
// and their relatives.
#include <doctest/doctest.h>

#include "grapnel/compat/torch.h"

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;
using torch::autograd::variable_list;

/// x @ w^T + b, with the bias left out when it is undefined.
class Affine : public torch::autograd::Function<Affine> {
 public:
  static torch::Tensor forward(AutogradContext* ctx, torch::Tensor x, torch::Tensor w,
                               torch::Tensor b = torch::Tensor()) {
    ctx->saved_data["has_bias"] = b.defined();
    ctx->save_for_backward({x, w});
    auto y = x.mm(w.t());
    if (b.defined()) y += b.unsqueeze(0).expand_as(y);
    return y;
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    auto saved = ctx->get_saved_variables();
    auto g = grads[0];
    auto grad_b = ctx->saved_data["has_bias"].toBool() ? g.sum(0) : torch::Tensor();
    return {g.mm(saved[1]), g.t().mm(saved[0]), grad_b};
  }
};

/// x * factor, where the factor is no tensor.
struct Scale : torch::autograd::Function<Scale> {
  static torch::Tensor forward(AutogradContext* ctx, torch::Tensor x, double factor,
                               int64_t times) {
    ctx->saved_data["factor"] = factor;
    ctx->saved_data["times"] = times;
    for (int64_t i = 0; i < times; ++i) x = x * factor;
    return x;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    auto g = grads[0];
    for (int64_t i = 0; i < ctx->saved_data["times"].toInt(); ++i)
      g = g * ctx->saved_data["factor"].toDouble();
    return {g, torch::Tensor(), torch::Tensor()};
  }
};

/// Squares its argument in place.
struct SquareInPlace : torch::autograd::Function<SquareInPlace> {
  static torch::Tensor forward(AutogradContext* ctx, torch::Tensor x) {
    ctx->save_for_backward({x.clone()});
    ctx->mark_dirty({x});
    return x.mul_(x.clone());
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    return {2 * ctx->get_saved_variables()[0] * grads[0]};
  }
};

/// The largest value of each row, and where it is.
struct RowMax : torch::autograd::Function<RowMax> {
  static variable_list forward(AutogradContext* ctx, torch::Tensor x) {
    auto [values, where] = x.max(1);
    ctx->save_for_backward({where});
    ctx->saved_data["columns"] = x.size(1);
    ctx->mark_non_differentiable({where});
    return {values, where};
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    auto where = ctx->get_saved_variables()[0].unsqueeze(1);
    auto out =
        torch::zeros({where.size(0), ctx->saved_data["columns"].toInt()}, grads[0].options());
    return {out.scatter(1, where, grads[0].unsqueeze(1))};
  }
};

/// factor * x * y, with the number between the tensors.
struct Between : torch::autograd::Function<Between> {
  static torch::Tensor forward(AutogradContext* ctx, double first, torch::Tensor x, int64_t factor,
                               torch::Tensor y) {
    ctx->save_for_backward({x, y});
    ctx->saved_data["factor"] = factor * first;
    return factor * first * x * y;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    auto saved = ctx->get_saved_variables();
    auto g = grads[0] * ctx->saved_data["factor"].toDouble();
    return {torch::Tensor(), g * saved[1], torch::Tensor(), g * saved[0]};
  }
};

/// The same with gradients for tensors only, which leaves open whose they are.
struct TooFew : torch::autograd::Function<TooFew> {
  static torch::Tensor forward(AutogradContext*, double factor, torch::Tensor x) {
    return factor * x;
  }
  static variable_list backward(AutogradContext*, variable_list grads) { return {grads[0]}; }
};

/// A gradient for a number.
struct Misplaced : torch::autograd::Function<Misplaced> {
  static torch::Tensor forward(AutogradContext*, double factor, torch::Tensor x) {
    return factor * x;
  }
  static variable_list backward(AutogradContext*, variable_list grads) {
    return {grads[0], grads[0]};
  }
};

/// The sum of a list of tensors, each times its place in it.
struct WeightedSum : torch::autograd::Function<WeightedSum> {
  static torch::Tensor forward(AutogradContext* ctx, at::TensorList list, double factor,
                               torch::Tensor last) {
    ctx->saved_data["count"] = static_cast<int64_t>(list.size());
    ctx->saved_data["factor"] = factor;
    auto sum = last.clone();
    for (size_t i = 0; i < list.size(); ++i) sum += list[i] * (factor * double(i));
    return sum;
  }
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    variable_list out;
    for (int64_t i = 0; i < ctx->saved_data["count"].toInt(); ++i)
      out.push_back(grads[0] * (ctx->saved_data["factor"].toDouble() * double(i)));
    out.push_back(torch::Tensor());
    out.push_back(grads[0]);
    return out;
  }
};

/// Changes its argument behind the library's back, and says so.
struct WriteRaw : torch::autograd::Function<WriteRaw> {
  static torch::Tensor forward(AutogradContext* ctx, torch::Tensor x) {
    x.data_ptr<float>()[0] = 100;
    ctx->mark_dirty({x});
    return x;
  }
  static variable_list backward(AutogradContext*, variable_list grads) { return grads; }
};

}  // namespace

TEST_CASE("backward returns one gradient for every argument of forward, numbers included") {
  auto x = torch::tensor({1.0, 2.0}, torch::requires_grad());
  auto y = torch::tensor({3.0, 4.0}, torch::requires_grad());
  Between::apply(0.5, x, 4, y).sum().backward();
  CHECK(torch::equal(x.grad(), torch::tensor({6.0, 8.0})));
  CHECK(torch::equal(y.grad(), torch::tensor({2.0, 4.0})));
  CHECK_THROWS_AS(TooFew::apply(2.0, x).sum().backward(), std::exception);
  CHECK_THROWS_AS(Misplaced::apply(2.0, x).sum().backward(), std::exception);
}

TEST_CASE("a list of tensors as an argument is differentiated, one gradient for each of them") {
  std::vector<torch::Tensor> list;
  for (int i = 0; i < 3; ++i) list.push_back(torch::ones({2}, torch::requires_grad()));
  auto last = torch::ones({2}, torch::requires_grad());
  auto out = WeightedSum::apply(at::TensorList(list), 10.0, last);
  CHECK(out.requires_grad());
  out.sum().backward();
  CHECK(torch::equal(list[1].grad(), torch::full({2}, 10.0)));
  CHECK(torch::equal(list[2].grad(), torch::full({2}, 20.0)));
  CHECK(torch::equal(last.grad(), torch::ones({2})));
}

TEST_CASE("mark_dirty counts as a change, so that a tensor saved before is known to be stale") {
  auto x = torch::ones({2}, torch::requires_grad());
  auto y = x * 2, z = y * y;
  const auto version = y._version();
  WriteRaw::apply(y);
  CHECK(y._version() > version);
  CHECK_THROWS_AS(z.sum().backward(), c10::Error);
}

TEST_CASE("a custom linear function has the gradients of the built-in one") {
  torch::manual_seed(1);
  auto x = torch::randn({5, 3}, torch::dtype(torch::kFloat64).requires_grad(true));
  auto w = torch::randn({4, 3}, torch::dtype(torch::kFloat64).requires_grad(true));
  auto b = torch::randn({4}, torch::dtype(torch::kFloat64).requires_grad(true));

  Affine::apply(x, w, b).pow(2).sum().backward();
  auto expected = torch::autograd::grad({torch::linear(x, w, b).pow(2).sum()}, {x, w, b});
  CHECK(torch::allclose(x.grad(), expected[0]));
  CHECK(torch::allclose(w.grad(), expected[1]));
  CHECK(torch::allclose(b.grad(), expected[2]));

  CHECK(torch::allclose(Affine::apply(x, w), torch::linear(x, w)));
}

TEST_CASE("numbers travel from forward to backward in saved_data") {
  auto x = torch::tensor({1.0, -2.0}, torch::requires_grad());
  auto y = Scale::apply(x, 3.0, 2);
  CHECK(torch::equal(y.detach(), torch::tensor({9.0, -18.0})));
  y.sum().backward();
  CHECK(torch::equal(x.grad(), torch::tensor({9.0, 9.0})));
}

TEST_CASE("a function that changes its argument says so with mark_dirty") {
  auto x = torch::tensor({1.0, 2.0, 3.0}, torch::requires_grad());
  auto y = x * 2;
  auto z = SquareInPlace::apply(y);
  CHECK(torch::equal(y.detach(), torch::tensor({4.0, 16.0, 36.0})));
  CHECK(z.data_ptr() == y.data_ptr());
  y.sum().backward();
  CHECK(torch::equal(x.grad(), torch::tensor({8.0, 16.0, 24.0})));

  auto leaf = torch::ones({2}, torch::requires_grad());
  CHECK_THROWS_AS(SquareInPlace::apply(leaf), c10::Error);
}

TEST_CASE("an output marked as non-differentiable requires no gradient") {
  auto x = torch::tensor({{1.0, 5.0, 2.0}, {7.0, 0.0, 3.0}}, torch::requires_grad());
  auto out = RowMax::apply(x);
  CHECK(out[0].requires_grad());
  CHECK_FALSE(out[1].requires_grad());
  CHECK(torch::equal(out[1], torch::tensor({1, 0})));
  out[0].backward(torch::tensor({10.0, 20.0}));
  CHECK(torch::equal(x.grad(), torch::tensor({{0.0, 10.0, 0.0}, {20.0, 0.0, 0.0}})));
}
