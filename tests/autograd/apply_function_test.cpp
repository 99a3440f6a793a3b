/// Functions that are no type: a name and two closures.
#include "tests/autograd/vectors.h"

using namespace grapnel;
using autograd::AutogradContext;

namespace {

/// x * k, with a k that only the closures know.
variable_list scaled(const Tensor& x, double k, int* calls = nullptr) {
  return autograd::apply_function(
      "scaled",
      [k](AutogradContext* ctx, const variable_list& in) {
        ctx->save_for_backward({in[0]});
        return variable_list{in[0] * k};
      },
      [k, calls](AutogradContext* ctx, const variable_list& grads) {
        if (calls) ++*calls;
        const variable_list saved = ctx->get_saved_variables();  // throws once they are freed
        CHECK(saved.size() == 1);
        return variable_list{grads[0] * k};
      },
      {x});
}

}  // namespace

TEST_CASE("a function of two closures has its name, its state and its gradient") {
  const Tensor x = ones({2}, requires_grad());
  const Tensor two = scaled(x, 2)[0], three = scaled(x, 3)[0];
  CHECK(two.grad_fn()->name() == "scaled");
  (two + three).sum().backward();
  CHECK(x.grad().equal(full({2}, 5.0)));
  CHECK_ERROR(two.sum().backward(), "freed");
}

TEST_CASE(
    "a function of two closures is differentiated twice, compiled and not recorded without need") {
  const Tensor x = ones({2}, requires_grad());
  const Tensor y = scaled(x * x, 3)[0];
  const Tensor g = autograd::grad({y.sum()}, {x}, {}, true, true)[0];
  g.sum().backward();
  CHECK(x.grad().equal(full({2}, 6.0)));

  int calls = 0;
  x.reset_grad();
  auto step = compile([&] { scaled(x, 4, &calls)[0].sum().backward(); }, {.fullgraph = true});
  step();
  CHECK(x.grad().equal(full({2}, 4.0)));
  CHECK(calls == 1);

  CHECK(!scaled(ones({2}), 2)[0].grad_fn());
}

TEST_CASE("what is kept with the node of a function lives as long as the node") {
  const auto kept = std::make_shared<int>(7);
  {
    const Tensor y = scaled(ones({2}, requires_grad()), 2)[0];
    dynamic_cast<autograd::FunctionNode&>(*y.grad_fn()).owned = kept;
    CHECK(kept.use_count() == 2);
  }
  CHECK(kept.use_count() == 1);
}
