/// Optimisers and schedules against PyTorch, step by step: tools/record_torch.py wrote down the
/// numbers, in f64.
#include <doctest/doctest.h>

#include "grapnel/grapnel.h"
#include "grapnel/io/safetensors.h"

using namespace grapnel;

namespace {

const Tensor& recorded(const std::string& name) {
  static const io::Safetensors file = io::load_safetensors("tests/optim/torch_optim.safetensors");
  return file.tensors[name];
}

template <class Optimizer, class Options>
void compare(const std::string& name, const Options& options) {
  INFO(name);
  const Tensor p = recorded(name + "/start").clone().set_requires_grad(true);
  Optimizer opt({p}, options);
  const Tensor grads = recorded(name + "/grads"), params = recorded(name + "/params");
  for (int64_t i = 0; i < grads.size(0); ++i) {
    p.set_grad(grads[i].clone());
    opt.step();
    CHECK_MESSAGE(p.detach().allclose(params[i], 1e-12, 1e-14), "step ", i, p.str(),
                  params[i].str());
  }
}

void compare_lbfgs(const std::string& name, const optim::LBFGSOptions& options) {
  INFO(name);
  const Tensor p = recorded(name + "/start").clone().set_requires_grad(true);
  optim::LBFGS opt({p}, options);
  for (int64_t i = 0; i < 4; ++i) {
    const Tensor loss = opt.step([&] {
      opt.zero_grad();
      const Tensor next = p.slice(0, 1), here = p.slice(0, 0, -1);
      const Tensor value = (100 * (next - here * here).square() + (1 - here).square()).sum();
      value.backward();
      return value;
    });
    CHECK(loss.item<double>() ==
          doctest::Approx(recorded(name + "/losses")[i].item<double>()).epsilon(1e-9));
    CHECK_MESSAGE(p.detach().allclose(recorded(name + "/params")[i], 1e-7, 1e-9), "step ", i,
                  p.str(), recorded(name + "/params")[i].str());
  }
}

template <class Make>
void compare_schedule(const std::string& name, Make make) {
  INFO(name);
  std::vector<optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::vector{zeros({1}, requires_grad())});
  groups.emplace_back(std::vector{zeros({1}, requires_grad())},
                      optim::SGDOptions(0.02).momentum(0.9).clone());
  optim::SGD opt(groups, optim::SGDOptions(0.1).momentum(0.9));
  const auto schedule = make(opt);
  const Tensor rates = recorded(name + "/rates");
  for (int64_t i = 0; i < rates.size(0); ++i) {
    if (i > 0) schedule->step();
    CHECK(schedule->get_last_lr()[0] == doctest::Approx(rates[i][0].item<double>()).epsilon(1e-12));
    CHECK(schedule->get_last_lr()[1] == doctest::Approx(rates[i][1].item<double>()).epsilon(1e-12));
    if (rates.size(1) > 2)
      CHECK(opt.param_groups()[0].options().to_map().at("momentum").to_double() ==
            doctest::Approx(rates[i][2].item<double>()).epsilon(1e-12));
  }
}

void compare_plateau(const std::string& name, const optim::PlateauOptions& options) {
  INFO(name);
  optim::SGD opt({zeros({1}, requires_grad())}, 0.1);
  optim::ReduceLROnPlateau schedule(opt, options);
  for (int64_t i = 0; i < recorded(name + "/metrics").numel(); ++i) {
    schedule.step(recorded(name + "/metrics")[i].item<double>());
    CHECK(opt.param_groups()[0].options().get_lr() ==
          doctest::Approx(recorded(name + "/rates")[i].item<double>()).epsilon(1e-12));
  }
}

}  // namespace

TEST_CASE("optimisers take PyTorch's steps") {
  compare<optim::SGD>("sgd", optim::SGDOptions(0.1));
  compare<optim::SGD>("sgd_momentum",
                      optim::SGDOptions(0.1).momentum(0.9).dampening(0.1).weight_decay(0.01));
  compare<optim::SGD>("sgd_nesterov",
                      optim::SGDOptions(0.1).momentum(0.9).nesterov(true).maximize(true));
  compare<optim::Adam>("adam", optim::AdamOptions(0.1).weight_decay(0.1));
  compare<optim::Adam>("adam_amsgrad",
                       optim::AdamOptions(0.1).betas({0.8, 0.9}).amsgrad(true).maximize(true));
  compare<optim::AdamW>("adamw", optim::AdamWOptions(0.1).amsgrad(true));
  compare<optim::RMSprop>("rmsprop", optim::RMSpropOptions(0.01).weight_decay(0.1));
  compare<optim::RMSprop>(
      "rmsprop_centered",
      optim::RMSpropOptions(0.01).alpha(0.9).momentum(0.5).centered(true).maximize(true));
  compare<optim::Adagrad>(
      "adagrad",
      optim::AdagradOptions(0.1).lr_decay(0.1).weight_decay(0.1).initial_accumulator_value(0.2));
}

TEST_CASE("LBFGS takes PyTorch's steps, with and without line search") {
  compare_lbfgs("lbfgs", optim::LBFGSOptions(0.001).max_iter(4));
  compare_lbfgs("lbfgs_wolfe",
                optim::LBFGSOptions().max_iter(6).history_size(3).line_search_fn("strong_wolfe"));
}

TEST_CASE("schedules have PyTorch's rates") {
  compare_schedule("step_lr", [](auto& o) { return std::make_shared<optim::StepLR>(o, 3, 0.5); });
  compare_schedule("multi_step", [](auto& o) {
    return std::make_shared<optim::MultiStepLR>(o, std::vector<int64_t>{2, 5, 5}, 0.3);
  });
  compare_schedule("exponential",
                   [](auto& o) { return std::make_shared<optim::ExponentialLR>(o, 0.8); });
  compare_schedule("linear",
                   [](auto& o) { return std::make_shared<optim::LinearLR>(o, 0.25, 1.0, 4); });
  compare_schedule("constant",
                   [](auto& o) { return std::make_shared<optim::ConstantLR>(o, 0.5, 3); });
  compare_schedule("cosine",
                   [](auto& o) { return std::make_shared<optim::CosineAnnealingLR>(o, 8, 0.001); });
  compare_schedule("lambda", [](auto& o) {
    return std::make_shared<optim::LambdaLR>(
        o, [](int64_t e) { return 1.0 / static_cast<double>(1 + e); });
  });
  compare_schedule("one_cycle",
                   [](auto& o) { return std::make_shared<optim::OneCycleLR>(o, 0.5, 12); });
  compare_schedule("one_cycle_linear", [](auto& o) {
    return std::make_shared<optim::OneCycleLR>(
        o, 0.5, 12, optim::OneCycleOptions{.pct_start = 0.4, .linear = true, .div_factor = 10});
  });
  compare_schedule("sequential", [](auto& o) {
    std::vector<std::shared_ptr<optim::LRScheduler>> parts{
        std::make_shared<optim::LinearLR>(o, 0.1, 1.0, 3)};
    parts.push_back(std::make_shared<optim::CosineAnnealingLR>(o, 9));
    return std::make_shared<optim::SequentialLR>(o, parts, std::vector<int64_t>{3});
  });
  compare_plateau("plateau", {.factor = 0.5, .patience = 2});
  compare_plateau("plateau_max", {.mode = optim::PlateauMode::max,
                                  .patience = 1,
                                  .threshold = 0.05,
                                  .threshold_mode = optim::ThresholdMode::abs,
                                  .cooldown = 2,
                                  .min_lr = 0.02});
}

TEST_CASE("Lion steps by the sign of the averaged gradient") {
  // By hand: exp_avg starts at 0, so the first step follows the gradient's sign; 0.99 of the
  // average is kept.
  const Tensor p = tensor({1.0, 1.0, 1.0}, requires_grad().dtype(kFloat64));
  optim::Lion opt({p}, optim::LionOptions(0.1).weight_decay(0.5));
  p.set_grad(tensor({2.0, -3.0, 0.0}, kFloat64));
  opt.step();
  CHECK(p.detach().allclose(tensor({0.85, 1.05, 0.95}, kFloat64), 1e-14));
  // 0.9 * 0.02 - 0.1 * 0.1 > 0, so the step still follows the first gradient.
  p.set_grad(tensor({-0.1, 0.0, 0.0}, kFloat64));
  opt.step();
  CHECK(p.detach().allclose(tensor({0.85 * 0.95 - 0.1, 1.05 * 0.95 + 0.1, 0.95 * 0.95}, kFloat64),
                            1e-14));
}

TEST_CASE("a schedule that is loaded goes on with the same rates") {
  const auto rates_of = [](bool resume) {
    std::vector<double> out;
    auto opt = std::make_unique<optim::SGD>(std::vector{zeros({1}, requires_grad())},
                                            optim::SGDOptions(0.1));
    auto schedule = std::make_unique<optim::CosineAnnealingLR>(*opt, 7);
    for (int i = 0; i < 6; ++i) {
      if (resume && i == 3) {
        const auto saved = schedule->state_dict();
        opt = std::make_unique<optim::SGD>(std::vector{zeros({1}, requires_grad())},
                                           optim::SGDOptions(0.7));
        schedule = std::make_unique<optim::CosineAnnealingLR>(*opt, 7);
        schedule->load_state_dict(saved);
      }
      schedule->step();
      out.push_back(schedule->get_last_lr()[0]);
    }
    return out;
  };
  CHECK(rates_of(false) == rates_of(true));
}

TEST_CASE(
    "StepInBackward gives the same bits as stepping afterwards, with accumulation and clipping") {
  const auto train = [](bool inside, int64_t accumulate, bool clip) {
    manual_seed(7);
    nn::Sequential net(nn::Linear(6, 5), nn::Tanh(), nn::Linear(5, 3));
    optim::AdamW opt(net->parameters(), optim::AdamWOptions(0.01));
    std::optional<optim::StepInBackward> stepping;
    optim::StepInBackwardOptions options{.accumulate = accumulate};
    if (clip) options.clip_value = 0.01, options.clip_norm = 0.02;
    if (inside) stepping.emplace(opt, options);
    for (int i = 0; i < 8; ++i) {
      const Tensor x = randn({4, 6});
      net->forward(x).square().mean().backward();
      if (inside || (i + 1) % accumulate != 0) continue;
      if (clip) {
        nn::utils::clip_grad_value_(net->parameters(), 0.01);
        for (const Tensor& p : net->parameters()) nn::utils::clip_grad_norm_({p}, 0.02);
      }
      opt.step();
      opt.zero_grad();
    }
    for (const Tensor& p : net->parameters()) CHECK_FALSE(p.grad().defined());
    return nn::utils::parameters_to_vector(net->parameters()).detach();
  };
  for (const int64_t accumulate : {1, 2, 4})
    for (const bool clip : {false, true})
      CHECK(train(true, accumulate, clip).equal(train(false, accumulate, clip)));
}

TEST_CASE("a saved LBFGS goes on as if nothing had happened") {
  const auto run = [](bool resume) {
    const Tensor p = recorded("lbfgs/start").clone().set_requires_grad(true);
    auto opt =
        std::make_unique<optim::LBFGS>(std::vector{p}, optim::LBFGSOptions(0.001).max_iter(3));
    for (int i = 0; i < 4; ++i) {
      if (resume && i == 2) {
        const auto saved = opt->state_dict();
        opt =
            std::make_unique<optim::LBFGS>(std::vector{p}, optim::LBFGSOptions(0.001).max_iter(3));
        opt->load_state_dict(saved);
      }
      opt->step([&] {
        opt->zero_grad();
        const Tensor loss = p.pow(4).sum();
        loss.backward();
        return loss;
      });
    }
    return p.detach();
  };
  CHECK(run(true).equal(run(false)));
}
