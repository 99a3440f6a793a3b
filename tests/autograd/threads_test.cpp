/// Everything that docs/threads.md allows from several threads, each pair at once. Short here; with
/// GRAPNEL_STRESS_SECONDS=600 all pairs together take that long.
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>

#include "tests/autograd/vectors.h"

using namespace grapnel;
using namespace grapnel::test;

namespace {

using std::chrono::steady_clock;

/// What two threads have in common.
struct Shared {
  Tensor w = ones({8, 8}, requires_grad()), middle = w * 0.01, graph;
  nn::Linear layer{8, 8};
  std::function<Tensor(Tensor)> compiled = compile([](Tensor x) { return (x * 2).tanh().sum(); });
  Generator generator{7};
  data::DatasetPtr dataset =
      std::make_shared<data::TensorDataset>(arange(40.0).view({20, 2}), arange(20));
  Tensor stepped = ones({8}, requires_grad());
  optim::SGD sgd{{stepped}, 0.1};
  std::mutex stepping;  // one thread at a time steps, the others change the hooks
  dist::ProcessGroup group = dist::single_rank();

  // A graph that one thread at a time frees, and then makes anew.
  Tensor freed;
  std::mutex reading, freeing;

  // A leaf whose hook anomaly mode looks after.
  Tensor watched = ones({8, 8}, requires_grad());

  Shared() {
    watched.register_post_accumulate_grad_hook([](const Tensor&) {});
    middle.retain_grad();
    graph = (middle * middle).sum();
    stepped.set_grad(zeros({8}));
    renew();
  }
  void renew() {
    Tensor fresh = (w * w).exp().sum();
    const std::lock_guard lock(reading);
    freed = fresh;
  }
  Tensor to_free() {
    const std::lock_guard lock(reading);
    return freed;
  }
};

struct Action {
  const char* name;
  void (*run)(Shared& s);
};

const Action actions[] = {
    {"backward into shared parameters", [](Shared& s) { (s.w * 2).tanh().sum().backward(); }},
    {"backward through one graph", [](Shared& s) { s.graph.backward({}, true); }},
    {"gradients of one graph",
     [](Shared& s) { CHECK(autograd::grad({s.graph}, {s.w}, {}, true)[0].defined()); }},
    {"freeing one graph",
     [](Shared& s) {
       const std::unique_lock frees(s.freeing, std::try_to_lock);
       try {
         s.to_free().backward({}, !frees.owns_lock());
       } catch (const Error& e) {
         CHECK_FALSE(frees.owns_lock());
         CHECK(std::string(e.what()).find("already been freed") != std::string::npos);
       }
       if (frees.owns_lock()) s.renew();
     }},
    {"create_graph", [](Shared& s) { (s.w * s.w).sum().backward({}, true, true); }},
    {"tensor hooks",
     [](Shared& s) {
       HookHandle h = s.w.register_hook([](const Tensor& g) { return g * 1; });
       HookHandle after = s.w.register_post_accumulate_grad_hook([](const Tensor&) {});
       CHECK(h.active());
       h.remove();
       after.remove();
     }},
    {"hooks on views",
     [](Shared& s) {
       Tensor v = s.w.t();
       v.register_hook([](const Tensor&) {});
       v.sum().backward();
     }},
    {"hooks on the nodes of one graph",
     [](Shared& s) {
       ScopedHook pre = s.graph.grad_fn()->register_prehook([](const variable_list&) {});
       ScopedHook post =
           s.graph.grad_fn()->register_hook([](const variable_list&, const variable_list&) {});
     }},
    {"listing hooks", [](Shared& s) { CHECK(hooks_of(s.w).size() < 10); }},
    {"hooks of several tensors",
     [](Shared& s) {
       register_multi_grad_hook({s.w, s.layer->weight}, [](const variable_list&) {}).remove();
     }},
    {"calling a module", [](Shared& s) { s.layer(ones({2, 8})).sum().backward(); }},
    {"module hooks",
     [](Shared& s) {
       auto h = s.layer->register_forward_hook([](nn::Module&, const nn::Args&, const Tensor&) {});
       auto b = s.layer->register_full_backward_hook(
           [](nn::Module&, const variable_list&, const variable_list&) {});
       CHECK(h.active());
       h.remove();
       b.remove(HookHandle::now);
     }},
    {"global hooks",
     [](Shared&) {
       nn::register_module_forward_hook([](nn::Module&, const nn::Args&, const Tensor&) {
       }).remove();
     }},
    {"hooks of an optimiser",
     [](Shared& s) {
       auto before = s.sgd.register_step_pre_hook([](optim::Optimizer&) {});
       auto after = s.sgd.register_step_post_hook([](optim::Optimizer&) {});
       if (const std::unique_lock steps(s.stepping, std::try_to_lock); steps.owns_lock())
         s.sgd.step();
       before.remove();
       after.remove();
     }},
    {"hooks of all optimisers",
     [](Shared&) {
       auto before = optim::register_optimizer_step_pre_hook([](optim::Optimizer&) {});
       auto after = optim::register_optimizer_step_post_hook([](optim::Optimizer&) {});
       Tensor own = ones({3}, requires_grad());
       optim::SGD sgd({own}, 0.5);
       own.sum().backward();
       sgd.step();
       CHECK(own.equal(full({3}, 0.5)));
       before.remove();
       after.remove();
     }},
    {"one compiled function", [](Shared& s) { CHECK(s.compiled(ones({9})).dim() == 0); }},
    {"compiling",
     [](Shared&) {
       auto f = compile([](Tensor x) { return x.exp() - x; });
       CHECK(f(ones({5})).numel() == 5);
     }},
    {"compiled backward",
     [](Shared&) {
       Tensor own = ones({3}, requires_grad());
       CompiledBackward scope;
       (own * 2).sum().backward();
     }},
    {"saved-tensor hooks",
     [](Shared& s) {
       const auto hook = hooks::compress(kBFloat16, {}, {.min_bytes = 0});
       autograd::SavedTensorHooks scope(hook.pack, hook.unpack);
       (s.w * 2).exp().sum().backward();
     }},
    {"grad modes",
     [](Shared& s) {
       const NoGradGuard no_grad;
       CHECK_FALSE((s.w * 2).requires_grad());
     }},
    {"autocast",
     [](Shared& s) {
       const Autocast scope(kBFloat16);
       const Tensor y = s.layer(ones({2, 8}));
       CHECK(y.dtype() == kBFloat16);
       y.sum().backward();
     }},
    {"anomaly mode",
     [](Shared& s) {
       const DetectAnomalyGuard guard;
       (s.w * s.watched).tanh().sum().backward();
     }},
    {"random numbers",
     [](Shared& s) {
       rand({4});
       randn({4}, s.generator);
     }},
    {"memory",
     [](Shared&) {
       const Tensor t = ones({1 << 14}), u = t + t;
       CHECK(memory_stats().in_use > 0);
       release_cached_memory();
     }},
    {"number of threads",
     [](Shared&) {
       set_num_threads(2);
       CHECK((ones({1 << 16}) * 2).sum().item<float>() == 1 << 17);
     }},
    {"warnings",
     [](Shared&) {
       set_warning_handler([](const std::string&) {});
       base::warn("nobody hears this");
     }},
    {"loading data",
     [](Shared& s) {
       data::DataLoader loader(s.dataset, {.batch_size = 5, .workers = 1});
       for (const auto& batch : loader.epoch(0)) CHECK(batch.data.defined());
     }},
    {"one group of ranks, with a handle for each thread",
     [](Shared& s) {
       dist::ProcessGroup own = s.group;
       own.all_reduce(ones({2})).wait();
     }},
    {"groups of ranks",
     [](Shared&) {
       dist::run_threads(2, [](dist::ProcessGroup group) {
         Tensor t = ones({2});
         group.all_reduce(t).wait();
         CHECK(t.equal(full({2}, 2.0)));
       });
     }},
    {"places in messages", [](Shared& s) { CHECK_THROWS_AS(s.w.view({3, 3}), Error); }},
};

}  // namespace

TEST_CASE("everything that may be done from several threads may be done at once, in pairs") {
  const char* text = std::getenv("GRAPNEL_STRESS_SECONDS");
  constexpr auto kActions = static_cast<int64_t>(std::size(actions));
  constexpr int64_t kPairs = kActions * (kActions + 1) / 2;
  const auto each = text ? std::chrono::milliseconds(std::atoll(text) * 1000 / kPairs)
                         : std::chrono::milliseconds(4);
  const int threads_before = get_num_threads();
  Shared shared;
  for (const Action& a : actions) {
    for (const Action* b = &a; b != std::end(actions); ++b) {
      CAPTURE(a.name);
      CAPTURE(b->name);
      const auto end = steady_clock::now() + each;
      std::atomic<int> waiting{2};
      const auto repeat = [&](const Action& action) {
        --waiting;
        while (waiting > 0) std::this_thread::yield();
        try {
          do action.run(shared);
          while (steady_clock::now() < end);
        } catch (const std::exception& e) {
          FAIL_CHECK(action.name << ": " << e.what());
        }
      };
      std::thread other([&] { repeat(*b); });
      repeat(a);
      other.join();
    }
  }
  set_warning_handler(nullptr);
  set_num_threads(threads_before);
  CHECK(shared.w.grad().defined());
}
