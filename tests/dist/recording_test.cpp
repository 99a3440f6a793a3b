/// Collectives that are called while a recording is open: they send what eager sends.
#include <thread>

#include "tests/compile/backends.h"
#include "weighted.h"

using namespace grapnel;
using namespace grapnel::test;
using dist::DistributedDataParallel;
using dist::Work;

namespace {

/// Every collective on a tensor of two elements, as a function of it.
using Collective = std::function<Tensor(const ProcessGroup&, const Tensor&)>;
const std::vector<std::pair<const char*, Collective>>& collectives() {
  static const std::vector<std::pair<const char*, Collective>> all = {
      {"all_reduce",
       [](const ProcessGroup& g, const Tensor& t) {
         return g.all_reduce(t).single().wait();
       }},
      {"broadcast",
       [](const ProcessGroup& g, const Tensor& t) {
         return g.broadcast(t, 1).single().wait();
       }},
      {"all_gather",
       [](const ProcessGroup& g, const Tensor& t) {
         return cat(g.all_gather(t).wait()).narrow(0, 1, 2);
       }},
      {"reduce_scatter",
       [](const ProcessGroup& g, const Tensor& t) {
         return g.reduce_scatter(t).single().wait().expand({2});
       }},
      {"all_to_all",
       [](const ProcessGroup& g, const Tensor& t) {
         return g.all_to_all(t).single().wait();
       }},
      {"send and recv",
       [](const ProcessGroup& g, const Tensor& t) {
         const Tensor got = empty({2});
         const int other = 1 - g.rank();
         const Work sent = g.send(t, other), received = g.recv(got, other);
         sent.wait();
         return received.single().wait();
       }},
      {"barrier",
       [](const ProcessGroup& g, const Tensor& t) {
         g.barrier().wait();
         return t;
       }},
      {"a part of something larger",
       [](const ProcessGroup& g, const Tensor& t) {
         const Tensor wide = stack(std::vector{t, t}).t();  // not contiguous
         g.all_reduce(wide).wait();
         return wide.select(1, 0);
       }},
      {"reading it before and after",
       [](const ProcessGroup& g, const Tensor& t) {
         const Tensor mine = t.clone(), before = mine * 10.0;
         g.all_reduce(mine).wait();
         return before + mine;
       }},
  };
  return all;
}

/// What each mode of running a step makes of a body: eager, the pass compiled, the whole compiled.
template <class Body>
void in_every_mode(Body body) {
  const auto both = [&](auto&& run) { on_ranks(2, [&](ProcessGroup group) { run(group); }); };
  both([&](const ProcessGroup& group) {
    body(group, [](const std::function<void()>& f) { f(); });
  });
  on_each_backend([&](CompileOptions options) {
    both([&](const ProcessGroup& group) {
      body(group, [&](const std::function<void()>& f) {
        const CompiledBackward scope(options);
        f();
      });
      body(group, [&](const std::function<void()>& f) { compile(f, options)(); });
    });
  });
}

}  // namespace

TEST_CASE("a traced hook may call any collective, and gets what it gets in eager mode") {
  for (const auto& [name, collective] : collectives()) {
    CAPTURE(name);
    std::vector<std::optional<Tensor>> eager(2);
    in_every_mode([&, &call = collective](const ProcessGroup& group, const auto& run) {
      const Tensor w = tensor({2.0F, 3.0F}).set_requires_grad(true);
      w.register_hook([&](const Tensor& g) { return call(group, g.clone()) + 1.0; });
      for (int step = 0; step < 3; ++step) {
        w.reset_grad();
        run([&] { (w * w * (group.rank() + 1.0)).sum().backward(); });
        auto& first = eager[static_cast<size_t>(group.rank())];
        if (!first) first = w.grad().clone();
        CHECK(equal(w.grad(), *first));
      }
    });
  }
}

TEST_CASE("a collective that nobody waits for inside the hook sends what eager sends") {
  in_every_mode([](const ProcessGroup& group, const auto& run) {
    for (int step = 0; step < 3; ++step) {
      const Tensor w = ones({4}, requires_grad());
      std::vector<Work> under_way;
      w.register_post_accumulate_grad_hook(
          [&](const Tensor& p) { under_way.push_back(group.all_reduce(p.grad())); });
      run([&] { (w * (1.0 + group.rank())).sum().backward(); });
      for (const Work& work : under_way) work.wait();
      CHECK(all_are(w.grad(), 3));
    }
  });
}

TEST_CASE("a collective in a compiled function is a break that carries its name") {
  on_ranks(2, [](ProcessGroup group) {
    const auto body = [&](const Tensor& x) {
      const Tensor y = x * 2.0;
      group.all_reduce(y).wait();
      return y + 1.0;
    };
    auto f = compile(body);
    CHECK(all_are(f(filled(group.rank() + 1, {3})), 7));
    REQUIRE(f.stats().breaks == 1);
    CHECK(has(f.stats().break_reasons[0].str(), "all_reduce"));
    auto whole = compile(body, {.fullgraph = true});
    CHECK(has(error_of<Error>([&] { whole(filled(1, {3})); }), "all_reduce"));
    // Every rank was refused before anything was sent.
    CHECK(all_are(f(filled(group.rank() + 1, {3})), 7));
  });
}

TEST_CASE("a collective comes after what was recorded before it, also if it has no tensor of it") {
  on_ranks(2, [](ProcessGroup group) {
    std::vector<int> order;
    compile([&](const Tensor& x) {
      invoke(opaque([&](const Tensor&) { order.push_back(1); }), x);
      group.barrier().wait();
      order.push_back(2);
    })(ones({2}));
    CHECK(order == std::vector{1, 2});
  });
}

TEST_CASE("inside opaque() and invoke() a collective breaks nothing") {
  on_ranks(2, [](ProcessGroup group) {
    auto f = compile(
        [&](const Tensor& x) {
          const Tensor sum = invoke(opaque([&](const Tensor& t) {
                                      const Tensor mine = t.clone();
                                      group.all_reduce(mine).wait();
                                      return mine;
                                    }),
                                    x * 2.0);
          return sum + 1.0;
        },
        {.fullgraph = true});
    for (int i = 0; i < 2; ++i) CHECK(all_are(f(filled(group.rank() + 1, {3})), 7));
  });
}

TEST_CASE("what was saved for backward notices that a collective has changed it") {
  on_ranks(2, [](ProcessGroup group) {
    const Tensor w = ones({3}, requires_grad()), x = ones({3});
    const Tensor y = (w * x).sum();
    group.all_reduce(x).wait();
    CHECK(has(error_of<Error>([&] { y.backward(); }), "in-place"));
    const Tensor z = (w * x).sum();
    const Work sent = group.send(x, 1 - group.rank());
    group.recv(zeros({3}), 1 - group.rank()).wait();
    sent.wait();
    CHECK_NOTHROW(z.backward());  // what is only sent stays as it is
  });
}

TEST_CASE("buffers reach all ranks inside a compiled step, which stays one graph") {
  on_ranks(2, [](ProcessGroup group) {
    nn::Sequential net(nn::Linear(3, 4), nn::BatchNorm1d(4));
    DistributedDataParallel model(net, group);
    optim::SGD sgd(model.parameters(), 0.1);
    const auto run = [&](const Tensor& x) {
      sgd.zero_grad();
      model(x).square().mean().backward();
      sgd.step();
    };
    const auto input = [&](int step) {
      return sin(arange(12, kFloat32).view({4, 3}) * (0.3 + 0.1 * step + 0.7 * group.rank()));
    };
    const nn::StateDict before = net->state_dict();
    std::vector<Tensor> start, eager;
    for (const auto& item : before) start.push_back(item.value().clone());
    for (int step = 0; step < 3; ++step) run(input(step));
    for (const auto& item : net->state_dict()) eager.push_back(item.value().clone());
    size_t i = 0;
    for (const auto& item : net->state_dict()) {
      const NoGradGuard no_grad;
      item.value().copy_(start[i++]);
    }
    auto compiled = compile(run, {.fullgraph = true});
    for (int step = 0; step < 3; ++step) compiled(input(step));
    i = 0;
    for (const auto& item : net->state_dict()) CHECK(equal(item.value(), eager[i++]));
    CHECK(compiled.stats().breaks == 0);
  });
}

TEST_CASE("a bucket that was sent in an earlier piece of a step is received in a later one") {
  for (const bool views : {false, true})
    on_ranks(2, [&](ProcessGroup group) {
      DistributedDataParallel model(weighted({{1}, {20}}), group,
                                    {.gradient_as_bucket_view = views, .buckets = {{1}, {0}}});
      model.register_comm_hook([](GradBucket& bucket) {
        return bucket.group().all_reduce(bucket.buffer()).single().then([](const Tensor& sum) {
          return sum / 2.0;  // not the bucket's own memory
        });
      });
      auto& p = model.module().p;
      p[1].register_hook(opaque([](const Tensor&) {}));
      // Entered when the first bucket has been sent. The other rank is late, so that one still is
      // under way while this rank records how it will be received.
      p[0].register_hook([&](const Tensor&) {
        if (group.rank() == 1) std::this_thread::sleep_for(30ms);
      });
      auto step = compile([&](const Tensor& x) {
        model.zero_grad();
        model(std::vector{x.narrow(0, 0, 1), x}).backward();
      });
      for (int i = 0; i < 2; ++i) {
        step(filled(group.rank() + i, {20}));
        CHECK(all_are(p[0].grad(), 0.5 + i));
        CHECK(all_are(p[1].grad(), 0.5 + i));
      }
    });
}
