/// Optimisers: formulas, groups, saving, and their hooks (O4, O5, A12).
#include "grapnel/optim/optim.h"

#include <doctest/doctest.h>

#include <cmath>

#include "grapnel/autograd/grad_mode.h"
#include "grapnel/base/thread_pool.h"
#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"
#include "grapnel/nn/nn.h"

using namespace grapnel;
using optim::Optimizer;
using optim::OptimizerParamGroup;
using optim::OptimizerStateDict;

namespace {

double number(const Tensor& t) { return t.item<double>(); }
Tensor leaf(double v, DType dtype = kFloat64) {
  return tensor({v}, TensorOptions(dtype).requires_grad(true));
}
void give_grad(const Tensor& p, double g) { p.set_grad(full({1}, g, p.dtype())); }

}  // namespace

TEST_CASE("sgd follows the formulas of its options") {
  const auto run = [](const optim::SGDOptions& options) {
    Tensor p = leaf(1);
    optim::SGD opt({p}, options);
    for (double g : {0.5, 0.25}) {
      give_grad(p, g);
      opt.step();
    }
    return number(p);
  };
  CHECK(run(0.1) == doctest::Approx(1 - 0.05 - 0.025));
  CHECK(run(optim::SGDOptions(0.1).maximize(true)) == doctest::Approx(1 + 0.05 + 0.025));
  CHECK(run(optim::SGDOptions(0.1).momentum(0.9)) ==
        doctest::Approx(1 - 0.05 - 0.1 * (0.45 + 0.25)));
  CHECK(run(optim::SGDOptions(0.1).momentum(0.9).dampening(0.5)) ==
        doctest::Approx(1 - 0.05 - 0.1 * (0.45 + 0.125)));
  // buffers 0.5 and 0.7; steps 0.5 + 0.45 and 0.25 + 0.63
  CHECK(run(optim::SGDOptions(0.1).momentum(0.9).nesterov(true)) ==
        doctest::Approx(1 - 0.095 - 0.088));
  CHECK(run(optim::SGDOptions(0.1).weight_decay(0.2)) ==
        doctest::Approx(0.93 - 0.1 * (0.25 + 0.2 * 0.93)));
}

TEST_CASE("adam and adamw follow their formulas") {
  const double b1 = 0.9, b2 = 0.999, eps = 1e-8, lr = 0.01, wd = 0.1;
  for (const bool decoupled : {false, true})
    for (const bool amsgrad : {false, true}) {
      CAPTURE(decoupled);
      CAPTURE(amsgrad);
      Tensor p = leaf(1);
      std::unique_ptr<Optimizer> opt;
      if (decoupled)
        opt = std::make_unique<optim::AdamW>(
            std::vector{p}, optim::AdamWOptions(lr).weight_decay(wd).amsgrad(amsgrad));
      else
        opt = std::make_unique<optim::Adam>(
            std::vector{p}, optim::AdamOptions(lr).weight_decay(wd).amsgrad(amsgrad));
      double x = 1, m = 0, v = 0, vmax = 0;
      int t = 0;
      for (double given : {0.5, -0.1, 0.02}) {
        give_grad(p, given);
        opt->step();
        ++t;
        const double g = decoupled ? given : given + wd * x;
        if (decoupled) x *= 1 - lr * wd;
        m = b1 * m + (1 - b1) * g;
        v = b2 * v + (1 - b2) * g * g;
        vmax = std::max(vmax, v);
        x -= lr / (1 - std::pow(b1, t)) * m /
             (std::sqrt(amsgrad ? vmax : v) / std::sqrt(1 - std::pow(b2, t)) + eps);
        CHECK(number(p) == doctest::Approx(x).epsilon(1e-12));
      }
    }
}

TEST_CASE("in f32 three steps are right to rounding") {
  // From p = 1 with gradients 0.5, -0.1 and 0.02, by hand in f64.
  const auto run = [](auto&& make) {
    Tensor p = leaf(1, kFloat32);
    auto opt = make(p);
    for (double g : {0.5, -0.1, 0.02}) {
      give_grad(p, g);
      opt->step();
    }
    return p.item<float>();
  };
  CHECK(run([](Tensor p) {
          return std::make_unique<optim::SGD>(std::vector{p}, optim::SGDOptions(0.1).momentum(0.9));
        }) == doctest::Approx(0.8815).epsilon(2e-7));
  CHECK(run([](Tensor p) {
          return std::make_unique<optim::AdamW>(std::vector{p}, optim::AdamWOptions(0.1));
        }) == doctest::Approx(0.804173183813916).epsilon(2e-7));
}

TEST_CASE("parameters without a gradient are left alone; zero_grad frees or zeroes") {
  Tensor a = leaf(1), b = leaf(2);
  optim::SGD opt({a, b}, 0.5);
  give_grad(a, 1);
  opt.step();
  CHECK(number(a) == 0.5);
  CHECK(number(b) == 2);
  opt.zero_grad(false);
  CHECK(number(a.grad()) == 0);
  opt.zero_grad();
  CHECK(!a.grad().defined());
}

TEST_CASE("groups have options of their own; learning rates can be changed on the way") {
  Tensor a = leaf(0), b = leaf(0);
  optim::SGD opt(std::vector{OptimizerParamGroup({a}),
                             OptimizerParamGroup({b}, std::make_unique<optim::SGDOptions>(1.0))},
                 0.1);
  give_grad(a, 1);
  give_grad(b, 1);
  opt.step();
  CHECK(number(a) == doctest::Approx(-0.1));
  CHECK(number(b) == -1);
  opt.param_groups()[0].options().set_lr(0.2);
  opt.step();
  CHECK(number(a) == doctest::Approx(-0.3));
  CHECK(opt.size() == 2);
}

TEST_CASE("parameters put into a group's list are optimised from the next step on") {
  Tensor a = leaf(1), b = leaf(1);
  const auto make = [&](int kind) -> std::unique_ptr<Optimizer> {
    if (kind == 0)
      return std::make_unique<optim::SGD>(std::vector{a}, optim::SGDOptions(0.1).momentum(0.9));
    return std::make_unique<optim::Adam>(std::vector{a}, optim::AdamOptions(0.1));
  };
  for (const int kind : {0, 1}) {
    a = leaf(1), b = leaf(1);
    auto opt = make(kind);
    give_grad(a, 1);
    give_grad(b, 1);
    opt->step();
    CHECK(number(b) == 1);
    opt->param_groups()[0].params().push_back(b);
    CHECK(opt->size() == 2);
    opt->step();
    Tensor fresh = leaf(1);
    auto alone = kind == 0
                     ? std::unique_ptr<Optimizer>(std::make_unique<optim::SGD>(
                           std::vector{fresh}, optim::SGDOptions(0.1).momentum(0.9)))
                     : std::make_unique<optim::Adam>(std::vector{fresh}, optim::AdamOptions(0.1));
    give_grad(fresh, 1);
    alone->step();
    CHECK(number(b) == number(fresh));
    alone->step();
    CHECK(number(a) == number(fresh));  // two steps, the second with what the first had left
    CHECK(opt->state_dict().param_groups[0].params == std::vector<int64_t>{0, 1});
    opt->load_state_dict(opt->state_dict());
  }
}

TEST_CASE(
    "a parameter that is replaced in its group begins anew, and what is gone stays as it is") {
  Tensor a = leaf(1), b = leaf(1);
  optim::SGD opt({a, b}, optim::SGDOptions(0.1).momentum(0.9));
  give_grad(a, 1);
  give_grad(b, 1);
  opt.step();
  Tensor c = leaf(1);
  give_grad(c, 1);
  opt.param_groups()[0].params()[0] = c;
  opt.step();
  CHECK(number(a) == doctest::Approx(0.9));
  CHECK(number(c) == doctest::Approx(0.9));
  CHECK(number(b) == doctest::Approx(0.9 - 0.19));
  CHECK_THROWS_AS(opt.step_param(a), Error);
  opt.param_groups()[0].params().clear();
  opt.step();
  CHECK(opt.size() == 0);
  CHECK(number(b) == doctest::Approx(0.9 - 0.19));
}

TEST_CASE("groups can be put into the list of groups, and take the defaults") {
  Tensor a = leaf(1), b = leaf(1);
  optim::SGD opt({a}, 0.1);
  opt.param_groups().push_back(OptimizerParamGroup({b}));
  CHECK_THROWS_WITH_AS(opt.param_groups()[1].options(), doctest::Contains("has none yet"), Error);
  give_grad(b, 1);
  opt.step();
  CHECK(number(b) == doctest::Approx(0.9));
  CHECK(opt.param_groups()[1].options().get_lr() == 0.1);
}

TEST_CASE("what cannot be optimised is refused at the step, and nothing is stepped") {
  Tensor a = leaf(1);
  give_grad(a, 1);
  optim::SGD opt({a}, 0.1);
  auto& params = opt.param_groups()[0].params();
  for (const Tensor& bad : {Tensor(), a * 2, a}) {
    params.push_back(bad);
    CHECK_THROWS_AS(opt.step(), Error);
    CHECK_THROWS_AS(opt.state_dict(), Error);
    CHECK(number(a) == 1);
    params.pop_back();
  }
  opt.step();
  CHECK(number(a) == doctest::Approx(0.9));
}

TEST_CASE("a saved state whose entries are of another kind is refused, and nothing is changed") {
  Tensor a = leaf(1);
  optim::Adam opt({a}, optim::AdamOptions(0.1));
  give_grad(a, 1);
  opt.step();
  OptimizerStateDict dict = opt.state_dict();
  for (auto& [name, entry] : dict.state[0])
    if (std::holds_alternative<Tensor>(entry)) entry = Scalar(1);
  CHECK_THROWS_WITH_AS(opt.load_state_dict(dict), doctest::Contains("expected a tensor"), Error);
  CHECK(std::holds_alternative<Tensor>(opt.state_dict().state[0].at("exp_avg")));
}

TEST_CASE("LBFGS begins anew when its parameters have changed, and says when it has none") {
  Tensor a = leaf(3), b = leaf(-2);
  optim::LBFGS opt({a}, optim::LBFGSOptions(1).max_iter(5));
  const auto closure = [&] {
    opt.zero_grad();
    Tensor loss = (a * a).sum() + (b - 1).square().sum();
    loss.backward();
    return loss;
  };
  opt.step(closure);
  CHECK(number(a) == doctest::Approx(0).epsilon(1e-6));
  opt.param_groups()[0].params().push_back(b);
  opt.step(closure);
  CHECK(number(b) == doctest::Approx(1).epsilon(1e-6));
  opt.param_groups()[0].params().clear();
  CHECK_THROWS_AS(opt.step(closure), Error);
}

TEST_CASE("optimisers refuse parameters and options that cannot work") {
  Tensor a = leaf(1);
  CHECK_THROWS_WITH_AS(optim::SGD({a, a}, 0.1), doctest::Contains("already in a group"), Error);
  CHECK_THROWS_WITH_AS(optim::SGD({a * 2}, 0.1), doctest::Contains("only leaves"), Error);
  CHECK_THROWS_AS(optim::SGD({a}, -1), Error);
  CHECK_THROWS_AS(optim::SGD({a}, optim::SGDOptions(1).nesterov(true)), Error);
  CHECK_THROWS_AS(optim::AdamW({a}, optim::AdamWOptions(1).betas({1.0, 0.9})), Error);
  optim::SGD opt({a}, 0.1);
  CHECK_THROWS_AS(opt.step_param(leaf(1)), Error);
  CHECK_THROWS_AS(
      opt.add_param_group(OptimizerParamGroup({leaf(1)}, std::make_unique<optim::AdamOptions>())),
      Error);
}

TEST_CASE("step with a closure computes the loss with recording on and returns it") {
  Tensor p = leaf(3);
  optim::SGD opt({p}, 0.1);
  NoGradGuard no_grad;
  const Tensor loss = opt.step([&] {
    opt.zero_grad();
    Tensor l = (p * p).sum();
    l.backward();
    return l;
  });
  CHECK(number(loss) == 9);
  CHECK(number(p) == doctest::Approx(2.4));
}

TEST_CASE(
    "eager.A12: an optimiser stepped inside backward frees each gradient and ends where stepping "
    "after it "
    "ends") {
  Tensor p = leaf(1);
  optim::SGD opt({p}, 0.1);
  HookHandle h = p.register_post_accumulate_grad_hook([&](const Tensor& leaf) {
    opt.step_param(leaf);
    leaf.reset_grad();
  });
  (p * 3).backward();
  CHECK(number(p) == doctest::Approx(0.7));
  CHECK(!p.grad().defined());
  (p * 3).backward();
  CHECK(number(p) == doctest::Approx(0.4));
  h.remove();
  (p * 3).backward();
  CHECK(number(p) == doctest::Approx(0.4));
  CHECK(number(p.grad()) == 3);
}

TEST_CASE(
    "eager.A12: stepping per parameter inside backward gives the bits of one step at the end") {
  const auto train = [](auto make, bool inside) {
    manual_seed(5);
    nn::Sequential net(nn::Linear(8, 16), nn::Tanh(), nn::Linear(16, 4));
    auto opt = make(net->parameters());
    if (inside)
      for (const Tensor& p : net->parameters())
        p.register_post_accumulate_grad_hook([opt = opt.get()](const Tensor& leaf) {
          opt->step_param(leaf);
          leaf.reset_grad();
        });
    for (int i = 0; i < 5; ++i) {
      Tensor loss = mse_loss(net(randn({32, 8})), randn({32, 4}));
      loss.backward();
      if (!inside) {
        opt->step();
        opt->zero_grad();
      }
    }
    return net->parameters();
  };
  const auto same = [&](auto make) {
    const auto after = train(make, false), within = train(make, true);
    for (size_t i = 0; i < after.size(); ++i) CHECK(after[i].equal(within[i]));
  };
  same([](std::vector<Tensor> p) {
    return std::make_unique<optim::SGD>(
        p, optim::SGDOptions(0.1).momentum(0.9).nesterov(true).weight_decay(0.01));
  });
  same([](std::vector<Tensor> p) {
    return std::make_unique<optim::AdamW>(p, optim::AdamWOptions(0.01));
  });
}

TEST_CASE("eager.O4: global pre, own pre, step, own post, global post") {
  Tensor p = leaf(1);
  optim::SGD sgd({p}, 0.1);
  optim::AdamW adam({p}, 0.1);
  std::vector<int> marks;
  ScopedHook pre = optim::register_optimizer_step_pre_hook([&](Optimizer&) { marks.push_back(0); });
  ScopedHook post =
      optim::register_optimizer_step_post_hook([&](Optimizer&) { marks.push_back(5); });
  for (Optimizer* opt : {static_cast<Optimizer*>(&sgd), static_cast<Optimizer*>(&adam)}) {
    marks.clear();
    opt->register_step_post_hook([&](Optimizer&) { return marks.push_back(2), 7; });
    opt->register_step_pre_hook([&](Optimizer&) { marks.push_back(1); });
    opt->step();
    CHECK(marks == std::vector{0, 1, 2, 5});
  }
}

TEST_CASE("eager.O4: a step pre-hook may return another closure; prepend puts a hook first") {
  Tensor p = leaf(1);
  optim::SGD opt({p}, 0.1);
  std::vector<int> order;
  opt.register_step_pre_hook(
      [&](Optimizer&, const Optimizer::LossClosure& closure) -> Optimizer::LossClosure {
        order.push_back(1);
        return [closure] { return closure() * 2; };
      });
  opt.register_step_pre_hook([&](Optimizer&) { order.push_back(0); }, {.prepend = true});
  CHECK(number(opt.step([] { return tensor({4.0}); })) == 8);
  CHECK(order == std::vector{0, 1});
}

TEST_CASE("a saved optimiser goes on where it stopped") {
  const auto grads = {0.5, -0.2, 0.1, 0.3};
  Tensor p = leaf(1), q = leaf(1);
  optim::AdamW all({p}, optim::AdamWOptions(0.1)), first({q}, optim::AdamWOptions(0.1));
  int i = 0;
  OptimizerStateDict saved;
  optim::AdamW second({q}, optim::AdamWOptions(0.5));
  for (double g : grads) {
    give_grad(p, g);
    all.step();
    give_grad(q, g);
    if (i < 2) first.step();
    if (i == 1) {
      saved = first.state_dict();
      second.load_state_dict(saved);
    }
    if (i >= 2) second.step();
    ++i;
  }
  CHECK(number(p) == number(q));
  CHECK(std::get<Scalar>(saved.state.at(0).at("step")).to<int>() == 2);
  CHECK(second.state(q).step == 4);
  CHECK(number(first.state(q).exp_avg) != number(second.state(q).exp_avg));
}

TEST_CASE("a state dict that does not fit is refused before anything changes") {
  Tensor p = leaf(1), q = leaf(1);
  optim::SGD one({p}, optim::SGDOptions(0.1).momentum(0.9)), two({p, q}, 0.2);
  CHECK_THROWS_WITH_AS(two.load_state_dict(one.state_dict()),
                       doctest::Contains("saved with 1 parameters, this one has 2"), Error);
  give_grad(p, 1);
  one.step();
  OptimizerStateDict dict = one.state_dict();
  dict.state[0]["momentum_buffer"] = zeros({3});
  dict.param_groups[0].options["lr"] = 0.7;
  CHECK_THROWS_WITH_AS(one.load_state_dict(dict),
                       doctest::Contains("momentum_buffer of parameter 0 has shape [3]"), Error);
  CHECK(one.param_groups()[0].options().get_lr() == 0.1);
  dict.param_groups.clear();
  CHECK_THROWS_WITH_AS(one.load_state_dict(dict), doctest::Contains("0 groups"), Error);
}

TEST_CASE("eager.O5: hooks around saving and loading, in order, may change or return the dict") {
  Tensor p = leaf(1);
  optim::SGD opt({p}, 0.1);
  std::vector<std::string> log;
  opt.register_state_dict_pre_hook([&](Optimizer&) { log.push_back("save pre"); });
  opt.register_state_dict_post_hook([&](Optimizer&, OptimizerStateDict& dict) {
    log.push_back("save post");
    OptimizerStateDict copy = dict;
    copy.param_groups[0].options["lr"] = 0.4;
    return copy;
  });
  OptimizerStateDict saved = opt.state_dict();
  CHECK(saved.param_groups[0].options["lr"].to<double>() == 0.4);

  opt.register_load_state_dict_pre_hook([&](Optimizer&, OptimizerStateDict& dict) {
    log.push_back("load pre");
    dict.param_groups[0].options["lr"] = 0.002;
  });
  opt.register_load_state_dict_pre_hook(
      [&](Optimizer&, const OptimizerStateDict& dict) {
        log.push_back("load pre first");
        OptimizerStateDict copy = dict;
        copy.param_groups[0].options["lr"] = 0.003;
        return copy;
      },
      {.prepend = true});
  opt.register_load_state_dict_post_hook([&](Optimizer& o) {
    log.push_back(str("load post ", o.param_groups()[0].options().get_lr()));
  });
  opt.load_state_dict(saved);
  CHECK(opt.param_groups()[0].options().get_lr() == 0.002);
  CHECK(saved.param_groups[0].options["lr"].to<double>() == 0.4);
  CHECK(log == std::vector<std::string>{"save pre", "save post", "load pre first", "load pre",
                                        "load post 0.002"});
}

TEST_CASE("a module trains") {
  manual_seed(1);
  nn::Sequential net(nn::Linear(2, 16), nn::Tanh(), nn::Linear(16, 1));
  optim::AdamW opt(net->parameters(), optim::AdamWOptions(0.02));
  const Tensor x = tensor({{0.0, 0.0}, {0.0, 1.0}, {1.0, 0.0}, {1.0, 1.0}}),
               y = tensor({{0.0}, {1.0}, {1.0}, {0.0}});
  double loss = 1;
  for (int i = 0; i < 300; ++i) {
    opt.zero_grad();
    Tensor l = mse_loss(net(x), y);
    l.backward();
    opt.step();
    loss = l.item<double>();
  }
  CHECK(loss < 0.01);
}

TEST_CASE("a large parameter moves as it does in one piece, whatever the number of threads") {
  manual_seed(2);
  const Tensor start = randn({400, 300}), slope = randn({400, 300});
  const int threads = get_num_threads();
  // A parameter that lies column by column is not split.
  const auto trained = [&](bool by_columns, auto make) {
    const Tensor p = (by_columns ? start.t().contiguous().t() : start.clone()).requires_grad_();
    auto opt = make(p);
    for (int i = 0; i < 3; ++i) {
      p.set_grad(by_columns ? (slope * (i + 1)).t().contiguous().t() : slope * (i + 1));
      opt.step();
    }
    return p.detach().contiguous();
  };
  const auto check = [&](auto make) {
    const Tensor whole = trained(true, make);
    for (const int count : {1, 3}) {
      set_num_threads(count);
      CHECK(trained(false, make).equal(whole));
    }
    set_num_threads(threads);
  };
  check([](const Tensor& p) {
    return optim::SGD({p}, optim::SGDOptions(0.1).momentum(0.9).nesterov(true).weight_decay(0.01));
  });
  check(
      [](const Tensor& p) { return optim::Adam({p}, optim::AdamOptions(0.1).weight_decay(0.01)); });
  check([](const Tensor& p) { return optim::AdamW({p}, optim::AdamWOptions(0.1).amsgrad(true)); });
}
