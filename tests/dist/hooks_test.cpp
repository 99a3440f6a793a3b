/// The ready-made hooks: what they compute and what they send.
#include <cmath>

#include "weighted.h"

#include "grapnel/dist/buckets.h"

using namespace grapnel;
using namespace grapnel::test;
using dist::DistributedDataParallel;
namespace hooks = dist::hooks;

namespace {

float f(double v) { return static_cast<float>(v); }

/// Checks that grad() is `expected` on every rank after one pass with the hook, given the ranks'
/// gradients.
template <class Hook>
void check_hook(Hook hook, std::vector<double> grads, double expected) {
  on_ranks(static_cast<int>(grads.size()), [&](ProcessGroup group) {
    DistributedDataParallel model(one(), group);
    model.register_comm_hook(hook);
    pass(model, {grads[static_cast<size_t>(group.rank())]});
    CHECK(f(grad_of(model)) == f(expected));
  });
}

bool on_all_ranks(int count) { return !dist::launched_by_mpi() || dist::init().size() >= count; }

struct Compression {
  const char* id;
  double a, b, f16, bf16;
};
constexpr double inf = std::numeric_limits<double>::infinity();

void check_compression(const Compression& c) {
  CAPTURE(c.id);
  check_hook(dist::hooks::fp16_compress, {c.a, c.b}, c.f16);
  check_hook(dist::hooks::bf16_compress, {c.a, c.b}, c.bf16);
  check_hook(dist::hooks::fp16_wrapper(dist::hooks::allreduce), {c.a, c.b}, c.f16);
  check_hook(dist::hooks::bf16_wrapper(dist::hooks::allreduce), {c.a, c.b}, c.bf16);
}

/// The set-up of the reference's tests: one parameter of 40 x 20, gradients x / 800 and x * x /
/// 800.
struct Powers : nn::Module {
  Tensor p;
  int64_t exponent;
  explicit Powers(int rank) : exponent(rank + 1) { p = register_parameter("p", ones({40, 20})); }
  Tensor forward(Tensor x) { return (p * x.pow(exponent)).mean(); }
};
Tensor standard_input() { return randn({40, 20}, Generator(7)).clamp_(-3.3, 3.3); }

template <class Register>
void compare_with_mean(Register&& register_hook, double rtol, double atol) {
  on_ranks(2, [&](ProcessGroup group) {
    const Tensor x = standard_input();
    DistributedDataParallel plain(std::make_shared<Powers>(group.rank()), group),
        hooked(std::make_shared<Powers>(group.rank()), group);
    register_hook(hooked);
    for (int i = 0; i < 3; ++i) {
      plain.zero_grad();
      hooked.zero_grad();
      plain(x).backward();
      hooked(x).backward();
      CHECK(allclose(hooked.module().p.grad(), plain.module().p.grad(), rtol, atol));
      CHECK(allclose(plain.module().p.grad(), (x + x * x) / 1600, 1e-5, 1e-9));
    }
  });
}

}  // namespace

TEST_CASE("comm.C1: dividing before summing avoids overflow") {
  check_compression({"C1", 60000, 60000, 60000, 59904});
}
TEST_CASE("comm.C2: a gradient beyond the range of f16 becomes infinite") {
  check_compression({"C2", 70000, 0, inf, 35072});
}
TEST_CASE("comm.C3: 16 bits round halves to even") {
  check_compression({"C3", 2049, 1, 1024, 1024});
}
TEST_CASE("comm.C4: f16 underflows where bf16 does not") {
  check_compression({"C4", 1e-8, 1e-8, 0, 1.0011718e-8});
}
TEST_CASE("comm.C5: what 16 bits make of 0.1 and 0.3") {
  check_compression({"C5", 0.1, 0.3, 0.19995117, 0.20019531});
}
TEST_CASE("comm.C6: what 16 bits make of 1.01") {
  check_compression({"C6", 1.01, 1.01, 1.0097656, 1.0078125});
}

TEST_CASE("comm.6.2: 16-bit compression stays within its bound and sends 16 bits") {
  for (int ranks : {2, 3, 4})
    on_ranks(ranks, [](ProcessGroup group) {
      const int w = group.size();
      const auto run = [&](auto hook, double unit) {
        auto module = weighted({{1000}});
        DistributedDataParallel model(module, group);
        model.register_comm_hook(hook);
        const Tensor g = randn({1000}, Generator(static_cast<uint64_t>(group.rank() + 1)));
        const uint64_t before = model.group().bytes_sent();
        model(std::vector{g}).backward();
        CHECK(model.group().bytes_sent() - before == 2000);
        const auto all = group.all_gather(g).wait();
        Tensor exact = zeros({1000}, kFloat64), largest = zeros({1000}, kFloat64);
        for (const Tensor& t : all) {
          exact += t.to(kFloat64) / w;
          largest = maximum(largest, t.to(kFloat64).abs());
        }
        const Tensor bound = largest * ((w + 1) * unit) + std::ldexp(w, -24);
        CHECK(((module->p[0].grad().to(kFloat64) - exact).abs() <= bound).all().item<bool>());
      };
      run(dist::hooks::fp16_compress, std::ldexp(1, -11));
      run(dist::hooks::bf16_compress, std::ldexp(1, -8));
    });
}

TEST_CASE(
    "comm.6.1: allreduce has the bits of the hook-less path (test_ddp_comm_hook_allreduce_hook)") {
  for (int ranks : {2, 3, 4})
    on_ranks(ranks, [](ProcessGroup group) {
      auto a = weighted({{333}}), b = weighted({{333}});
      DistributedDataParallel plain(a, group), hooked(b, group);
      hooked.register_comm_hook(dist::hooks::allreduce);
      const Tensor g = randn({333}, Generator(static_cast<uint64_t>(group.rank())));
      plain(std::vector{g}).backward();
      hooked(std::vector{g}).backward();
      CHECK(equal(a->p[0].grad(), b->p[0].grad()));
    });
}

TEST_CASE("comm.9.1: each hook agrees with the mean (test_ddp_hooks)") {
  compare_with_mean([](auto& model) { model.register_comm_hook(dist::hooks::allreduce); }, 1e-5, 0);
  compare_with_mean([](auto& model) { model.register_comm_hook(dist::hooks::fp16_compress); }, 1e-5,
                    1e-4);
  compare_with_mean([](auto& model) { model.register_comm_hook(dist::hooks::quantize_per_tensor); },
                    1e-5, 2.2e-5);
  compare_with_mean(
      [](auto& model) { model.register_comm_hook(dist::hooks::quantize_per_channel); }, 1e-5,
      2.2e-5);
}

TEST_CASE(
    "comm.9.1: is_last is true for the last bucket only, in every iteration (test_is_last_hook)") {
  on_ranks(2, [](ProcessGroup group) {
    std::vector<std::vector<int64_t>> shapes(11, {1600});
    shapes[0] = {80};
    DistributedDataParallel model(weighted(shapes), group,
                                  {.bucket_bytes = 8192, .first_bucket_bytes = 1024});
    std::vector<std::vector<bool>> flags;
    std::vector<std::vector<size_t>> indices;
    model.register_comm_hook([&](GradBucket& bucket) {
      flags.back().push_back(bucket.is_last());
      indices.back().push_back(bucket.index());
      return Future<Tensor>(bucket.buffer());
    });
    for (int i = 0; i < 3; ++i) {
      flags.emplace_back();
      indices.emplace_back();
      pass(model, std::vector<double>(11, 1));
    }
    CHECK(flags[0] == std::vector{true});
    for (int i : {1, 2}) {
      CHECK(flags[static_cast<size_t>(i)] == std::vector{false, false, false, false, false, true});
      CHECK(indices[static_cast<size_t>(i)] == std::vector<size_t>{0, 1, 2, 3, 4, 5});
    }
  });
}

TEST_CASE("comm.9.1: after a rebuild large layers travel alone, from last to first") {
  // The reference's layers in bytes: ten of 64,000,000 and a first one of 32,000.
  std::vector<dist::BucketItem> layers(11, {64000000, kFloat32});
  layers[0].bytes = 32000;
  const std::vector<size_t> order{10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0};
  const auto layout =
      dist::assign_buckets(layers, std::vector<int64_t>{dist::kMiB, 25 * dist::kMiB}, order);
  REQUIRE(layout.buckets.size() == 11);
  for (size_t i = 0; i < 11; ++i) CHECK(layout.buckets[i] == std::vector{10 - i});
}

TEST_CASE(
    "comm.N1: noop leaves the local gradient; dividing and summing by hand gives the mean "
    "(test_ddp_comm_hook_noop_hook)") {
  on_ranks(2, [](ProcessGroup group) {
    DistributedDataParallel model(one(), group);
    model.register_comm_hook(dist::hooks::noop);
    const uint64_t before = model.group().bytes_sent();
    const double g = group.rank() == 0 ? 1 : 3;
    pass(model, {g});
    CHECK(grad_of(model) == g);
    CHECK(model.group().bytes_sent() == before);
    const Tensor grad = model.module().p[0].grad();
    grad.div_(2);
    group.all_reduce(grad).wait();
    CHECK(grad_of(model) == 2);
  });
}

namespace {
/// Quantises on two ranks; returns the result.
template <class Hook>
Tensor quantize(Hook hook, const Tensor& a, const Tensor& b, uint64_t* bytes = nullptr) {
  std::vector<Tensor> results(2);
  on_ranks(2, [&](ProcessGroup group) {
    auto module = weighted({{a.numel()}});
    DistributedDataParallel model(module, group);
    model.register_comm_hook(hook);
    const uint64_t before = model.group().bytes_sent();
    model(std::vector{group.rank() == 0 ? a : b}).backward();
    results[static_cast<size_t>(group.rank())] = module->p[0].grad();
    if (bytes && group.rank() == 0) *bytes = model.group().bytes_sent() - before;
  });
  return results[0].defined() ? results[0] : results[1];
}
}  // namespace

TEST_CASE("comm.Q1: two ranks quantise with their own scales") {
  if (!on_all_ranks(2)) return;
  uint64_t bytes = 0;
  const Tensor result = quantize(dist::hooks::quantize_per_tensor, tensor({-1.0, 0.0, 1.0, 2.0}),
                                 tensor({0.6, 0.25, 0.0, -0.4}), &bytes);
  if (!result.defined()) return;
  CHECK(allclose(result, tensor({-0.2, 0.1254902, 0.5, 0.8}), 0, 1e-6));
  if (bytes) CHECK(bytes == 8 + 4);
}
TEST_CASE("comm.Q2: zeros stay zero") {
  if (!on_all_ranks(2)) return;
  const Tensor result = quantize(dist::hooks::quantize_per_tensor, zeros({4}), zeros({4}));
  if (result.defined()) CHECK(all_are(result, 0));
}
TEST_CASE("comm.Q3: constants survive") {
  if (!on_all_ranks(2)) return;
  const Tensor up = quantize(dist::hooks::quantize_per_tensor, ones({4}), ones({4})),
               down = quantize(dist::hooks::quantize_per_tensor, -ones({4}), -ones({4}));
  if (up.defined()) CHECK(allclose(up, ones({4}), 0, 1e-6));
  if (down.defined()) CHECK(allclose(down, -ones({4}), 0, 1e-6));
}
TEST_CASE("comm.Q4: values below half a step are lost") {
  if (!on_all_ranks(2)) return;
  const Tensor tiny = tensor({1e-9, 0.0, 0.0, 0.0});
  const Tensor result = quantize(dist::hooks::quantize_per_tensor, tiny, tiny);
  if (result.defined()) CHECK(all_are(result, 0));
}

TEST_CASE("comm.6.5: quantising per channel has a scale for every 512 elements") {
  if (!on_all_ranks(2)) return;
  const Tensor big = cat({full({512}, 100.0), full({288}, 0.01)});
  uint64_t bytes = 0, whole = 0;
  const Tensor result = quantize(dist::hooks::quantize_per_channel, big, big, &bytes),
               rough = quantize(dist::hooks::quantize_per_tensor, big, big);
  quantize(dist::hooks::quantize_per_channel, ones({1024}), ones({1024}), &whole);
  if (!result.defined()) return;  // a process that is not among the two
  CHECK(allclose(result, big, 1e-5, 0));
  CHECK(!allclose(rough, big, 1e-5, 1e-3));
  if (bytes) CHECK(bytes == 2 * 8 + 1024);  // 800 elements: 2 rows, 224 zeros
  if (whole) CHECK(whole == 2 * 8 + 1024);  // a whole number of channels gets no extra row
}

TEST_CASE("comm.6.4: quantising refuses gradients that are not finite") {
  on_ranks(2, [](ProcessGroup group) {
    DistributedDataParallel model(one(), group);
    model.register_comm_hook(dist::hooks::quantize_per_tensor);
    const std::string text =
        error_of<Error>([&] { pass(model, {group.rank() == 0 ? std::nan("") : 1.0}); });
    CHECK((text.find("not finite") != std::string::npos ||
           text.find("gave up") != std::string::npos));
  });
}

TEST_CASE("comm.L1: post-local SGD averages over the world first, over subgroups later") {
  for (const bool flag : {true, false})
    on_ranks(4, [&](ProcessGroup group) {
      DistributedDataParallel model(one(), group);
      const ProcessGroup low = group.subgroup({0, 1}), high = group.subgroup({2, 3});
      auto state = std::make_shared<dist::hooks::PostLocalSGDState>(
          dist::hooks::PostLocalSGDOptions{.start_localSGD_iter = 2,
                                           .post_local_gradient_allreduce = flag},
          ProcessGroup(), low ? low : high);
      model.register_comm_hook(state, dist::hooks::post_local_sgd);
      for (int i = 0; i < 4; ++i) {
        model.zero_grad();
        pass(model, {double(group.rank())});
        CHECK(grad_of(model) == (i < 2              ? 1.5
                                 : !flag            ? group.rank()
                                 : group.rank() < 2 ? 0.5
                                                    : 2.5));
      }
      CHECK(state->iter() == 2);
      dist::hooks::PostLocalSGDState other({.start_localSGD_iter = 9});
      other.load_state_dict(state->state_dict());
      CHECK(other.iter() == 2);
      CHECK(other.options().start_localSGD_iter == 2);
      CHECK(other.options().post_local_gradient_allreduce == flag);
    });
}

TEST_CASE("comm.6.8: post-local SGD makes subgroups of machines by itself") {
  if (dist::launched_by_mpi()) return;
  dist::run_threads(
      4,
      [](ProcessGroup group) {
        DistributedDataParallel model(weighted({{2}, {2}}), group, {.bucket_bytes = 8});
        model.register_comm_hook(std::make_shared<dist::hooks::PostLocalSGDState>(
                                     dist::hooks::PostLocalSGDOptions{.start_localSGD_iter = 2}),
                                 dist::hooks::post_local_sgd);
        for (int i = 0; i < 4; ++i) {
          model.zero_grad();
          pass(model, {double(group.rank()), double(group.rank())});
          CHECK(grad_of(model) == (i < 2 ? 1.5 : group.rank() < 2 ? 0.5 : 2.5));
        }
      },
      {.ranks_per_machine = 2});
}

TEST_CASE("comm.L2: models are averaged at steps 100, 104 and 108") {
  on_ranks(2, [](ProcessGroup group) {
    dist::PeriodicModelAverager averager(group, {.period = 4, .warmup_steps = 100});
    const Tensor p = filled(group.rank(), {3}).requires_grad_();
    std::vector<int> at;
    for (int step = 0; step < 110; ++step)
      if (averager.average_parameters({p})) at.push_back(step);
    CHECK(at == std::vector{100, 104, 108});
    CHECK(all_are(p.detach(), 0.5));
    dist::PeriodicModelAverager other(group, {.period = 2});
    other.load_state_dict(averager.state_dict());
    CHECK(other.step() == 110);
    CHECK(!other.average_parameters({p}));
    CHECK_THROWS_AS(dist::PeriodicModelAverager(group, {.period = 0}), Error);
    CHECK_THROWS_AS(dist::PeriodicModelAverager(group, {.period = 2, .warmup_steps = -1}), Error);
  });
}

TEST_CASE("comm.O1: hook_then_optimizer steps with the averaged gradient before backward returns") {
  on_ranks(2, [](ProcessGroup group) {
    // quantize_per_tensor returns a new tensor, whose views must be used.
    for (int kind = 0; kind < 2; ++kind) {
      DistributedDataParallel model(one(), group);
      auto optimizer = std::make_shared<optim::SGD>(model.parameters(), 0.1);
      if (kind == 0)
        model.register_comm_hook(
            dist::hooks::hook_then_optimizer(dist::hooks::allreduce, optimizer));
      else
        model.register_comm_hook(
            dist::hooks::hook_then_optimizer(dist::hooks::quantize_per_tensor, optimizer));
      pass(model, {group.rank() == 0 ? 1.0 : 3.0});
      CHECK(number(model.module().p[0].detach()) == doctest::Approx(0.8));
      CHECK(grad_of(model) == doctest::Approx(2));
    }
  });
}

TEST_CASE("hook_then_optimizer can be limited to some parameters") {
  on_ranks(2, [](ProcessGroup group) {
    auto module = weighted({{1}, {1}});
    DistributedDataParallel model(module, group);
    auto optimizer = std::make_shared<optim::SGD>(model.parameters(), 0.1);
    model.register_comm_hook(
        dist::hooks::hook_then_optimizer(dist::hooks::allreduce, optimizer, {module->p[1]}));
    pass(model, {1, 1});
    CHECK(number(module->p[0].detach()) == 1);
    CHECK(number(module->p[1].detach()) == doctest::Approx(0.9));
  });
}

TEST_CASE(
    "comm.6.9: an optimiser inside backward uses gradients up, and excludes hooks, no_sync and "
    "accumulation") {
  on_ranks(2, [](ProcessGroup group) {
    DistributedDataParallel model(one(), group);
    auto optimizer = std::make_shared<optim::SGD>(model.parameters(), 0.1);
    model.register_optimizer_in_backward(optimizer);
    CHECK_THROWS_AS(model.register_comm_hook(dist::hooks::allreduce), Error);
    CHECK_THROWS_AS((void)model.no_sync(), Error);
    for (int i = 1; i <= 3; ++i) {
      pass(model, {group.rank() == 0 ? 1.0 : 3.0});
      CHECK(number(model.module().p[0].detach()) == doctest::Approx(1 - 0.2 * i));
      CHECK(!model.module().p[0].grad().defined());
    }
    model.module().p[0].set_grad(filled(1));
    CHECK(has(error_of<Error>([&] { pass(model, {1}); }), "cannot accumulate"));
  });
}

TEST_CASE(
    "comm.D12: on one rank the exact hooks are the identity, the others differ by their rounding") {
  on_ranks(1, [](ProcessGroup group) {
    const Tensor g = randn({8, 8}, Generator(3));
    const auto run = [&](auto&&... hook) {
      auto module = weighted({{8, 8}});
      DistributedDataParallel model(module, group);
      model.register_comm_hook(hook...);
      for (int i = 0; i < 4; ++i) {
        model.zero_grad();
        model(std::vector{g}).backward();
      }
      return module->p[0].grad();
    };
    CHECK(equal(run(dist::hooks::allreduce), g));
    CHECK(equal(run(dist::hooks::noop), g));
    CHECK(equal(run(std::make_shared<dist::hooks::PostLocalSGDState>(
                        dist::hooks::PostLocalSGDOptions{.start_localSGD_iter = 2}),
                    dist::hooks::post_local_sgd),
                g));
    CHECK(equal(run(dist::hooks::fp16_compress), g.to(kFloat16).to(kFloat32)));
    CHECK(equal(run(dist::hooks::bf16_compress), g.to(kBFloat16).to(kFloat32)));
    CHECK(allclose(run(dist::hooks::quantize_per_tensor), g, 0, 0.012));
    const Tensor low =
        run(std::make_shared<dist::hooks::PowerSGDState>(dist::hooks::PowerSGDOptions{
                .start_powerSGD_iter = 3, .use_error_feedback = false}),
            dist::hooks::power_sgd);
    const Tensor u = low.select(1, 0) / low.select(1, 0).norm();
    CHECK(allclose(low, outer(u, mv(g.t(), u)), 1e-4, 1e-5));
  });
}

TEST_CASE(
    "comm.6.3: wrappers compose, and futures can be chained "
    "(test_ddp_comm_hook_future_passing_cpu)") {
  for (const bool view : {false, true})
    for (const bool is_static : {false, true})
      on_ranks(2, [&](ProcessGroup group) {
        const auto run = [&](auto hook, double expected) {
          auto module = weighted({{2, 2}});
          DistributedDataParallel model(
              module, group, {.static_graph = is_static, .gradient_as_bucket_view = view});
          model.register_comm_hook(hook);
          for (int i = 0; i < 3; ++i) {
            model.zero_grad();
            model(std::vector{full({2, 2}, 0.25)}).backward();
            CHECK(all_are(module->p[0].grad(), expected));
          }
        };
        run(
            [](GradBucket& b) {
              return Future<Tensor>(ones_like(b.buffer())).then([](const Tensor& t) {
                return t + 1;
              });
            },
            2);
        run(
            [](GradBucket& b) {
              return b.group().all_reduce(b.buffer() / b.group().size()).single();
            },
            0.25);
        run(
            [](GradBucket& b) {
              return dist::hooks::allreduce(b)
                  .then([](Future<Tensor> f1) { return f1.value() * 10; })
                  .then([](const Tensor& t) { return t * 0.5; });
            },
            1.25);
        run(dist::hooks::fp16_compress, 0.25);
        run(dist::hooks::bf16_compress, 0.25);
        run(dist::hooks::fp16_wrapper(dist::hooks::allreduce), 0.25);
        run(dist::hooks::bf16_wrapper(std::make_shared<dist::hooks::PowerSGDState>(),
                                      dist::hooks::power_sgd),
            0.25);
        run(dist::hooks::fp16_wrapper(
                std::make_shared<dist::hooks::PowerSGDState>(dist::hooks::PowerSGDOptions{
                    .start_powerSGD_iter = 2, .min_compression_rate = 0.5}),
                dist::hooks::power_sgd),
            0.25);
        run(dist::hooks::by_name("quantize_per_tensor"), 0.25);
      });
}

TEST_CASE("comm.D14: all hooks agree on three ranks, within their tolerance") {
  on_ranks(3, [](ProcessGroup group) {
    const Tensor g = randn({24, 16}, Generator(static_cast<uint64_t>(group.rank() + 5)));
    Tensor exact = zeros({24, 16}, kFloat64);
    for (const Tensor& t : group.all_gather(g.to(kFloat64)).wait()) exact += t / 3;
    const auto error = [&](auto&&... hook) {
      auto module = weighted({{24, 16}});
      DistributedDataParallel model(module, group);
      if constexpr (sizeof...(hook) > 0) model.register_comm_hook(hook...);
      for (int i = 0; i < 3; ++i) {
        model.zero_grad();
        model(std::vector{g}).backward();
      }
      return (module->p[0].grad().to(kFloat64) - exact).abs().max().item<double>();
    };
    CHECK(error() < 1e-6);
    CHECK(error(dist::hooks::allreduce) < 1e-6);
    CHECK(error(dist::hooks::fp16_compress) < 4 * 5 * std::ldexp(1, -11));
    CHECK(error(dist::hooks::bf16_compress) < 4 * 5 * std::ldexp(1, -8));
    CHECK(error(dist::hooks::quantize_per_tensor) < 0.02);
    CHECK(error(dist::hooks::quantize_per_channel) < 0.02);
    CHECK(error(std::make_shared<dist::hooks::PowerSGDState>(
                    dist::hooks::PowerSGDOptions{.matrix_approximation_rank = 16,
                                                 .start_powerSGD_iter = 2,
                                                 .min_compression_rate = 0.1}),
                dist::hooks::power_sgd) < 1e-5);
    CHECK(error(std::make_shared<dist::hooks::PowerSGDState>(dist::hooks::PowerSGDOptions{
                    .matrix_approximation_rank = 20, .start_powerSGD_iter = 2}),
                dist::hooks::batched_power_sgd) < 1e-5);
    CHECK(error(std::make_shared<dist::hooks::PostLocalSGDState>(
                    dist::hooks::PostLocalSGDOptions{.start_localSGD_iter = 1}, ProcessGroup(),
                    group),
                dist::hooks::post_local_sgd) < 1e-6);
  });
}
