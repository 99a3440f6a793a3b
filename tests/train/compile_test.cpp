/// A whole training step as one compiled function: the same bits as eager, without breaks, for
/// every optimiser and every hook.
#include <doctest/doctest.h>

#include <functional>

#include "grapnel/grapnel.h"

using namespace grapnel;

namespace {

struct Result {
  Tensor weights;
  CompileStats stats;
};

using MakeOptimizer = std::function<std::unique_ptr<optim::Optimizer>(const std::vector<Tensor>&)>;
using Attach = std::function<void(nn::Sequential&)>;

Result run(bool compiled, const MakeOptimizer& make, const Attach& attach, bool clip = false) {
  manual_seed(5);
  nn::Sequential net(nn::Linear(6, 8), nn::LayerNorm(nn::LayerNormOptions({8})), nn::GELU(),
                     nn::Linear(8, 3));
  const auto opt = make(net->parameters());
  if (attach) attach(net);
  const Tensor x = randn({5, 6}), y = randint(0, 3, {5});
  const auto body = [&] {
    opt->zero_grad();
    const Tensor loss = cross_entropy(net(x), y);
    loss.backward();
    if (clip) nn::utils::clip_grad_norm_(net->parameters(), 0.1);
    opt->step();
  };
  auto step = compile(body, {.fullgraph = true});
  for (int i = 0; i < 4; ++i) {
    for (auto& group : opt->param_groups()) group.options().set_lr(0.01 / (i + 1));
    if (compiled) step();
    else body();
  }
  return {nn::utils::parameters_to_vector(net->parameters()).detach().clone(), step.stats()};
}

void same_bits(const std::string& name, const MakeOptimizer& make, const Attach& attach = {},
               bool clip = false) {
  INFO(name);
  const Result eager = run(false, make, attach, clip), compiled = run(true, make, attach, clip);
  CHECK(compiled.weights.equal(eager.weights));
  CHECK(compiled.stats.breaks == 0);
  CHECK(compiled.stats.graphs <= 3);
}

template <class O, class Options>
MakeOptimizer maker(const Options& options) {
  return [options](const std::vector<Tensor>& params) -> std::unique_ptr<optim::Optimizer> {
    return std::make_unique<O>(params, options);
  };
}

}  // namespace

TEST_CASE("a step compiles with every optimiser, and a new learning rate needs no new graph") {
  same_bits("sgd", maker<optim::SGD>(
                       optim::SGDOptions(0.1).momentum(0.9).nesterov(true).weight_decay(0.01)));
  same_bits("adam", maker<optim::Adam>(optim::AdamOptions(0.01).amsgrad(true)));
  same_bits("adamw", maker<optim::AdamW>(optim::AdamWOptions(0.01)), {}, true);
  same_bits("rmsprop",
            maker<optim::RMSprop>(optim::RMSpropOptions(0.01).momentum(0.5).centered(true)));
  same_bits("adagrad", maker<optim::Adagrad>(optim::AdagradOptions(0.01).lr_decay(0.1)));
  same_bits("lion", maker<optim::Lion>(optim::LionOptions(0.01).weight_decay(0.1)));
}

TEST_CASE("a step compiles with every hook that changes gradients") {
  const auto sgd = maker<optim::SGD>(optim::SGDOptions(0.1));
  const auto with = [&](const std::string& name, const auto& hook) {
    same_bits(name, sgd, [hook](nn::Sequential& net) { hooks::attach(net->parameters(), hook); });
  };
  with("clip value", hooks::ClipValue{0.01});
  with("clip norm", hooks::ClipNorm{0.05});
  with("scale", hooks::Scale{0.5});
  with("freeze", hooks::Freeze{});
  with("reverse", hooks::Reverse{0.5});
  with("chain", hooks::ClipNorm{0.05} | hooks::Scale{3});
}

TEST_CASE("statistics are gathered inside a compiled step") {
  const auto seen = [](bool compiled) {
    hooks::Statistics stats({.bins = 8, .low = -0.1, .high = 0.1});
    run(compiled, maker<optim::SGD>(optim::SGDOptions(0.1)),
        [&](nn::Sequential& net) { stats.attach(*net); });
    return stats.report().at(0);
  };
  const auto eager = seen(false), compiled = seen(true);
  CHECK(compiled.calls == eager.calls);
  CHECK(compiled.mean == eager.mean);
  CHECK(compiled.norm == eager.norm);
  CHECK(compiled.histogram == eager.histogram);
}

TEST_CASE("an optimiser inside the backward pass compiles") {
  const auto weights = [](bool compiled) {
    manual_seed(8);
    nn::Sequential net(nn::Linear(4, 5), nn::Tanh(), nn::Linear(5, 2));
    optim::AdamW opt(net->parameters(), optim::AdamWOptions(0.01));
    const optim::StepInBackward stepping(opt, {.clip_norm = 0.1});
    const Tensor x = randn({3, 4});
    const auto body = [&] { net(x).square().mean().backward(); };
    auto step = compile(body);
    for (int i = 0; i < 3; ++i) {
      if (compiled) step();
      else body();
    }
    return nn::utils::parameters_to_vector(net->parameters()).detach().clone();
  };
  CHECK(weights(true).equal(weights(false)));
}

namespace {

/// Weights after four steps; before the first and the third, the step is tried once and throws at
/// its end.
Tensor after_throwing(bool throws, const MakeOptimizer& make) {
  manual_seed(5);
  nn::Linear net(4, 3);
  const auto opt = make(net->parameters());
  const Tensor x = randn({5, 4});
  bool bad = false;
  auto step = compile([&] {
    opt->zero_grad();
    net(x).square().mean().backward();
    opt->step();
    if (bad) throw std::runtime_error("x");
  });
  for (int i = 0; i < 4; ++i) {
    bad = throws && i % 2 == 0;
    if (bad) CHECK_THROWS_AS(step(), std::runtime_error);
    bad = false;
    step();
  }
  return nn::utils::parameters_to_vector(net->parameters()).detach().clone();
}

}  // namespace

TEST_CASE("a step that throws never happened, and every optimiser goes on with the same bits") {
  const auto same = [](const std::string& name, const MakeOptimizer& make) {
    INFO(name);
    CHECK(after_throwing(true, make).equal(after_throwing(false, make)));
  };
  same("sgd", maker<optim::SGD>(optim::SGDOptions(0.1).momentum(0.9)));
  same("adam", maker<optim::Adam>(optim::AdamOptions(0.01).amsgrad(true)));
  same("adamw", maker<optim::AdamW>(optim::AdamWOptions(0.01)));
  same("rmsprop", maker<optim::RMSprop>(optim::RMSpropOptions(0.01).momentum(0.5).centered(true)));
  same("adagrad", maker<optim::Adagrad>(optim::AdagradOptions(0.01).lr_decay(0.1)));
  same("lion", maker<optim::Lion>(optim::LionOptions(0.01)));
}

TEST_CASE("an optimiser may live and die inside a step that throws") {
  const Tensor w = ones({3}, requires_grad());
  auto step = compile([&] {
    optim::Adam opt({w}, optim::AdamOptions(0.1));
    (w * w).sum().backward();
    opt.step();
    throw std::runtime_error("x");
  });
  CHECK_THROWS_AS(step(), std::runtime_error);
  CHECK(w.equal(ones({3})));
}

TEST_CASE("an optimiser survives a step that fails while it runs") {
  const Tensor w = ones({3}, requires_grad()), divisor = zeros({1}, kInt64);
  optim::Adam opt({w}, optim::AdamOptions(0.1));
  Tensor quotient;
  auto step = compile([&] {
    opt.zero_grad();
    (w * w).sum().backward();
    opt.step();
    quotient = floor_divide(ones({1}, kInt64), divisor);
  });
  CHECK_THROWS_AS(step(), Error);
  CHECK(opt.state(w).step == 0);
  divisor.fill_(1);
  step();
  CHECK(opt.state(w).step == 1);
}

TEST_CASE("gradients that were accumulated by a step that throws are not counted") {
  const auto weights = [](bool throws) {
    const Tensor w = full({2}, 3.0, requires_grad());
    optim::SGD opt({w}, optim::SGDOptions(0.1));
    const optim::StepInBackward stepping(opt, {.accumulate = 2});
    bool bad = false;
    auto step = compile([&] {
      (w * w).sum().backward();
      if (bad) throw std::runtime_error("x");
    });
    for (int i = 0; i < 5; ++i) {
      bad = throws && i % 2 == 0;
      if (bad) CHECK_THROWS_AS(step(), std::runtime_error);
      bad = false;
      step();
    }
    return w.detach().clone();
  };
  CHECK(weights(true).equal(weights(false)));
}
