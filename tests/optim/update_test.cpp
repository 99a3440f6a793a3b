/// The one pass over all parameters that a step is: it has the bits of the plain formulas.
#include "grapnel/optim/update.h"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>

#include "grapnel/autograd/grad_mode.h"
#include "grapnel/base/thread_pool.h"
#include "grapnel/compile/compile.h"
#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"
#include "grapnel/optim/optim.h"

using namespace grapnel;
using optim::Optimizer;
using optim::OptimizerParamGroup;

namespace {

struct Threads {
  int before = get_num_threads();
  explicit Threads(int count) { set_num_threads(count); }
  ~Threads() { set_num_threads(before); }
};

/// Small and large, around the size of a block, of odd sizes, empty, and without dimensions.
std::vector<Tensor> start() {
  manual_seed(5);
  std::vector<Tensor> out;
  for (const Shape& shape : {Shape{3}, Shape{}, Shape{257, 129}, Shape{1}, Shape{1 << 15}, Shape{0},
                             Shape{(1 << 15) + 1}, Shape{7, 5, 3}, Shape{100001}})
    out.push_back(randn(shape));
  return out;
}
/// The gradient of a parameter in one step; those of matrices lie column by column.
Tensor slope(const Tensor& p, int step) {
  Tensor g = (p.detach() * 0.3 + 0.01 * step).sin();
  return p.dim() == 2 ? g.t().contiguous().t() : g;
}

using Make = std::function<std::unique_ptr<Optimizer>(std::vector<OptimizerParamGroup>)>;
constexpr int kSteps = 3;

/// Half of the parameters are in a second group, at twice the rate.
std::vector<Tensor> trained(const Make& make, const std::function<void(Optimizer&)>& step) {
  std::vector<Tensor> params = start(), odd, even;
  for (size_t i = 0; i < params.size(); ++i) {
    params[i].requires_grad_();
    (i % 2 == 0 ? even : odd).push_back(params[i]);
  }
  const auto opt = make({OptimizerParamGroup(even), OptimizerParamGroup(odd)});
  optim::OptimizerOptions& second = opt->param_groups()[1].options();
  second.set_lr(2 * second.get_lr());
  for (int i = 0; i < kSteps; ++i) {
    for (const Tensor& p : params) p.set_grad(slope(p, i));
    step(*opt);
  }
  for (Tensor& p : params) p = p.detach();
  return params;
}

/// One step of a formula on a parameter as a whole: formula(p, g, state, number of the step, rate).
using Formula =
    std::function<void(const Tensor&, const Tensor&, std::vector<Tensor>&, int, double)>;

std::vector<Tensor> by_formula(const Formula& formula, double lr) {
  std::vector<Tensor> params = start();
  for (size_t i = 0; i < params.size(); ++i) {
    std::vector<Tensor> state(3);
    for (Tensor& t : state) t = zeros_like(params[i]);
    for (int step = 0; step < kSteps; ++step)
      formula(params[i], slope(params[i], step), state, step + 1, i % 2 == 0 ? lr : 2 * lr);
  }
  return params;
}

void check_equal(const std::vector<Tensor>& got, const std::vector<Tensor>& expected) {
  REQUIRE(got.size() == expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    CHECK(got[i].equal(expected[i]));
  }
}

template <class O>
Make making(const auto& options) {
  return [options](std::vector<OptimizerParamGroup> groups) {
    return std::make_unique<O>(std::move(groups), options);
  };
}

void check_pass(const Make& make, double lr, const Formula& formula) {
  const std::vector<Tensor> expected = by_formula(formula, lr);
  for (const int count : {1, 2, 3}) {
    const Threads threads(count);
    check_equal(trained(make, [](Optimizer& o) { o.step(); }), expected);
  }
  check_equal(trained(make,
                      [](Optimizer& o) {
                        for (auto& group : o.param_groups())
                          for (const Tensor& p : group.params()) o.step_param(p);
                      }),
              expected);
  check_equal(trained(make, [](Optimizer& o) { compile([&] { o.step(); })(); }), expected);
}

/// Adam and AdamW, whose decay is apart.
Formula adam(bool decoupled, double decay, bool amsgrad) {
  return [=](const Tensor& p, const Tensor& g, std::vector<Tensor>& s, int step, double lr) {
    Tensor d = g;
    if (decoupled) p.mul_(1 - lr * decay);
    else d = g.add(p, decay);
    s[0].lerp_(d, 1 - 0.9);
    s[1].mul_(0.999).addcmul_(d, d, 1 - 0.999);
    if (amsgrad) s[2].copy_(maximum(s[2], s[1]));
    const Tensor root = (amsgrad ? s[2] : s[1]).sqrt() / std::sqrt(1 - std::pow(0.999, step));
    p.addcdiv_(s[0], root + 1e-8, -(lr / (1 - std::pow(0.9, step))));
  };
}

}  // namespace

TEST_CASE("SGD steps all parameters in one pass with the bits of its formula, eager and compiled") {
  check_pass(making<optim::SGD>(optim::SGDOptions(0.1)), 0.1,
             [](const Tensor& p, const Tensor& g, auto&, int, double lr) { p.add_(g, -lr); });
  check_pass(
      making<optim::SGD>(optim::SGDOptions(0.1).momentum(0.9).nesterov(true).weight_decay(0.01)),
      0.1, [](const Tensor& p, const Tensor& g, auto& s, int step, double lr) {
        const Tensor d = g.add(p, 0.01);
        if (step == 1) s[0].copy_(d);
        else s[0].mul_(0.9).add_(d);
        p.add_(d.add(s[0], 0.9), -lr);
      });
}

TEST_CASE("Adam and AdamW do so, too") {
  check_pass(making<optim::Adam>(optim::AdamOptions(0.1).weight_decay(0.02)), 0.1,
             adam(false, 0.02, false));
  check_pass(making<optim::AdamW>(optim::AdamWOptions(0.1)), 0.1, adam(true, 0.01, false));
  check_pass(making<optim::AdamW>(optim::AdamWOptions(0.1).amsgrad(true)), 0.1,
             adam(true, 0.01, true));
}

TEST_CASE("RMSprop, Adagrad and Lion do so, too") {
  check_pass(making<optim::RMSprop>(optim::RMSpropOptions(0.1)), 0.1,
             [](const Tensor& p, const Tensor& g, auto& s, int, double lr) {
               s[0].mul_(0.99).addcmul_(g, g, 1 - 0.99);
               p.addcdiv_(g, s[0].sqrt() + 1e-8, -lr);
             });
  check_pass(making<optim::RMSprop>(
                 optim::RMSpropOptions(0.1).centered(true).momentum(0.5).maximize(true)),
             0.1, [](const Tensor& p, const Tensor& g, auto& s, int, double lr) {
               const Tensor d = -g;
               s[0].mul_(0.99).addcmul_(d, d, 1 - 0.99);
               s[1].lerp_(d, 1 - 0.99);
               s[2].mul_(0.5).addcdiv_(d, s[0].addcmul(s[1], s[1], -1).sqrt() + 1e-8);
               p.add_(s[2], -lr);
             });
  check_pass(making<optim::Adagrad>(optim::AdagradOptions(0.1).lr_decay(0.5).weight_decay(0.01)),
             0.1, [](const Tensor& p, const Tensor& g, auto& s, int step, double lr) {
               const Tensor d = g.add(p, 0.01);
               s[0].addcmul_(d, d);
               p.addcdiv_(d, s[0].sqrt() + 1e-10, -lr / (1 + (step - 1) * 0.5));
             });
  check_pass(making<optim::Lion>(optim::LionOptions(0.01).weight_decay(0.1)), 0.01,
             [](const Tensor& p, const Tensor& g, auto& s, int, double lr) {
               p.mul_(1 - lr * 0.1);
               p.add_(s[0].lerp(g, 1 - 0.9).sign(), -lr);
               s[0].lerp_(g, 1 - 0.99);
             });
}

TEST_CASE("parameters that share memory are stepped one after the other") {
  const Threads threads(2);
  const Tensor memory = ones({100000});
  // The second one is the first without its end, the third has a place of its own in there.
  const auto leaf = [&](int64_t begin, int64_t count) {
    return memory.narrow(0, begin, count).detach().requires_grad_();
  };
  const Tensor a = leaf(0, 80000), b = leaf(0, 70000), c = leaf(80000, 20000);
  optim::SGD opt({a, b, c}, optim::SGDOptions(1).weight_decay(0.5));
  for (const Tensor& p : {a, b, c}) p.set_grad(full_like(p, 2));
  opt.step();
  // 1 - (2 + 0.5), and from there once more
  CHECK(memory.narrow(0, 0, 70000).equal(full({70000}, -2.75)));
  CHECK(memory.narrow(0, 70000, 30000).equal(full({30000}, -1.5)));
}

TEST_CASE("gradients may be parts of one bucket, or another parameter") {
  const Threads threads(2);
  const Tensor bucket = ones({90000});
  const Tensor a = zeros({50000}, requires_grad()), b = zeros({40000}, requires_grad()),
               c = zeros({50000}, requires_grad());
  a.set_grad(bucket.narrow(0, 0, 50000));
  b.set_grad(bucket.narrow(0, 50000, 40000));
  c.set_grad(a.detach());
  optim::SGD opt({a, b, c}, optim::SGDOptions(0.5));
  opt.step();
  CHECK(a.detach().equal(full({50000}, -0.5)));
  CHECK(b.detach().equal(full({40000}, -0.5)));
  CHECK(c.detach().equal(full({50000}, 0.25)));  // a was stepped before
}

TEST_CASE(
    "an update that fails leaves the parameters before it stepped and those behind it alone") {
  const Tensor a = ones({4}, requires_grad()), b = ones({4}, requires_grad()),
               c = ones({4}, requires_grad());
  optim::Adagrad opt({a, b, c}, optim::AdagradOptions(0.5));
  for (const Tensor& p : {a, b, c}) p.set_grad(ones({4}));
  opt.state(b).sum = zeros({3});
  CHECK_THROWS_AS(opt.step(), Error);
  CHECK(a.detach().equal(full({4}, 0.5)));
  CHECK(c.detach().equal(ones({4})));
  CHECK(opt.state(c).step == 0);
}

TEST_CASE("a step inside InferenceGuard works on every thread") {
  const Threads threads(2);
  const Tensor p = ones({200000}, requires_grad());
  optim::Lion opt({p}, optim::LionOptions(0.5));
  p.set_grad(ones({200000}));
  {
    const InferenceGuard inference;
    opt.step();
  }
  CHECK(p.detach().equal(full({200000}, 0.5)));
}

namespace {
struct HalvingOptions : optim::OptionsOf<HalvingOptions> {
  static void visit(auto&& self, auto&& v) { v("lr", self.lr_); }
  void validate() const override {}
  GRAPNEL_ARG(double, lr) = 1;
};
struct HalvingState : optim::StateOf<HalvingState> {
  static void visit(auto&&, auto&&) {}
};
/// Halves a parameter where its gradient is positive; what has no dimensions is done at once.
struct Halving final : optim::OptimizerOf<HalvingOptions, HalvingState> {
  using OptimizerOf::OptimizerOf;
  optim::Update update(const Tensor& param, const Tensor& grad, const HalvingOptions&,
                       HalvingState&) override {
    const auto halve = [](const Tensor& p, const Tensor& g) { p.copy_(where(g > 0, p * 0.5, p)); };
    if (param.dim() > 0) return optim::elementwise(halve, param, grad);
    halve(param, grad);
    return {};
  }
};
}  // namespace

TEST_CASE("an optimiser of one's own gives an update or does it") {
  const Tensor a = ones({70000}, requires_grad()), b = ones({}, requires_grad());
  Halving opt(std::vector<Tensor>{a, b}, HalvingOptions());
  a.set_grad(ones({70000}));
  b.set_grad(ones({}));
  opt.step();
  CHECK(a.detach().equal(full({70000}, 0.5)));
  CHECK(b.item<float>() == 0.5f);
}
