/// Compiled steps that fail: before anything of them has run they have not happened, later on they
/// leave what eager mode leaves at the same failure.
#include "tests/compile/backends.h"

using namespace grapnel;

namespace {

/// Something that is called step by step, and everything that its steps touch.
struct Trained {
  std::function<void(int)> step;
  std::function<std::vector<Tensor>()> state;
  std::function<std::vector<int64_t>()> numbers = [] { return std::vector<int64_t>(); };
};

/// Compares bits, layout and versions.
void check_same(const Trained& got, const Trained& want) {
  const std::vector<Tensor> a = got.state(), b = want.state();
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    CAPTURE(i);
    REQUIRE(a[i].defined() == b[i].defined());
    if (!a[i].defined()) continue;
    CHECK(a[i].equal(b[i]));
    CHECK(a[i]._version() == b[i]._version());
  }
  CHECK(got.numbers() == want.numbers());
}

/// Steps 0, 1, ..., of which `fails` throws, in eager mode and as `compiled` makes them.
template <class Make, class Compiled>
void like_eager(Make make, Compiled compiled, int fails, int steps = 4) {
  on_each_backend([&](CompileOptions options) {
    manual_seed(5);
    Trained eager = make();
    const GeneratorState start = default_generator().state();
    std::vector<GeneratorState> drawn;
    for (int i = 0; i < steps; ++i) {
      if (i == fails) CHECK_THROWS(eager.step(i));
      else eager.step(i);
    }
    const GeneratorState end = default_generator().state();
    manual_seed(5);
    Trained other = make();
    CHECK(default_generator().state() == start);
    auto step = compiled(other, options);
    for (int i = 0; i < steps; ++i) {
      if (i == fails) CHECK_THROWS(step(i));
      else step(i);
    }
    check_same(other, eager);
    CHECK(default_generator().state() == end);
  });
}
/// The whole step in one graph.
const auto whole = [](Trained& t, CompileOptions options) {
  return compile([&t](int i) { t.step(i); }, options);
};
/// The backward passes of the step.
const auto passes = [](Trained& t, CompileOptions options) {
  return [&t, options](int i) {
    CompiledBackward scope(options);
    t.step(i);
  };
};

std::vector<Tensor> with_grads(std::vector<Tensor> params) {
  std::vector<Tensor> all;
  for (const Tensor& p : params) all.insert(all.end(), {p, p.grad()});
  return all;
}

/// An Adam step, with `behind` called after it.
template <class Behind>
auto adam_and(Behind behind) {
  return [behind] {
    const Tensor w = ones({3}, requires_grad()), v = full({2, 2}, 0.5, requires_grad());
    const auto opt = std::make_shared<optim::Adam>(std::vector<Tensor>{w, v}, 0.1);
    return Trained{[=](int i) {
                     opt->zero_grad();
                     ((w * w).sum() + (v * 2.0).exp().sum()).backward();
                     opt->step();
                     behind(w, i);
                   },
                   [=] {
                     auto all = with_grads({w, v});
                     for (const Tensor& p : {w, v}) {
                       all.push_back(opt->state(p).exp_avg);
                       all.push_back(opt->state(p).exp_avg_sq);
                     }
                     return all;
                   },
                   [=] {
                     return std::vector<int64_t>{opt->state(w).step, opt->state(v).step};
                   }};
  };
}

}  // namespace

TEST_CASE("a step whose index is out of range behind the update has moved parameters and counted") {
  const auto read = [](const Tensor& w, int i) {
    w.detach().index_select(0, tensor({int64_t{i == 1 ? 9 : 1}})).mul_(2.0);
  };
  like_eager(adam_and(read), whole, 1);
}

TEST_CASE("a step in which a function throws behind the update has moved parameters and counted") {
  const auto call = [](const Tensor& w, int i) {
    invoke([i](const Tensor&) {
      if (i >= 2) throw std::runtime_error("no");
    }, w.detach());
    NoGradGuard no_grad;
    w.mul_(0.5);
  };
  like_eager(adam_and(call), whole, 2, 3);
}

TEST_CASE("an opaque hook that throws leaves what was done before it, as in eager mode") {
  const auto make = [] {
    const Tensor a = ones({2}, requires_grad()), b = ones({2}, requires_grad()),
                 c = ones({2}, requires_grad());
    for (const Tensor& t : {a, b}) t.set_grad(full({2}, 5.0));
    const auto step = std::make_shared<int>(0);
    a.register_hook(opaque([step](const Tensor&) {
      if (*step == 1) throw std::runtime_error("hook throws");
    }));
    return Trained{[=](int i) {
                     *step = i;
                     ((a * a).sum() + (c * 3 * b * c).sum()).backward();
                   },
                   [=] { return with_grads({a, b, c}); }};
  };
  like_eager(make, whole, 1);
  like_eager(make, passes, 1);
}

TEST_CASE("in backward, what came before an opaque hook threw is stepped and counted") {
  for (const int64_t accumulate : {1, 2}) {
    for (const int fails : {1, 4}) {
    const auto make = [accumulate, fails] {
      const Tensor a = ones({2}, requires_grad()), b = ones({2}, requires_grad()),
                   c = ones({2}, requires_grad());
      const auto opt = std::make_shared<optim::Adam>(std::vector<Tensor>{a, b, c}, 0.1);
      const auto stepping = std::make_shared<optim::StepInBackward>(
          *opt, optim::StepInBackwardOptions{.accumulate = accumulate});
      const auto step = std::make_shared<int>(0);
      a.register_hook(opaque([step, fails](const Tensor&) {
        if (*step == fails) throw std::runtime_error("no");
      }));
      return Trained{[=](int i) {
                       *step = i;
                       ((a * a).sum() + (c * 3 * b * c).sum()).backward();
                     },
                     [=, keep = stepping] {
                       auto all = with_grads({a, b, c});
                       for (const Tensor& p : {a, b, c}) all.push_back(opt->state(p).exp_avg);
                       return all;
                     },
                     [=] {
                       std::vector<int64_t> counts;
                       for (const Tensor& p : {a, b, c}) counts.push_back(opt->state(p).step);
                       return counts;
                     }};
    };
      like_eager(make, whole, fails, 7);
      like_eager(make, passes, fails, 7);
    }
  }
}

TEST_CASE("gradients that the step drops later are there when it fails before") {
  const auto make = [] {
    const Tensor w = ones({3}, requires_grad());
    return Trained{[=](int i) {
                     (w * w * w).sum().backward();
                     {
                       NoGradGuard no_grad;
                       w.sub_(w.grad() * 0.1);
                     }
                     invoke([i](const Tensor&) {
                       if (i == 1) throw std::runtime_error("no");
                     }, w.detach());
                     w.reset_grad();
                   },
                   [=] { return with_grads({w}); }};
  };
  like_eager(make, whole, 1, 2);
}

TEST_CASE("buffers, generators and what was overwritten are as in eager mode when a check fails") {
  const auto make = [] {
    const Tensor p = ones({3}), q = zeros({3});
    auto norm = nn::BatchNorm1d(3);
    return Trained{[=](int i) mutable {
                     const Tensor x = rand({4, 3});
                     p.fill_(1.0 + i);
                     q.copy_(norm(x).detach().sum({0}));
                     dropout(x, 0.5, true);
                     const Tensor y = p.index_select(0, tensor({int64_t{i == 2 ? 3 : 2}}));
                     p.fill_(10.0 + i);
                     q.add_(y.sum() + rand({3}));
                   },
                   [=] {
                     return std::vector<Tensor>{p, q, norm->running_mean, norm->running_var,
                                                norm->num_batches_tracked};
                   }};
  };
  like_eager(make, whole, 2);
  like_eager(make, whole, 2, 3);
}

TEST_CASE("a body that throws when a part of it has run leaves what eager mode leaves") {
  const auto make = [](int ops, bool looks) {
    return [=] {
      const Tensor w = ones({3}, requires_grad());
      const auto opt = std::make_shared<optim::SGD>(std::vector<Tensor>{w},
                                                    optim::SGDOptions(0.1).momentum(0.9));
      return Trained{[=](int i) {
                       opt->zero_grad();
                       (w * w).sum().backward();
                       opt->step();
                       Tensor y = w.detach();
                       if (looks) y.sum().item<double>();
                       for (int k = 0; k < ops; ++k) y = y * 0.999;
                       (w * y).sum().backward();
                       opt->step();
                       if (i == 1) throw std::runtime_error("boom");
                       opt->step();
                     },
                     [=] {
                       auto all = with_grads({w});
                       all.push_back(opt->state(w).momentum_buffer);
                       return all;
                     }};
    };
  };
  like_eager(make(5, true), whole, 1, 3);
  like_eager(make(20500, false), whole, 1, 2);
}

TEST_CASE("a body that throws before anything of it has run has done nothing") {
  on_each_backend([](CompileOptions options) {
    const Tensor p = tensor({1.0, 2.0}, requires_grad()), g = ones({2});
    const auto opt = std::make_shared<optim::Adam>(std::vector<Tensor>{p}, 0.1);
    p.set_grad(g);
    auto step = compile(
        [&](bool bad) {
          opt->step();
          opt->zero_grad();
          (p * p).sum().backward();
          p.set_data(p.detach() * 0.5);
          opt->step();
          if (bad) throw std::runtime_error("boom");
        },
        options);
    CHECK_THROWS_WITH_AS(step(true), "boom", std::runtime_error);
    CHECK(p.detach().equal(tensor({1.0, 2.0})));
    CHECK(p.grad().is_same(g));
    CHECK(opt->state(p).step == 0);
    step(false);
    CHECK(opt->state(p).step == 2);
  });
}

TEST_CASE("an escaped value from before the failure can be read, later ones say why not") {
  on_each_backend([](CompileOptions options) {
    Tensor before, behind;
    const Tensor p = ones({3});
    auto f = compile(
        [&] {
          before = p * 2.0;
          invoke([](const Tensor&) { throw std::runtime_error("no more"); }, p);
          behind = p * 3.0;
        },
        options);
    CHECK_THROWS_WITH_AS(f(), "no more", std::runtime_error);
    CHECK(before.equal(full({3}, 2.0)));
    CHECK_THROWS_WITH_AS(behind.sum(), "this tensor was never computed: no more", Error);
  });
}

TEST_CASE("an index out of range is an error even if nobody uses what it selects") {
  on_each_backend([](CompileOptions options) {
    const Tensor w = ones({3});
    auto f = compile(
        [&](Tensor x, Tensor i) {
          w.index_select(0, i);
          return x * 2.0;
        },
        options);
    CHECK(f(w, tensor({int64_t{2}})).equal(full({3}, 2.0)));
    CHECK_THROWS_WITH_AS(f(w, tensor({int64_t{7}})), doctest::Contains("index 7"), Error);
  });
}

TEST_CASE("a graph that cannot be compiled has not happened") {
  reset_compile_cache();
  compiler::pass_options().fails = compiler::Stage::plan;
  const Tensor w = ones({3}, requires_grad()), g = ones({3});
  w.set_grad(g);
  auto f = compile(
      [&] {
        w.reset_grad();
        NoGradGuard no_grad;
        w.mul_(2.0);
      },
      {.on_failure = OnFailure::error});
  CHECK_THROWS_AS(f(), Error);
  compiler::pass_options().fails = compiler::Stage::none;
  CHECK(w.grad().is_same(g));
  CHECK(w.detach().equal(ones({3})));
  CHECK(w._version() == 0);
}

TEST_CASE("StrongBackward restores gradients when a recorded pass fails while its graph runs") {
  on_each_backend([](CompileOptions options) {
    const Tensor a = ones({2}, requires_grad()), b = ones({2}, requires_grad());
    b.set_grad(full({2}, 7.0));
    a.register_hook(opaque([](const Tensor&) { throw std::runtime_error("no"); }));
    const Tensor loss = (a * a).sum() + (b * 3 * b).sum();
    const autograd::StrongBackward strong;
    CompiledBackward scope(options);
    CHECK_THROWS_AS(loss.backward(), std::runtime_error);
    CHECK(b.grad().equal(full({2}, 7.0)));
    CHECK_FALSE(a.grad().defined());
  });
}
