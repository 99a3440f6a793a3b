/// Modules and scopes in a checkpointed function, which runs once more in the backward pass.
#include "grapnel/autograd/tape_observer.h"
#include "tests/autograd/vectors.h"

namespace grapnel::test {

namespace {

struct Counts {
  int pre = 0, forward = 0, backward = 0;
  bool operator==(const Counts&) const = default;
};

enum class Forward { looks, returns, writes };

/// Two layers with a hook of every kind on each of them.
struct Net {
  nn::Linear first{3, 4}, second{4, 3};
  Counts counts;

  explicit Net(Forward kind) {
    manual_seed(3);
    for (const nn::Linear& layer : {first, second}) {
      for (const Tensor& p : layer->parameters()) p.set_data(randn(p.sizes()));
      layer->register_forward_pre_hook([&, kind](nn::Module&, const nn::Args& args) {
        ++counts.pre;
        const Tensor& x = args[0].toTensor();
        return kind == Forward::returns ? x.tanh() : x;
      });
      layer->register_forward_hook([&, kind](nn::Module&, const nn::Args&, const Tensor& y) {
        ++counts.forward;
        if (kind == Forward::writes) y.mul_(y.detach().sigmoid());
        return kind == Forward::returns ? (y * y).exp() : y;
      });
      layer->register_full_backward_hook(
          [&](nn::Module&, const variable_list&, const variable_list&) { ++counts.backward; });
    }
  }
  Tensor operator()(const Tensor& x) { return second(first(x)).sin(); }
  std::vector<Values> grads() const {
    std::vector<Values> out;
    for (const nn::Linear& layer : {first, second})
      for (const Tensor& p : layer->parameters()) out.push_back(values(p.grad()));
    return out;
  }
};

}  // namespace

TEST_CASE("hooks of modules in a checkpointed function fire once, whatever they do to values") {
  for (const Forward kind : {Forward::looks, Forward::returns, Forward::writes}) {
    CAPTURE(static_cast<int>(kind));
    Net plain(kind), net(kind);
    const Tensor x = ones({2, 3});
    Tensor a = x.clone().requires_grad_(), b = x.clone().requires_grad_();
    plain(a).sum().backward();
    autograd::checkpoint([&](const Tensor& t) { return net(t); }, b).sum().backward();
    CHECK(net.counts == plain.counts);
    CHECK(net.counts == Counts{2, 2, 2});
    CHECK(net.grads() == plain.grads());
    CHECK(values(b.grad()) == values(a.grad()));
  }
}

TEST_CASE("with hooks_again the recomputation calls forward hooks, and the gradients are the same") {
  for (const Forward kind : {Forward::looks, Forward::returns, Forward::writes}) {
    CAPTURE(static_cast<int>(kind));
    Net plain(kind), net(kind);
    Tensor a = ones({2, 3}, requires_grad()), b = ones({2, 3}, requires_grad());
    plain(a).sum().backward();
    autograd::checkpoint([&](const Tensor& t) { return net(t); }, b, {.hooks_again = true})
        .sum()
        .backward();
    CHECK(net.counts == Counts{4, 4, 2});
    CHECK(net.grads() == plain.grads());
  }
}

TEST_CASE("checkpoints inside one another call hooks of modules once") {
  for (const bool again : {false, true}) {
    Net plain(Forward::returns), net(Forward::returns);
    Tensor a = ones({2, 3}, requires_grad()), b = ones({2, 3}, requires_grad());
    plain(a).sum().backward();
    const auto outer = [&](const Tensor& x) {
      return net.second(autograd::checkpoint([&](const Tensor& t) { return net.first(t); }, x,
                                             {.hooks_again = again}))
          .sin();
    };
    autograd::checkpoint(outer, b).sum().backward();
    CHECK(net.counts == Counts{2 + again, 2 + again, 2});
    CHECK(net.grads() == plain.grads());
  }
}

TEST_CASE("a second pass over a retained graph recomputes without calling hooks, too") {
  Net net(Forward::returns);
  Tensor x = ones({2, 3}, requires_grad());
  const Tensor y = autograd::checkpoint([&](const Tensor& t) { return net(t); }, x).sum();
  y.backward({}, true);
  const auto once = net.grads();
  for (const nn::Linear& layer : {net.first, net.second}) layer->zero_grad();
  y.backward();
  CHECK(net.grads() == once);
  CHECK(net.counts == Counts{2, 2, 4});
}

TEST_CASE("hooks registered or removed after forward change nothing in the recomputation") {
  Net plain(Forward::looks), net(Forward::looks);
  Tensor a = ones({2, 3}, requires_grad()), b = ones({2, 3}, requires_grad());
  HookHandle doubles = net.second->register_forward_hook(
      [](nn::Module&, const nn::Args&, const Tensor& y) { return y * 2; });
  plain.second->register_forward_hook(
      [](nn::Module&, const nn::Args&, const Tensor& y) { return y * 2; });
  const Tensor y = autograd::checkpoint([&](const Tensor& t) { return net(t); }, b).sum();
  doubles.remove();
  net.first->register_forward_hook(
      [](nn::Module&, const nn::Args&, const Tensor& t) { return t * 5; });
  y.backward();
  plain(a).sum().backward();
  CHECK(net.grads() == plain.grads());
}

TEST_CASE("what a hook returned may not be overwritten before it is needed again") {
  nn::Linear layer(2, 2);
  layer->register_forward_hook([](nn::Module&, const nn::Args&, const Tensor& y) { return y * 2; });
  Tensor x = ones({1, 2}, requires_grad());
  const auto block = [&](const Tensor& t) { return layer(t).add_(1).exp(); };
  CHECK_ERROR(autograd::checkpoint(block, x).sum().backward(), "{.hooks_again = true}");
  autograd::checkpoint(block, x, {.hooks_again = true}).sum().backward();
  CHECK(x.grad().defined());
}

TEST_CASE("a checkpoint inside Autocast has the gradients that it has without checkpointing") {
  for (const DType type : {kBFloat16, kFloat16}) {
    nn::Linear layer(4, 4);
    Tensor a = ones({2, 4}, requires_grad()), b = ones({2, 4}, requires_grad());
    const auto block = [&](const Tensor& t) {
      Tensor y = layer(t).tanh();
      const Autocast off(kFloat32);  // a scope of the function's own
      return matmul(y.to(kFloat32), layer->weight);
    };
    Tensor plain, kept;
    {
      const Autocast scope(type);
      plain = block(a).sum();
      kept = autograd::checkpoint(block, b).sum();
    }
    CHECK(values(plain) == values(kept));
    plain.backward();
    const Values expected = values(layer->weight.grad());
    layer->zero_grad();
    kept.backward();
    CHECK(values(layer->weight.grad()) == expected);
    CHECK(values(b.grad()) == values(a.grad()));
  }
}

TEST_CASE("a checkpoint runs again with the recording mode and default type of its first run") {
  auto x = leaf({1, 2});
  Tensor y;
  const auto block = [](const Tensor& t) {
    const Tensor c = full({2}, 0.1);  // of the default type
    return (t * c).exp() * GradMode::is_enabled();
  };
  set_default_dtype(kFloat64);
  y = autograd::checkpoint(block, x).sum();
  set_default_dtype(kFloat32);
  y.backward();
  CHECK(get_default_dtype() == kFloat32);
  CHECK(values(x.grad()) == Values{0.1 * std::exp(0.1), 0.1 * std::exp(0.2)});

  const auto off = [](const Tensor& t) {
    const Tensor skipped = t * t;  // not recorded below
    const EnableGradGuard on;
    return skipped + t * t * t;
  };
  auto z = leaf({2});
  {
    const NoGradGuard no_grad;
    y = autograd::checkpoint(off, z);
  }
  y.backward();
  CHECK(values(z.grad()) == Values{12});
}

TEST_CASE("observers of the tape see ops of a checkpointed function once") {
  struct Count : TapeObserver {
    int exps = 0;
    void on_op(Node& node, std::span<const Tensor>) override { exps += node.name() == "exp"; }
  };
  const auto count = std::make_shared<Count>();
  TapeObserver::add(count);
  auto x = leaf({1, 2});
  autograd::checkpoint([](const Tensor& t) { return t.exp() * t; }, x).sum().backward();
  CHECK(count->exps == 1);
}

}  // namespace grapnel::test
