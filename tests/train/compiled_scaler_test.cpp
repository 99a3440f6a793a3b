/// GradScaler in compiled steps: no break, and the bits of eager mode.
#include <doctest/doctest.h>

#include "grapnel/grapnel.h"

using namespace grapnel;

namespace {

template <class Opt, class Options>
struct Scaled {
  explicit Scaled(const Options& options) : opt(std::vector<Tensor>{w, v}, options) {}
  void step(const Tensor& slope) {
    opt.zero_grad();
    scaler.scale(((w * w).sum() + (v * 3.0).sum()) * slope).backward();
    scaler.step(opt);
    scaler.update();
  }
  Tensor w = full({8}, 0.5, requires_grad()), v = full({3}, 0.25, requires_grad());
  Opt opt;
  GradScaler scaler{{.init_scale = 8, .growth_interval = 2}};
};

}  // namespace

TEST_CASE("a scaled step is one graph with the bits and counts of eager mode, overflows included") {
  const auto slope = [](int i) {
    return full({}, i == 0 || i == 3 ? std::numeric_limits<double>::infinity() : 1.0 + i);
  };
  for (const Backend backend : {Backend::eager, Backend::aot_eager, Backend::fused}) {
    Scaled<optim::Adam, optim::AdamOptions> eager(0.1), compiled(0.1);
    auto step =
        compile([&](Tensor s) { compiled.step(s); }, {.backend = backend, .fullgraph = true});
    for (int i = 0; i < 8; ++i) {
      CAPTURE(i);
      eager.step(slope(i));
      step(slope(i));
      CHECK(compiled.w.equal(eager.w));
      CHECK(compiled.v.equal(eager.v));
      CHECK(compiled.scaler.get_scale() == eager.scaler.get_scale());
      CHECK(compiled.opt.state(compiled.w).step == eager.opt.state(eager.w).step);
      CHECK(compiled.opt.state(compiled.w).exp_avg.defined() ==
            eager.opt.state(eager.w).exp_avg.defined());
    }
    CHECK(step.stats().breaks == 0);
  }
}

TEST_CASE("the first step of momentum is the first that was taken") {
  const auto options = optim::SGDOptions(0.1).momentum(0.9).dampening(0.5);
  Scaled<optim::SGD, optim::SGDOptions> eager(options), compiled(options);
  auto step = compile([&](Tensor s) { compiled.step(s); }, {.fullgraph = true});
  for (const double s : {1.0 / 0.0, 1.0, 2.0}) {
    eager.step(full({}, s));
    step(full({}, s));
    CHECK(compiled.w.equal(eager.w));
  }
}

TEST_CASE("a scaled step of an optimiser with step hooks breaks the graph, which is listed once") {
  Scaled<optim::SGD, optim::SGDOptions> m(0.1);
  int steps = 0;
  m.opt.register_step_post_hook([&](optim::Optimizer&) { ++steps; });
  auto step = compile([&](Tensor s) { m.step(s); });
  for (const double s : {1.0, 1.0 / 0.0, 1.0}) step(full({}, s));
  CHECK(steps == 2);
  CHECK(step.stats().breaks == 3);
  CHECK(step.stats().break_reasons.size() == 1);
}

TEST_CASE("a scaled step that throws has not changed the scaler") {
  Scaled<optim::SGD, optim::SGDOptions> m(0.1);
  bool bad = true;
  auto step = compile([&](Tensor s) {
    m.step(s);
    if (bad) throw std::runtime_error("no");
  });
  CHECK_THROWS_AS(step(full({}, 1.0)), std::runtime_error);
  bad = false;
  step(full({}, 1.0 / 0.0));
  CHECK(m.scaler.get_scale() == 4);
  CHECK(m.w.detach().equal(full({8}, 0.5)));
}
