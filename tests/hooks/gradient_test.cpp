/// Hooks that change gradients. The programs of docs/hook-library.md are among these tests.
#include "grapnel/hooks/gradient.h"

#include <doctest/doctest.h>

#include "grapnel/grapnel.h"

using namespace grapnel;

namespace {
/// The gradient of sum(x * g) through one hook on x.
template <class H>
Tensor through_hook(const H& hook, const Tensor& g) {
  const Tensor x = zeros_like(g).set_requires_grad(true);
  hooks::attach(x, hook);
  (x * g).sum().backward();
  return x.grad();
}
}  // namespace

TEST_CASE("every gradient hook does what its name says") {
  const Tensor g = tensor({3.0, -4.0});
  CHECK(through_hook(hooks::ClipValue{3.5}, g).equal(tensor({3.0, -3.5})));
  CHECK(through_hook(hooks::ClipNorm{1}, g).allclose(tensor({0.6, -0.8}), 1e-6));
  CHECK(through_hook(hooks::ClipNorm{10}, g).equal(g));
  CHECK(through_hook(hooks::Scale{2}, g).equal(tensor({6.0, -8.0})));
  CHECK(through_hook(hooks::Freeze{}, g).equal(zeros({2})));
  CHECK(through_hook(hooks::Reverse{0.5}, g).equal(tensor({-1.5, 2.0})));
  CHECK(through_hook(hooks::Mask{tensor({true, false})}, g).equal(tensor({3.0, 0.0})));
  CHECK(through_hook(hooks::Mask{tensor({0.5, 1.0})}, g).equal(tensor({1.5, -4.0})));
}

TEST_CASE("noise comes from its generator and has the deviation asked for") {
  const Tensor g = zeros({10000});
  const Tensor noisy = through_hook(hooks::Noise{0.5, Generator(3)}, g);
  CHECK(noisy.std().item<double>() == doctest::Approx(0.5).epsilon(0.05));
  CHECK(noisy.equal(through_hook(hooks::Noise{0.5, Generator(3)}, g)));
}

TEST_CASE("hooks are chained from left to right and keep their names") {
  const Tensor w = zeros({2}, requires_grad());
  const auto chain = hooks::ClipNorm{1} | hooks::Scale{10} | hooks::ClipValue{7};
  HookHandle handle = hooks::attach(w, chain);
  CHECK(hooks_of(w).at(0).name == "clip norm 1 | scale 10 | clip value 7");
  (w * tensor({3.0, 4.0})).sum().backward();
  CHECK(w.grad().allclose(tensor({6.0, 7.0}), 1e-5));
  handle.remove();
  CHECK(hooks_of(w).empty());
}

TEST_CASE("attach on a list leaves out what needs no gradient") {
  nn::Linear layer(2, 2);
  layer->bias.set_requires_grad(false);
  CHECK(hooks::attach(layer->parameters(), hooks::Scale{2}).size() == 1);
}

TEST_CASE("through changes the gradient of one use of a tensor only") {
  const Tensor x = ones({2}, requires_grad());
  (hooks::through(x, hooks::Reverse{}) * 3 + x * 5).sum().backward();
  CHECK(x.grad().equal(tensor({2.0, 2.0})));
}

TEST_CASE("hooks are differentiated when the pass builds a graph") {
  const Tensor x = tensor({2.0}, requires_grad());
  const Tensor y = x * x;
  hooks::attach(y, hooks::Scale{3});
  const Tensor g = autograd::grad({y.sum()}, {x}, {}, true, true)[0];
  CHECK(g.item<double>() == 12);
  CHECK(autograd::grad({g.sum()}, {x})[0].item<double>() == 6);
}
