/// Data parallel training in compiled backward passes and compiled steps: the same reducer, the
/// same order, the same bits.
#include <atomic>
#include <mutex>

#include "grapnel/dist/power_sgd.h"
#include "tests/compile/backends.h"
#include "weighted.h"

using namespace grapnel;
using namespace grapnel::test;
using dist::DataParallelOptions;
using dist::DistributedDataParallel;

namespace {

/// How a pass is run: eagerly, or inside a compiled backward scope that counts its graphs.
struct How {
  std::optional<CompileOptions> options;
  std::atomic<int64_t> graphs{0};
  void operator()(const std::function<void()>& pass) {
    if (!options) return pass();
    CompiledBackward scope(*options);
    pass();
    graphs += scope.stats().graphs;
  }
};

/// Calls `test(how)` for the eager engine first, then for each backend.
template <class Test>
void in_each_pass(Test test) {
  How eager;
  test(eager);
  on_each_backend([&](CompileOptions options) {
    options.fullgraph = true;
    How how;
    how.options = options;
    test(how);
  });
}

/// Nothing here is drawn, so that all modes start alike.
nn::Sequential mlp() {
  nn::Sequential module(nn::Linear(6, 8), nn::Tanh(), nn::Linear(8, 8), nn::Tanh(),
                        nn::Linear(8, 3));
  NoGradGuard no_grad;
  for (const Tensor& p : module->parameters())
    p.copy_(sin(arange(p.numel(), kFloat32) * 1.7).view(p.sizes()) * 0.5);
  return module;
}

Tensor input_of(const ProcessGroup& group, int step) {
  return sin(arange(24, kFloat32).view({4, 6}) * (0.3 + 0.1 * step + 0.7 * group.rank()));
}

/// Keeps what rank 0 saw in the first run, and compares all later runs with it.
template <class T>
class SameAsFirst {
 public:
  void check(const ProcessGroup& group, const T& seen) {
    if (group.rank() != 0) return;
    const std::lock_guard guard(mutex_);
    if (!first_) first_ = seen;
    CHECK(*first_ == seen);
  }

 private:
  std::mutex mutex_;
  std::optional<T> first_;
};

std::vector<float> bits_of(const std::vector<Tensor>& tensors) {
  std::vector<float> out;
  for (const Tensor& t : tensors) {
    const Tensor flat = t.detach().contiguous();
    out.insert(out.end(), flat.data_ptr<float>(), flat.data_ptr<float>() + flat.numel());
  }
  return out;
}

}  // namespace

TEST_CASE(
    "compiled.88 comm.10.1 comm.10.3 the one reducer works in compiled passes: same launches, same "
    "buckets, same results") {
  using Trace = std::pair<std::vector<std::string>, std::vector<float>>;
  SameAsFirst<Trace> same;
  in_each_pass([&](How& how) {
    on_ranks(2, [&](ProcessGroup group) {
      auto module = mlp();
      Trace seen;
      DistributedDataParallel model(module, group,
                                    {.bucket_bytes = 300, .first_bucket_bytes = 100});
      model.register_comm_hook([&](GradBucket& bucket) {
        seen.first.push_back(str("bucket ", bucket.index(), " of ", bucket.parameters().size(),
                                 " parameters", bucket.is_last() ? ", the last" : ""));
        for (float v : bits_of({bucket.buffer()})) seen.second.push_back(v);
        return bucket.group().all_reduce(bucket.buffer()).single().then([](const Tensor& sum) {
          return sum * 0.25;
        });
      });
      optim::SGD sgd(model.parameters(), optim::SGDOptions(0.1));
      for (int step = 0; step < 4; ++step) {
        sgd.zero_grad();
        const Tensor loss = model(input_of(group, step)).square().mean();
        how([&] { loss.backward(); });
        for (float v : bits_of({module->parameters()[0].grad()})) seen.second.push_back(v);
        sgd.step();
      }
      for (float v : bits_of(model.parameters())) seen.second.push_back(v);
      CHECK(seen.first.size() > 8);
      same.check(group, seen);
    });
  });
}

TEST_CASE(
    "comm.10.2 buckets are sent in the middle of the graph, before the last gradients are "
    "computed") {
  in_each_pass([&](How& how) {
    on_ranks(2, [&](ProcessGroup group) {
      auto module = mlp();
      std::vector<std::string> events;
      // The first layer's weight gets its gradient last. An opaque hook runs when that gradient has
      // been computed.
      module->parameters()[0].register_hook(
          opaque([&](const Tensor&) { events.push_back("last gradient"); }));
      DistributedDataParallel model(module, group,
                                    {.bucket_bytes = 300,
                                     .first_bucket_bytes = 100,
                                     .on_event = [&](const dist::ReducerEvent& e) {
                                       if (e.kind == dist::ReducerEvent::Kind::launch)
                                         events.push_back(str("launch ", e.index));
                                     }});
      for (int step = 0; step < 3; ++step) {
        model.zero_grad();
        const Tensor loss = model(input_of(group, step)).square().mean();
        events.clear();
        how([&] { loss.backward(); });
      }
      REQUIRE(events.size() >= 3);
      CHECK(events.front() == "launch 0");
      CHECK(std::find(events.begin(), events.end(), "last gradient") < events.end() - 1);
    });
  });
}

TEST_CASE(
    "comm.10.4 one graph before the buckets are laid out anew and one after, whatever the hook "
    "does from then on") {
  on_each_backend([&](CompileOptions options) {
    reset_compile_cache();
    How how;
    how.options = options;
    how.options->fullgraph = true;
    std::array<std::atomic<int64_t>, 6> graphs{};
    std::atomic<bool> took_part = false;
    on_ranks(2, [&](ProcessGroup group) {
      auto module = mlp();
      took_part = true;
      DistributedDataParallel model(module, group,
                                    {.bucket_bytes = 300, .first_bucket_bytes = 100});
      auto state = std::make_shared<dist::hooks::PowerSGDState>(
          dist::hooks::PowerSGDOptions{.matrix_approximation_rank = 1, .start_powerSGD_iter = 3});
      model.register_comm_hook(state, dist::hooks::power_sgd);
      for (size_t step = 0; step < graphs.size(); ++step) {
        model.zero_grad();
        const Tensor loss = model(input_of(group, static_cast<int>(step))).square().mean();
        CompiledBackward scope(*how.options);
        loss.backward();
        graphs[step] += scope.stats().graphs;
      }
    });
    if (!took_part) return;
    CHECK(graphs[0].load() == 1);
    CHECK(graphs[1].load() == 1);
    for (size_t step = 2; step < graphs.size(); ++step) CHECK(graphs[step].load() == 0);
  });
}

TEST_CASE("comm.10.5 a flush on one rank between two launches changes nothing") {
  SameAsFirst<std::vector<float>> same;
  in_each_pass([&](How& how) {
    if (how.options) how.options->fullgraph = false;
    for (const int reader : {-1, 0, 1})
      on_ranks(2, [&](ProcessGroup group) {
        auto module = mlp();
        double read = 0;
        module->parameters()[2].register_hook([&](const Tensor& g) {
          if (group.rank() == reader) read += g.sum().item<double>();
        });
        DistributedDataParallel model(module, group,
                                      {.bucket_bytes = 300, .first_bucket_bytes = 100});
        for (int step = 0; step < 3; ++step) {
          model.zero_grad();
          const Tensor loss = model(input_of(group, step)).square().mean();
          how([&] { loss.backward(); });
        }
        CHECK((read != 0) == (group.rank() == reader));
        std::vector<Tensor> grads;
        for (const Tensor& p : model.parameters()) grads.push_back(p.grad());
        same.check(group, bits_of(grads));
      });
  });
}

namespace {

/// One parameter, and a forward that a test gives it.
struct OneLeaf : nn::Module {
  Tensor x;
  std::function<Tensor(const Tensor&)> body;
  OneLeaf(Tensor value, std::function<Tensor(const Tensor&)> f)
      : x(register_parameter("x", value)), body(std::move(f)) {}
  Tensor forward() { return body(x); }
};

}  // namespace

TEST_CASE("compiled.X12 rows 17, 23, 36, 37 and 74 on four ranks give what they give on one") {
  const auto replace_grad = [](const Tensor& t, auto f) {
    NoGradGuard off;
    t.set_grad(f(t.grad()));
  };
  in_each_pass([&](How& how) {
    on_ranks(4, [&](ProcessGroup group) {
      using Prepare = std::function<void(const Tensor&)>;
      // The gradient of one leaf, averaged over ranks that all do the same.
      const auto grad_of_leaf = [&](
                                    Tensor value, std::function<Tensor(const Tensor&)> f,
                                    const Prepare& prepare = [](const Tensor&) {}) {
        auto module = std::make_shared<OneLeaf>(std::move(value), std::move(f));
        prepare(module->x);
        DistributedDataParallel model(module, group);
        const Tensor out = model();
        how([&] { out.backward(out.dim() == 0 ? Tensor() : ones_like(out.detach())); });
        return module->x.grad();
      };
      // 17
      CHECK(all_are(grad_of_leaf(ones({4}),
                                 [](const Tensor& x) {
                                   Tensor y = x * 2.0;
                                   y.register_hook([](const Tensor& g) { return g + 3.0; });
                                   y.register_hook([](const Tensor& g) { return g + 4.0; });
                                   return y * 3.0;
                                 }),
                    20));
      // 23
      for (const int64_t val : {88, 99}) {
        const Tensor g = grad_of_leaf(ones({4}), [kept = tensor(val)](const Tensor& x) {
          x.register_hook([kept](const Tensor& grad) { return grad + kept; });
          return sin(sin(x)).sum();
        });
        CHECK(number(g[0]) ==
              doctest::Approx(static_cast<double>(val) + 0.3600395).epsilon(1.3e-6));
      }
      {  // 36: from the leaf itself, and the hook changes leaf and gradient
        auto module =
            std::make_shared<OneLeaf>(full({3}, 0.5), [](const Tensor& x) { return x * 3.0; });
        const Tensor b = full({3}, 2.0, requires_grad());
        module->x.register_post_accumulate_grad_hook([](Tensor t) {
          NoGradGuard off;
          t.mul_(t.grad());
          t.mutable_grad().mul_(5.0);
        });
        DistributedDataParallel model(module, group);
        model();
        how([&] { module->x.backward(b); });
        CHECK(all_are(module->x.detach(), 1));
        CHECK(all_are(module->x.grad(), 10));
        CHECK(all_are(b.detach(), 2));
      }
      {  // 37
        int i = 0;
        auto module =
            std::make_shared<OneLeaf>(ones({10}), [&](const Tensor& x) { return (x * i).sum(); });
        module->x.register_post_accumulate_grad_hook([](Tensor t) { t.mutable_grad().mul_(2.0); });
        DistributedDataParallel model(module, group);
        for (i = 0; i < 5; ++i) {
          module->x.reset_grad();
          const Tensor loss = model();
          how([&] { loss.backward(); });
          CHECK(all_are(module->x.grad(), 2.0 * i));
        }
      }
      // 74
      const Tensor g = grad_of_leaf(
          ones({3}), [](const Tensor& x) { return (x * 7).sum(); },
          [&](const Tensor& x) {
            grad_accumulator(x)->register_hook(
                [impl = x.impl_ptr(), &replace_grad](const variable_list&, const variable_list&) {
                  replace_grad(Tensor(IntrusivePtr<TensorImpl>(impl)),
                               [](const Tensor& grad) { return grad * 0.5; });
                });
            x.register_post_accumulate_grad_hook([&](const Tensor& leaf) {
              replace_grad(leaf, [](const Tensor& grad) { return grad + 3.0; });
            });
            grad_accumulator(x)->register_prehook(
                [](const variable_list& grads) { return variable_list{grads[0] / 5.0}; });
            x.register_hook([](const Tensor& grad) { return grad - 2.0; });
          });
      CHECK(number(g[0]) == doctest::Approx(2).epsilon(1e-6));
    });
  });
}

TEST_CASE("a whole step with communication is one graph and equals eager bit by bit") {
  SameAsFirst<std::vector<float>> same;
  const auto train = [&](std::optional<CompileOptions> options, bool view) {
    on_ranks(2, [&](ProcessGroup group) {
      auto module = mlp();
      DistributedDataParallel model(
          module, group,
          {.bucket_bytes = 300, .first_bucket_bytes = 100, .gradient_as_bucket_view = view});
      optim::SGD sgd(model.parameters(), optim::SGDOptions(0.1).momentum(0.9));
      const auto step = [&](const Tensor& x) {
        sgd.zero_grad();
        const Tensor loss = model(x).square().mean();
        loss.backward();
        sgd.step();
        return loss.detach();
      };
      std::vector<float> losses;
      if (options) {
        auto compiled = compile(step, *options);
        for (int i = 0; i < 10; ++i)
          losses.push_back(compiled(input_of(group, i)).template item<float>());
        CHECK(compiled.stats().breaks == 0);
      } else {
        for (int i = 0; i < 10; ++i)
          losses.push_back(step(input_of(group, i)).template item<float>());
      }
      for (float v : bits_of(model.parameters())) losses.push_back(v);
      same.check(group, losses);
    });
  };
  for (const bool view : {false, true}) {
    train(std::nullopt, view);
    on_each_backend([&](CompileOptions options) {
      options.fullgraph = true;
      train(options, view);
    });
  }
}
