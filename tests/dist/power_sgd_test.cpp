/// PowerSGD: what is compressed, the worked vector, the properties of the result, and saving.
#include "weighted.h"

using namespace grapnel;
using namespace grapnel::test;
using dist::DistributedDataParallel;
using dist::hooks::power_sgd;
using dist::hooks::PowerSGDOptions;
using dist::hooks::PowerSGDState;

namespace {

struct Counts {
  int64_t before, after;
};
/// Elements before and after compressing one gradient of the shape.
void check_counts(std::vector<int64_t> shape, int64_t rank, double rate, Counts expected) {
  on_ranks(1, [&](ProcessGroup group) {
    auto state = std::make_shared<PowerSGDState>(PowerSGDOptions{
        .matrix_approximation_rank = rank, .start_powerSGD_iter = 2, .min_compression_rate = rate});
    DistributedDataParallel model(weighted({shape}), group);
    model.register_comm_hook(state, power_sgd);
    for (int i = 0; i < 3; ++i) pass(model, {1});
    CHECK(state->stats().elements_before == expected.before);
    CHECK(state->stats().elements_after == expected.after);
    CHECK(state->iter() == 3);
  });
}
Tensor f64(std::vector<double> values, std::vector<int64_t> shape) {
  Tensor t = empty({static_cast<int64_t>(values.size())}, kFloat64);
  std::copy(values.begin(), values.end(), t.data_ptr<double>());
  return t.view(shape);
}

}  // namespace

TEST_CASE("comm.P1: 8x8 is compressed to 16 elements") { check_counts({8, 8}, 1, 2, {64, 16}); }
TEST_CASE("comm.P2: 4x4 is not worth it") { check_counts({4, 4}, 1, 2, {16, 16}); }
TEST_CASE("comm.P3: 40x20 is compressed to 60 elements") {
  check_counts({40, 20}, 1, 2, {800, 60});
}
TEST_CASE("comm.P4: 16x16 at rank 4 is not worth it") { check_counts({16, 16}, 4, 2, {256, 256}); }
TEST_CASE("comm.P5: 17x16 at rank 4 is") { check_counts({17, 16}, 4, 2, {272, 132}); }
TEST_CASE("comm.P6: a low rate compresses 2x2") { check_counts({2, 2}, 1, 0.5, {4, 4}); }
TEST_CASE("comm.P7: vectors are never compressed") { check_counts({5}, 1, 2, {5, 5}); }

TEST_CASE("comm.P8: three steps of the worked vector") {
  on_ranks(2, [](ProcessGroup group) {
    const bool first = group.rank() == 0;
    const Tensor g = first ? f64({1, 2, 3, 4}, {2, 2}) : f64({5, 6, 7, 8}, {2, 2});
    auto state = std::make_shared<PowerSGDState>(
        PowerSGDOptions{.start_powerSGD_iter = 2, .min_compression_rate = 0.5});
    auto module = weighted({{2, 2}}, kFloat64);
    DistributedDataParallel model(module, group);
    model.register_comm_hook(state, power_sgd);
    const auto step = [&] {
      model.zero_grad();
      model(std::vector{g}).backward();
      return module->p[0].grad();
    };
    for (int i = 0; i < 2; ++i) CHECK(allclose(step(), f64({3, 4, 5, 6}, {2, 2})));
    state->memory("p0").q = f64({1, 0}, {2, 1});
    const double p[3][2] = {
        {0.51449576, 0.85749293}, {0.56290008, 0.82652495}, {0.53909727, 0.84224351}};
    const double q[3][2] = {
        {5.83095189, 7.20294058}, {5.82132501, 7.23045155}, {5.83806198, 7.20211709}};
    const double results[3][4] = {{3, 3.70588235, 5, 6.17647059},
                                  {3.27682432, 4.07002177, 4.81147038, 5.97614863},
                                  {3.14728328, 3.88264166, 4.91706982, 6.06593639}};
    const double errors[2][3][4] = {{{-2, -1.70588235, -2, -2.17647059},
                                     {-4.27682432, -3.77590412, -3.81147038, -4.15261922},
                                     {-6.42410760, -5.65854578, -5.72854021, -6.21855560}},
                                    {{2, 2.29411765, 2, 1.82352941},
                                     {3.72317568, 4.22409588, 4.18852962, 3.84738078},
                                     {5.57589240, 6.34145422, 6.27145979, 5.78144440}}};
    Tensor sum = zeros({2, 2}, kFloat64);
    for (int i = 0; i < 3; ++i) {
      CAPTURE(i);
      const Tensor result = step();
      const auto& memory = state->memory("p0");
      CHECK(allclose(memory.p.reshape({-1}), f64({p[i][0], p[i][1]}, {2}), 0, 1e-7));
      CHECK(allclose(memory.q.reshape({-1}), f64({q[i][0], q[i][1]}, {2}), 0, 1e-7));
      CHECK(allclose(result, f64(std::vector(results[i], results[i] + 4), {2, 2}), 0, 1e-7));
      const double* e = errors[group.rank()][i];
      CHECK(allclose(memory.error, f64(std::vector(e, e + 4), {2, 2}), 0, 1e-7));
      // (d) what was applied and what is remembered make up all gradients so far
      sum += result;
      const Tensor mean_error = group.all_reduce(memory.error / 2).single().wait();
      CHECK(allclose(sum + mean_error, f64({3, 4, 5, 6}, {2, 2}) * (i + 1.0), 1e-9, 1e-9));
    }
  });
}

TEST_CASE("comm.P8: with local errors the result is the same mean, and a rank remembers less") {
  on_ranks(2, [](ProcessGroup group) {
    const Tensor g = group.rank() == 0 ? f64({1, 2, 3, 4}, {2, 2}) : f64({5, 6, 7, 8}, {2, 2});
    const auto run = [&](bool local) {
      auto state = std::make_shared<PowerSGDState>(PowerSGDOptions{
          .start_powerSGD_iter = 2, .min_compression_rate = 0.5, .local_error_only = local});
      auto module = weighted({{2, 2}}, kFloat64);
      DistributedDataParallel model(module, group);
      model.register_comm_hook(state, power_sgd);
      for (int i = 0; i < 22; ++i) {
        model.zero_grad();
        model(std::vector{g}).backward();
        if (i == 1) state->memory("p0").q = f64({1, 0}, {2, 1});
      }
      return std::pair{module->p[0].grad(), state->memory("p0").error.abs().max().item<double>()};
    };
    const auto [whole, grown] = run(false);
    const auto [part, small] = run(true);
    CHECK(allclose(whole, part, 1e-9, 1e-9));
    CHECK(grown > 20);
    CHECK(small < grown / 2);
  });
}

TEST_CASE("orthogonalising: the vector of the specification, zero columns, and many columns") {
  const Tensor a = f64({3, 1, 4, 0, 0, 2}, {1, 3, 2});
  dist::hooks::orthogonalize(a);
  CHECK(allclose(a[0], f64({0.6, 0.29711254, 0.8, -0.22283441, 0, 0.92847669}, {3, 2}), 0, 1e-7));
  const Tensor zero = zeros({2, 4, 2}, kFloat64);
  zero[1].select(1, 1).fill_(1);
  dist::hooks::orthogonalize(zero);
  CHECK(all_are(zero[0], 0));
  CHECK(all_are(zero[1].select(1, 0), 0));
  CHECK(all_are(zero[1].select(1, 1), 0.5));
  const Tensor many = randn({3, 40, 7}, Generator(1), kFloat64);
  many.select(2, 6).copy_(many.select(2, 0) + 1e-9 * many.select(2, 1));  // nearly dependent
  dist::hooks::orthogonalize(many);
  CHECK(allclose(bmm(many.transpose(1, 2), many), eye(7, kFloat64).expand({3, 7, 7}), 0, 1e-9));
}

TEST_CASE(
    "comm.6.6: projection of the mean, exact for low rank, equal bits on all ranks, zero stays "
    "zero") {
  on_ranks(3, [](ProcessGroup group) {
    for (const bool batched_shapes : {false, true}) {
      auto state = std::make_shared<PowerSGDState>(
          PowerSGDOptions{.matrix_approximation_rank = 3,
                          .start_powerSGD_iter = 2,
                          .batch_tensors_with_same_shape = batched_shapes});
      auto module = weighted({{20, 30}, {20, 30}, {30}, {16, 20}}, kFloat64);
      DistributedDataParallel model(module, group);
      model.register_comm_hook(state, power_sgd);
      Generator mine(static_cast<uint64_t>(group.rank() + 1));
      // Of rank 3 on average: every rank has the same columns with its own rows.
      const Tensor columns = randn({20, 3}, Generator(50), kFloat64);
      const Tensor low = mm(columns, randn({3, 30}, mine, kFloat64)),
                   full_rank = randn({20, 30}, mine, kFloat64), bias = randn({30}, mine, kFloat64);
      const auto mean = [&](const Tensor& t) {
        return group.all_reduce(t.clone() / group.size()).single().wait();
      };
      for (int i = 0; i < 5; ++i) {
        model.zero_grad();
        model(std::vector{low, full_rank, bias, zeros({16, 20}, kFloat64)}).backward();
      }
      CHECK(allclose(module->p[0].grad(), mean(low), 1e-8, 1e-8));
      CHECK(allclose(module->p[2].grad(), mean(bias), 1e-12, 1e-12));
      CHECK(all_are(module->p[3].grad(), 0));
      for (const Tensor& p : module->p)
        for (const Tensor& other : group.all_gather(p.grad()).wait()) CHECK(equal(other, p.grad()));
      // The result lies in the space of P.
      const Tensor P = state->memory("p1").p;
      CHECK(allclose(mm(P, mm(P.t(), module->p[1].grad())), module->p[1].grad(), 1e-9, 1e-9));
    }
  });
}

TEST_CASE("matrices of equal shape can be handled together, with the same result") {
  on_ranks(2, [](ProcessGroup group) {
    std::vector<Tensor> results[2];
    for (const bool together : {false, true}) {
      auto module = weighted({{20, 30}, {20, 30}, {40, 10}}, kFloat64);
      DistributedDataParallel model(module, group);
      model.register_comm_hook(std::make_shared<PowerSGDState>(
                                   PowerSGDOptions{.matrix_approximation_rank = 2,
                                                   .start_powerSGD_iter = 2,
                                                   .batch_tensors_with_same_shape = together}),
                               power_sgd);
      Generator mine(static_cast<uint64_t>(group.rank() + 1));
      for (int i = 0; i < 4; ++i) {
        model.zero_grad();
        model(std::vector{randn({20, 30}, mine, kFloat64), randn({20, 30}, mine, kFloat64),
                          randn({40, 10}, mine, kFloat64)})
            .backward();
      }
      for (const Tensor& p : module->p) results[together].push_back(p.grad());
    }
    // The order of drawing differs where shapes alternate; here it does not.
    for (size_t i = 0; i < 3; ++i) CHECK(allclose(results[0][i], results[1][i], 1e-5, 1e-8));
  });
}

TEST_CASE(
    "comm.6.7: batched PowerSGD takes the bucket as one square, and ranks beyond its side are "
    "cut") {
  on_ranks(2, [](ProcessGroup group) {
    for (const auto& [n, side] : {std::pair{1, 1}, {2, 2}, {4, 2}, {5, 3}, {10, 4}, {800, 29}}) {
      auto state = std::make_shared<PowerSGDState>(
          PowerSGDOptions{.matrix_approximation_rank = 2, .start_powerSGD_iter = 2});
      auto module = weighted({{n}});
      DistributedDataParallel model(module, group);
      model.register_comm_hook(state, dist::hooks::batched_power_sgd);
      for (int i = 0; i < 3; ++i) {
        model.zero_grad();
        pass(model, {group.rank() + 1.0});
      }
      CHECK(state->stats().elements_before == n);
      CHECK(state->stats().elements_after == 2 * side * std::min(2, side));
      CHECK(module->p[0].grad().numel() == n);
      // A constant vector fills whole rows but the last one, so two directions are enough.
      CHECK(allclose(module->p[0].grad(), filled(1.5, {n}), 1e-4, 1e-4));
    }
  });
}

TEST_CASE("compression is not reached before its time, and all settings work after it") {
  on_ranks(2, [](ProcessGroup group) {
    for (int flags = 0; flags < 8; ++flags)
      for (const bool batched : {false, true}) {
        PowerSGDOptions options{.start_powerSGD_iter = 2, .min_compression_rate = 0.5};
        options.use_error_feedback = flags & 1;
        options.warm_start = flags & 2;
        options.batch_tensors_with_same_shape = flags & 4;
        auto state = std::make_shared<PowerSGDState>(options);
        auto module = weighted({{2, 2}});
        DistributedDataParallel model(module, group);
        if (batched) model.register_comm_hook(state, dist::hooks::batched_power_sgd);
        else model.register_comm_hook(state, power_sgd);
        for (int i = 0; i < 5; ++i) {
          model.zero_grad();
          pass(model, {0.25});
          CHECK(allclose(module->p[0].grad(), full({2, 2}, 0.25), 1e-5, 1e-6));
        }
        CHECK(state->iter() == 5);
        CHECK(state->memory(batched ? "p0 and its bucket" : "p0").q.defined() ==
              options.warm_start);
      }
  });
}

TEST_CASE("options out of range are refused, and statistics are reported") {
  CHECK(has(error_of<Error>([] { PowerSGDState s(PowerSGDOptions{.start_powerSGD_iter = 1}); }),
            "2 or more"));
  CHECK_NOTHROW(PowerSGDState(
      PowerSGDOptions{.start_powerSGD_iter = 0, .use_error_feedback = false, .warm_start = false}));
  CHECK_THROWS_AS(PowerSGDState(PowerSGDOptions{.compression_stats_logging_frequency = 0}), Error);
  CHECK_THROWS_AS(PowerSGDState(PowerSGDOptions{.matrix_approximation_rank = 0}), Error);
  on_ranks(1, [](ProcessGroup group) {
    std::vector<int64_t> reports;
    auto state = std::make_shared<PowerSGDState>(
        PowerSGDOptions{.start_powerSGD_iter = 2,
                        .compression_stats_logging_frequency = 3,
                        .on_report = [&](const auto& s) { reports.push_back(s.iteration); }});
    DistributedDataParallel model(weighted({{8, 8}}), group);
    model.register_comm_hook(state, power_sgd);
    for (int i = 0; i < 10; ++i) pass(model, {1});
    CHECK(reports == std::vector<int64_t>{3, 6, 9});
    CHECK(state->stats().rate() == 4);
  });
}

TEST_CASE("comm.S1: a saved state goes on with the same bits (test of PowerSGD state saving)") {
  on_ranks(2, [](ProcessGroup group) {
    const std::vector<std::vector<int64_t>> shapes{{12, 10}, {10}, {10, 14}, {9, 9}};
    Generator mine(static_cast<uint64_t>(group.rank() + 1));
    std::vector<std::vector<Tensor>> data;
    for (int i = 0; i < 20; ++i) {
      data.emplace_back();
      for (const auto& s : shapes) data.back().push_back(randn(s, mine));
    }
    const auto make = [&](const std::shared_ptr<Weighted>& module,
                          const std::shared_ptr<PowerSGDState>& state) {
      auto model = std::make_unique<DistributedDataParallel<Weighted>>(
          module, group, dist::DataParallelOptions{.bucket_bytes = 300});
      model->register_comm_hook(state, power_sgd);
      return model;
    };
    const auto train = [&](DistributedDataParallel<Weighted>& model, size_t from, size_t to) {
      for (size_t i = from; i < to; ++i) {
        model.zero_grad();
        model(data[i]).backward();
        NoGradGuard off;
        for (const Tensor& p : model.module().p) p.sub_(p.grad() * 0.01);
      }
    };
    auto module = weighted(shapes);
    auto state = std::make_shared<PowerSGDState>(
        PowerSGDOptions{.start_powerSGD_iter = 2, .random_seed = 9});
    auto model = make(module, state);
    train(*model, 0, 10);
    CHECK(model->stats().buckets >= 3);
    const nn::StateDict saved = state->state_dict(), weights = module->state_dict(),
                        wrapper = model->wrapper_state();

    auto other_module = weighted(shapes);
    auto other_state = std::make_shared<PowerSGDState>();
    other_state->load_state_dict(saved);
    other_module->load_state_dict(weights);
    const nn::StateDict again = other_state->state_dict();
    CHECK(again.size() == saved.size());
    for (const auto& item : saved) CHECK(equal(item.value(), *again.find(item.key())));
    CHECK(other_state->generator().state() == state->generator().state());
    auto other = make(other_module, other_state);
    other->load_wrapper_state(wrapper);

    train(*model, 10, 20);
    train(*other, 10, 20);
    for (size_t i = 0; i < shapes.size(); ++i) {
      CHECK(equal(module->p[i].grad(), other_module->p[i].grad()));
      CHECK(equal(module->p[i].detach(), other_module->p[i].detach()));
    }
    CHECK(has(error_of<Error>([&] { other_state->load_state_dict(nn::StateDict()); }), "no entry"));
  });
}

TEST_CASE("a state is keyed by parameter, so another layout of buckets does not disturb it") {
  on_ranks(2, [](ProcessGroup group) {
    auto state = std::make_shared<PowerSGDState>(PowerSGDOptions{.start_powerSGD_iter = 2});
    auto module = weighted({{8, 8}, {9, 9}});
    const Tensor a = randn({8, 8}, Generator(1)), b = randn({9, 9}, Generator(2));
    {
      DistributedDataParallel model(module, group, {.bucket_bytes = 8});
      model.register_comm_hook(state, power_sgd);
      for (int i = 0; i < 4; ++i) model(std::vector{a, b}).backward();
    }
    const Tensor error = state->memory("p0").error.clone();
    DistributedDataParallel model(module, group);  // one bucket at first
    model.register_comm_hook(state, power_sgd);
    model.zero_grad();
    model(std::vector{a, b}).backward();
    CHECK(allclose(module->p[0].grad() + state->memory("p0").error, a + error, 1e-5, 1e-5));
  });
}
