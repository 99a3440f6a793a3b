/// A rank that fails does not let the others wait, wherever it fails.
#include "tests/compile/backends.h"
#include "weighted.h"

using namespace grapnel;
using namespace grapnel::test;
using dist::DistributedDataParallel;

namespace {

/// Far beyond what a test takes, so that nobody passes by waiting for it.
constexpr auto kNever = 10min;

struct Planned : std::runtime_error {
  Planned() : std::runtime_error("planned") {}
};

/// Rank 1 fails in `step` with Planned; the others are told so at once, and a new group works.
template <class Step>
void fails_together(Step step) {
  on_ranks(
      3,
      [&](ProcessGroup group) {
        const auto module = weighted({{1}, {2}});
        const auto run = [&] {
          DistributedDataParallel model(module, group, {.buckets = {{1}, {0}}});
          step(model, group);
        };
        if (group.rank() == 1) CHECK_THROWS_AS(run(), Planned);
        else CHECK(has(error_of<dist::CommAborted>(run), "rank 1"));
        DistributedDataParallel again(weighted({{1}}), group.renew());
        pass(again, {double(group.rank())});
        CHECK(grad_of(again) == doctest::Approx(1));
      },
      kNever);
}

struct ThrowsOnRank1 {
  int rank;
  void operator()(const auto&...) const {
    if (rank == 1) throw Planned();
  }
};

template <class Model>
Tensor forward(Model& model) {
  return model(std::vector<Tensor>{filled(1), filled(2, {2})});
}

}  // namespace

TEST_CASE("a tensor hook that throws on one rank ends backward on all of them") {
  fails_together([](auto& model, const ProcessGroup& group) {
    model.module().p[0].register_hook(ThrowsOnRank1{group.rank()});
    forward(model).backward();
  });
}

TEST_CASE("so does one that throws before any gradient of the module has been reached") {
  fails_together([](auto& model, const ProcessGroup& group) {
    const Tensor loss = forward(model) * 2.0;
    loss.register_hook(ThrowsOnRank1{group.rank()});
    loss.backward();
  });
}

TEST_CASE("so does one in a compiled pass, while it is recorded or while its graph runs") {
  for (const bool later : {false, true})
    on_each_backend([&](CompileOptions options) {
      fails_together([&](auto& model, const ProcessGroup& group) {
        const ThrowsOnRank1 hook{group.rank()};
        if (later) model.module().p[0].register_hook(opaque([=](const Tensor& g) { hook(g); }));
        else model.module().p[0].register_hook(hook);
        const CompiledBackward scope(options);
        forward(model).backward();
      });
    });
}

TEST_CASE("so does a compiled step that fails after its backward was recorded, or while it runs") {
  for (const bool later : {false, true})
    on_each_backend([&](CompileOptions options) {
      fails_together([&](auto& model, const ProcessGroup& group) {
        const ThrowsOnRank1 hook{group.rank()};
        auto compiled = compile(
            [&](const Tensor& x) {
              (forward(model) * x).backward();
              if (later) invoke(opaque([=](const Tensor& t) { hook(t); }), x * 1.0);
              else hook(x);
            },
            options);
        for (int step = 0; step < 2; ++step) compiled(ones({}));
      });
    });
}

TEST_CASE("an exception that ends the scope of the wrapper reaches the other ranks at once") {
  fails_together([](auto& model, const ProcessGroup& group) {
    for (int step = 0; step < 3; ++step) {
      forward(model).backward();
      if (step == 1) ThrowsOnRank1{group.rank()}();
    }
  });
}

TEST_CASE("an exception that is caught while the wrapper lives is the program's own business") {
  on_ranks(2, [](ProcessGroup group) {
    DistributedDataParallel model(one(), group);
    // Not a scalar, so there is no pass.
    CHECK_THROWS_AS((model(std::vector<Tensor>{filled(1)}) * ones({2})).backward(), Error);
    auto hook = model.module().register_forward_pre_hook(
        [](nn::Module&, const nn::Args&) { throw Planned(); });
    CHECK_THROWS_AS(pass(model, {1}), Planned);
    hook.remove();
    pass(model, {double(group.rank())});
    CHECK(grad_of(model) == doctest::Approx(0.5));
  });
}

TEST_CASE("a pass that stays local may fail") {
  on_ranks(2, [](ProcessGroup group) {
    DistributedDataParallel model(one(), group);
    {
      const auto local = model.no_sync();
      auto hook = model.module().p[0].register_hook(ThrowsOnRank1{group.rank()});
      if (group.rank() == 1) CHECK_THROWS_AS(pass(model, {1}), Planned);
      hook.remove();
    }
    const Tensor other = ones({1}, requires_grad());
    other.register_hook([](const Tensor&) { throw Planned(); });
    const Tensor loss = model(std::vector<Tensor>{filled(group.rank())});
    CHECK_THROWS_AS((other * 2.0).sum().backward(), Planned);  // has nothing to do with the model
    model.zero_grad();
    loss.backward();
    CHECK(grad_of(model) == doctest::Approx(0.5));
  });
}

TEST_CASE("a rank whose function ends with an exception takes renewed groups with it") {
  if (dist::launched_by_mpi()) return;  // a process that ends so is started by check_faults.py
  std::string seen, later;
  CHECK_THROWS_AS(dist::run_threads(2,
                                    [&](ProcessGroup group) {
                                      group = group.renew();
                                      if (group.rank() == 1) throw Planned();
                                      seen = error_of<dist::CommAborted>(
                                          [&] { group.barrier().wait(); });
                                      later = error_of<dist::CommAborted>(
                                          [&] { group.renew().barrier().wait(); });
                                    },
                                    {.timeout = kNever}),
                  Planned);
  CHECK(has(seen, "the function of rank 1 ended with an exception: planned"));
  CHECK(has(later, "the function of rank 1"));
}
