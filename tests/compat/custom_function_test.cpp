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

}  // namespace

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
