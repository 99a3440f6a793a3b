/// How things end: `ends KIND END` makes one thing of a kind, uses it, and lets it end in some way
/// that programs have. Whatever the way, it is used once more in its destructor, as a program might.
/// Run by check_ends.py, which knows all pairs.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "grapnel/grapnel.h"

using namespace grapnel;

namespace {

void say(const char* text) { (void)!::write(1, text, std::strlen(text)); }

void must(bool ok, const char* what) {
  if (ok) return;
  say("FAILED: ");
  say(what);
  say("\n");
  _exit(3);
}

struct Thing {
  virtual ~Thing() = default;
  virtual void use() = 0;
};

/// A capture whose destructor takes the memory that was freed just before and writes to it.
struct Noisy {
  ~Noisy() {
    for (size_t n = 8; n <= 8192; n *= 2)
      for (int i = 0; i < 16; ++i) {
        // Leaked on purpose where nobody counts, so that it is not reused at once.
        auto* const p = new char[n];
        std::memset(p, 0x41, n);
        kept().emplace_back(p);
      }
  }
  static std::vector<std::unique_ptr<char[]>>& kept() {
    static auto& all = *new std::vector<std::unique_ptr<char[]>>;
    return all;
  }
};

/// Tensors with history, hooks, a gradient and a view.
struct TensorThing final : Thing {
  Tensor w = ones({2}, requires_grad()), y = w, view;
  TensorThing() {
    // A graph that comes and goes, so that whatever keeps memory for that has some.
    for (Tensor t = w; t.numel() < 200; t = cat({t, t * 1.5 + w[0]})) {
    }
    for (int i = 0; i < 20; ++i) {
      y = y * 1.5 + (w * 2) + w;
      y.grad_fn()->register_hook([n = std::make_shared<Noisy>()](auto&&...) {});
    }
    w.register_hook([](const Tensor& g) { return g * 0.5; });
    view = y[0];
  }
  void use() override {
    w.reset_grad();
    y.sum().backward({}, true);
    Tensor z = y * w;
    z.sum().backward({}, true);
    must(w.grad().isfinite().all().item<bool>(), "the gradient is a number");
  }
};

/// A compiled function; each use compiles one more and waits for its machine code.
struct CompiledThing final : Thing {
  int uses = 0;
  std::function<Tensor(Tensor)> kept = make(2);
  static std::function<Tensor(Tensor)> make(int ops) {
    return compile(
        [ops](Tensor x) {
          for (int i = 0; i < ops; ++i) x = (x * 2 + 1).tanh();
          return x;
        },
        {.on_failure = OnFailure::error});
  }
  void use() override {
    const Tensor x = ones({100});
    must(kept(x).equal(x.mul(2).add(1).tanh().mul(2).add(1).tanh()), "compiled equals eager");
    // In the background first; then somebody has to wait for what is in the queue.
    const int ops = 3 + ++uses;
    const auto body = [ops](Tensor t) {
      for (int i = 0; i < ops; ++i) t = (t * 3 - 1).sigmoid();
      return t;
    };
    auto soon = compile(body);
    auto now = compile(body, {.on_failure = OnFailure::error});
    must(soon(x).equal(now(x)), "interpreted equals compiled");
  }
};

struct HandleThing final : Thing {
  nn::Linear layer{3, 2};
  Tensor w = ones({3}, requires_grad()), v = w.detach().requires_grad_().view({3, 1});
  std::vector<HookHandle> handles;
  int fired = 0;
  void add() {
    handles.push_back(w.register_hook([this](const Tensor&) { ++fired; }));
    handles.push_back(v.register_hook([this](const Tensor&) { ++fired; }));
    handles.push_back(layer->register_forward_hook(
        [this](nn::Module&, const nn::Args&, const Tensor&) { ++fired; }));
    handles.push_back(layer->register_full_backward_hook(
        [this](nn::Module&, const variable_list&, const variable_list&) { ++fired; }));
  }
  HandleThing() { add(); }
  void use() override {
    fired = 0;
    layer((w * 2).reshape({1, 3})).sum().backward();
    v.sum().backward();
    must(fired == static_cast<int>(handles.size()), "every hook has fired once");
    add();
    for (size_t i = 0; i < 4; ++i) handles[i].remove();
    handles.erase(handles.begin(), handles.begin() + 4);
    v = w.detach().requires_grad_().view({3, 1});
    handles.resize(0);
    layer = nn::Linear(3, 2);
    w = ones({3}, requires_grad());
    add();
  }
};

struct OptimizerThing final : Thing {
  nn::Linear layer{4, 4};
  optim::Adam adam{layer->parameters(), optim::AdamOptions(0.1)};
  void use() override {
    adam.zero_grad();
    layer(ones({3, 4})).square().sum().backward();
    adam.step();
    must(layer->weight.isfinite().all().item<bool>(), "the weight is a number");
  }
};

/// A group of one that lives, and groups of threads that come and go.
struct RanksThing final : Thing {
  const pid_t home = getpid();
  dist::ProcessGroup group = dist::single_rank();
  void use() override {
    if (getpid() == home) {
      Tensor t = ones({3});
      std::atomic<int> called{0};
      auto done = group.all_reduce(t).future().then([&](const auto&) { return ++called; });
      done.wait();
      must(called == 1, "the callback was called");
    } else {
      try {
        group.all_reduce(ones({3})).wait();
        must(false, "a group of the parent's refuses to work in the child");
      } catch (const dist::CommAborted&) {
      }
    }
    dist::init().all_reduce(ones({3})).wait();
    dist::run_threads(2, [](dist::ProcessGroup g) {
      Tensor t = ones({2});
      g.all_reduce(t).wait();
      must(t[0].item<float>() == 2.0f, "two ranks add up");
    });
  }
};

struct LoaderThing final : Thing {
  data::DataLoader loader{std::make_shared<data::TensorDataset>(arange(1000.0), arange(1000)),
                          {.batch_size = 10, .workers = 2}};
  data::Epoch epoch = loader.epoch(0);
  data::Epoch::Iterator at = epoch.begin();
  void use() override {
    for (int i = 0; i < 3; ++i, ++at) must((*at).data.numel() == 10, "a batch has ten examples");
    int64_t batches = 0;
    for (const auto& batch : loader.epoch(1)) batches += batch.data.defined();
    must(batches == 100, "another epoch is whole");
  }
};

std::unique_ptr<Thing> make(const std::string& kind) {
  if (kind == "tensor") return std::make_unique<TensorThing>();
  if (kind == "compiled") return std::make_unique<CompiledThing>();
  if (kind == "handle") return std::make_unique<HandleThing>();
  if (kind == "optimizer") return std::make_unique<OptimizerThing>();
  if (kind == "ranks") return std::make_unique<RanksThing>();
  if (kind == "loader") return std::make_unique<LoaderThing>();
  std::fprintf(stderr, "no such kind: %s\n", kind.c_str());
  std::exit(2);
}

/// Holds a thing, uses it for the last time and lets it go.
struct Holder {
  std::unique_ptr<Thing> thing;
  ~Holder() {
    if (!thing) return;
    try {
      const EnableGradGuard grad;  // a hook that calls exit() runs without
      thing->use();
      thing = nullptr;
    } catch (const std::exception& e) {
      must(false, e.what());
    }
    say("used at the end\n");
  }
};

Holder global;
thread_local Holder of_thread;

void hold(Holder& holder, const std::string& kind) {
  holder.thing = make(kind);
  holder.thing->use();
}

/// The child uses what it has inherited and something of its own, and ends as programs end.
void child(const std::string& kind) {
  alarm(20);
  global.thing->use();
  const auto own = make(kind);
  own->use();
  global.thing = nullptr;
  std::exit(0);
}

void fork_often(const std::string& kind) {
  hold(global, kind);
  std::atomic<bool> stop{false};
  // Whatever takes locks: memory of all sizes, random numbers, graphs, messages, compiling.
  std::vector<std::thread> busy;
  busy.emplace_back([&] {
    for (int i = 0; !stop; ++i) {
      std::vector<Tensor> kept;
      for (int k = 0; k < 50; ++k) kept.push_back(ones({200 + 1000 * ((i + k) % 40)}));
    }
  });
  busy.emplace_back([&] {
    for (int i = 0; !stop; ++i) {
      Tensor x = randn({50}, requires_grad());
      (x * 2).tanh().sum().backward();
      auto f = compile([](Tensor t) { return (t + 2).exp() * t; });
      f(x.detach());
    }
  });
  int failed = 0;
  for (int i = 0; i < 12 && failed == 0; ++i) {
    const pid_t pid = fork();
    if (pid == 0) child(kind);
    int status = 0;
    waitpid(pid, &status, 0);
    if (status != 0) {
      std::fprintf(stderr, "child %d ended with status %d\n", i, status);
      ++failed;
    }
  }
  stop = true;
  for (std::thread& t : busy) t.join();
  must(failed == 0, "every child ends well");
}

void exit_in_hook(const std::string& kind) {
  hold(global, kind);
  Tensor x = ones({3}, requires_grad());
  Tensor y = (x * 2).tanh();
  y.register_hook([](const Tensor&) { std::exit(0); });
  y.sum().backward();
}

}  // namespace

/// What a program calls that has loaded all this as a plugin (plugin_host.cpp).
extern "C" void use_once(const char* kind) {
  try {
    make(kind)->use();
  } catch (const std::exception& e) {
    must(false, e.what());
  }
}

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: ends KIND END\n");
    return 2;
  }
  const std::string kind = argv[1], end = argv[2];
  alarm(100);
  if (end == "global") {
    hold(global, kind);
  } else if (end == "thread") {
    // Constructed before anything of the library's on this thread, so destroyed after it.
    std::thread([&] {
      of_thread.thing = nullptr;
      hold(of_thread, kind);
    }).join();
  } else if (end == "main_thread") {
    of_thread.thing = nullptr;
    hold(of_thread, kind);
  } else if (end == "static") {
    static Holder holder;
    hold(holder, kind);
  } else if (end == "exit_in_hook") {
    exit_in_hook(kind);
  } else if (end == "fork") {
    fork_often(kind);
  } else {
    std::fprintf(stderr, "no such end: %s\n", end.c_str());
    return 2;
  }
  return 0;
}
