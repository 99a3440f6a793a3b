/// The wrapper: buckets, modes, hooks on parameters, and the vectors D1 to D14 that do not belong
/// to one hook.
#include <bit>
#include <thread>

#include "weighted.h"

using namespace grapnel;
using namespace grapnel::test;
using dist::DataParallelOptions;
using dist::DistributedDataParallel;

TEST_CASE("comm.1: gradients are averaged over ranks, and replicas start equal") {
  for (int ranks : {1, 2, 3, 4})
    on_ranks(ranks, [](ProcessGroup group) {
      auto module = weighted({{2, 3}, {4}}, kFloat32, group.rank() + 5);
      module->register_buffer("count", filled(group.rank()));
      DistributedDataParallel model(module, group);
      CHECK(all_are(module->p[0].detach(), 5));
      CHECK(all_are(module->named_buffers()["count"], 0));
      for (int i = 0; i < 3; ++i) {
        model.zero_grad();
        pass(model, {double(group.rank()), 2.0 * group.rank()});
        CHECK(all_are(module->p[0].grad(), (group.size() - 1) / 2.0));
        CHECK(all_are(module->p[1].grad(), group.size() - 1));
      }
    });
}

TEST_CASE("the wrapper is a module: parameters, state and hooks pass through") {
  on_ranks(2, [](ProcessGroup group) {
    nn::Linear fc(3, 2);
    DistributedDataParallel model(fc, group);
    CHECK(model.parameters().size() == 2);
    CHECK(model.state_dict().find("module.weight") != nullptr);
    int calls = 0;
    fc->register_forward_hook([&](nn::Module&, const nn::Args&, const nn::Value&) { ++calls; });
    CHECK(model(ones({4, 3})).shape() == Shape{4, 2});
    CHECK(calls == 1);
    model.eval();
    CHECK(!fc->is_training());
  });
}

TEST_CASE(
    "comm.D1: a parameter used on one rank is averaged on all; one used nowhere keeps an undefined "
    "gradient") {
  for (const bool view : {false, true})
    on_ranks(2, [&](ProcessGroup group) {
      auto module = weighted({{2}, {2}, {2}});
      DistributedDataParallel model(
          module, group, {.find_unused_parameters = true, .gradient_as_bucket_view = view});
      const bool first = group.rank() == 0;
      for (int i = 0; i < 3; ++i) {
        model.zero_grad();
        model(std::vector<Tensor>{filled(first ? 2 : 4, {2}), first ? Tensor() : filled(6, {2}),
                                  Tensor()})
            .backward();
        CHECK(all_are(module->p[0].grad(), 3));
        CHECK(all_are(module->p[1].grad(), 3));
        CHECK(!module->p[2].grad().defined());
      }
    });
}

TEST_CASE("comm.D2: a gradient of a parameter that nobody used stays exactly as it was") {
  for (const bool view : {false, true})
    on_ranks(2, [&](ProcessGroup group) {
      auto module = weighted({{2}, {2}, {2}});
      DistributedDataParallel model(
          module, group, {.find_unused_parameters = true, .gradient_as_bucket_view = view});
      module->p[2].set_grad(filled(7, {2}));
      const bool first = group.rank() == 0;
      model(std::vector<Tensor>{filled(first ? 2 : 4, {2}), first ? Tensor() : filled(6, {2}),
                                Tensor()})
          .backward();
      CHECK(all_are(module->p[0].grad(), 3));
      CHECK(all_are(module->p[1].grad(), 3));
      CHECK(all_are(module->p[2].grad(), 7));
      // Used now, unused again: what was averaged stays.
      pass(model, {1, 1, 1});
      const double before = grad_of(model, 2);
      model(std::vector<Tensor>{filled(1, {2}), filled(1, {2}), Tensor()}).backward();
      CHECK(grad_of(model, 2) == before);
    });
}

TEST_CASE("comm.D3: passes inside no_sync accumulate, and the next one sends the total") {
  on_ranks(2, [](ProcessGroup group) {
    DistributedDataParallel model(one(), group);
    int calls = 0;
    model.register_comm_hook([&](GradBucket& bucket) {
      ++calls;
      return dist::hooks::allreduce(bucket);
    });
    const double g = group.rank() == 0 ? 1 : 3;
    {
      const auto local = model.no_sync();
      for (int i = 0; i < 3; ++i) pass(model, {g});
    }
    CHECK(grad_of(model) == 3 * g);
    CHECK(calls == 0);
    pass(model, {g});
    CHECK(grad_of(model) == 8);
    CHECK(calls == 1);
  });
}

TEST_CASE("comm.D4: the forward decides whether its backward is synchronised") {
  on_ranks(2, [](ProcessGroup group) {
    DistributedDataParallel model(one(), group);
    const double g = group.rank() == 0 ? 1 : 3;
    Tensor out;
    {
      const auto local = model.no_sync();
      out = model(std::vector{filled(g)});
    }
    out.backward();
    CHECK(grad_of(model) == g);
    model.zero_grad();
    out = model(std::vector{filled(g)});
    {
      const auto local = model.no_sync();
      out.backward();
    }
    CHECK(grad_of(model) == 2);
  });
}

TEST_CASE("comm.D5: with join, ranks without inputs take part with zeros") {
  for (const auto& [initial, hook, expected] :
       {std::tuple{true, false, 2.0}, {false, false, 4.0}, {true, true, 2.0}, {false, true, 2.0}})
    on_ranks(2, [&](ProcessGroup group) {
      auto module = one(kFloat32, group.rank() + 10);
      module->register_buffer("seen", filled(0));
      DistributedDataParallel model(module, group);
      if (hook) model.register_comm_hook(dist::hooks::allreduce);
      std::vector<double> seen;
      dist::join(model,
                 [&] {
                   for (int i = 0; i < 2 - group.rank(); ++i) {
                     model.zero_grad();
                     pass(model, {group.rank() == 0 ? 4.0 : 2.0});
                     seen.push_back(grad_of(model));
                     NoGradGuard off;
                     module->p[0].sub_(module->p[0].grad());
                   }
                 },
                 {.divide_by_initial_world_size = initial});
      CHECK(seen[0] == 3);
      if (group.rank() == 0) CHECK(seen[1] == expected);
      // Everybody ends with the model of the rank that was busy longest.
      CHECK(number(module->p[0].detach()) == 10 - 3 - expected);
    });
}

TEST_CASE(
    "comm.5.7: join works when a rank has no inputs at all, with several buckets and a search for "
    "unused parameters") {
  for (const bool search : {false, true})
    on_ranks(3, [&](ProcessGroup group) {
      auto module = weighted({{4}, {4}, {4}});
      DistributedDataParallel model(module, group,
                                    {.bucket_bytes = 16, .find_unused_parameters = search});
      int steps = 0;
      dist::join(model, [&] {
        for (int i = 0; i < 2 * group.rank(); ++i, ++steps) {
          model.zero_grad();
          pass(model, {3, 6, 9});
          const double active = i < 2 ? 2 : 1;
          CHECK(grad_of(model, 1) == doctest::Approx(2 * active));
        }
      });
      CHECK(steps == 2 * group.rank());
      CHECK(model.stats().iterations == 4);
      CHECK(model.stats().rebuilt == !search);
      model.zero_grad();
      pass(model, {1, 1, 1});
      CHECK(grad_of(model, 2) == doctest::Approx(1));
    });
}

TEST_CASE(
    "comm.D6: with gradient_as_bucket_view, grad() lies in the bucket, with the same values") {
  on_ranks(2, [](ProcessGroup group) {
    auto plain = weighted({{3}, {5}}), viewed = weighted({{3}, {5}});
    DistributedDataParallel a(plain, group), b(viewed, group, {.gradient_as_bucket_view = true});
    Tensor buffer;
    b.register_comm_hook([&](GradBucket& bucket) {
      buffer = bucket.buffer();
      return dist::hooks::allreduce(bucket);
    });
    for (int i = 0; i < 5; ++i) {
      // Cleared to undefined, to zero, or not at all.
      if (i % 3 != 2)
        for (auto* m :
             {static_cast<nn::Module*>(plain.get()), static_cast<nn::Module*>(viewed.get())})
          m->zero_grad(i % 3 == 0);
      const double g = group.rank() + i;
      pass(a, {g, 2 * g});
      pass(b, {g, 2 * g});
      for (size_t k = 0; k < 2; ++k) {
        CHECK(equal(plain->p[k].grad(), viewed->p[k].grad()));
        if (i >= 1) CHECK(viewed->p[k].grad().is_alias_of(buffer));
      }
    }
    CHECK(has(error_of<Error>([&] { viewed->p[0].grad().detach_(); }), "views cannot be detached"));
  });
}

TEST_CASE(
    "comm.5.5: a gradient that is replaced while the pass is under way is an error with "
    "gradient_as_bucket_view") {
  on_ranks(2, [](ProcessGroup group) {
    auto module = weighted({{3}, {5}});
    DistributedDataParallel model(module, group,
                                  {.gradient_as_bucket_view = true, .buckets = {{1}, {0}}});
    pass(model, {1, 1});
    module->p[0].register_hook([&](const Tensor&) { module->p[1].set_grad(filled(1, {5})); });
    const std::string text = error_of<Error>([&] { pass(model, {1, 1}); });
    CHECK((text.find("p1 was replaced by another tensor") != std::string::npos ||
           text.find("gave up group") != std::string::npos));
  });
}

TEST_CASE("comm.D7: a later bucket that fills up first waits for its turn") {
  on_ranks(2, [](ProcessGroup group) {
    auto module = weighted({{2}, {2}});
    DistributedDataParallel model(module, group, {.buckets = {{0}, {1}}});
    std::vector<size_t> order;
    std::vector<std::string> names;
    model.register_comm_hook([&](GradBucket& bucket) {
      order.push_back(bucket.index());
      names.push_back(bucket.parameter_names()[0]);
      return dist::hooks::allreduce(bucket);
    });
    pass(model, {1, 2});  // p1 is added last, so its gradient comes first
    CHECK(order == std::vector<size_t>{0, 1});
    CHECK(names == std::vector<std::string>{"p0", "p1"});
  });
}

TEST_CASE("comm.D8: a result of another type is converted") {
  for (DType dtype : {kFloat64, kFloat16})
    for (const bool view : {false, true})
      on_ranks(2, [&](ProcessGroup group) {
        DistributedDataParallel model(one(), group, {.gradient_as_bucket_view = view});
        model.register_comm_hook([&](GradBucket& bucket) {
          return Future<Tensor>(full_like(bucket.buffer(), 2.5, dtype));
        });
        for (int i = 0; i < 2; ++i) {
          pass(model, {1});
          CHECK(grad_of(model) == 2.5);
          CHECK(model.module().p[0].grad().dtype() == kFloat32);
        }
      });
}

TEST_CASE("comm.D9: backward returns only when the hook's future is complete") {
  on_ranks(2, [](ProcessGroup group) {
    DistributedDataParallel model(one(), group);
    std::vector<std::thread> threads;
    std::atomic<bool> completed{false};
    model.register_comm_hook([&](GradBucket& bucket) {
      auto later = Future<Tensor>::make();
      threads.emplace_back([&completed, later, t = bucket.buffer() * 2] {
        std::this_thread::sleep_for(50ms);
        completed = true;
        later.set_result(t);
      });
      return later;
    });
    pass(model, {4});
    CHECK(completed);
    CHECK(grad_of(model) == 8);
    for (auto& t : threads) t.join();
  });
}

TEST_CASE(
    "comm.D11: hooks on parameters act on the local gradient, after-reduction hooks see the mean") {
  on_ranks(2, [](ProcessGroup group) {
    DistributedDataParallel model(one(), group);
    const Tensor& p = model.module().p[0];
    p.register_hook([](const Tensor& g) { return g * 2; });
    std::vector<double> local, mean;
    p.register_post_accumulate_grad_hook([&](const Tensor& leaf) {
      local.push_back(number(leaf.grad()));
      leaf.mutable_grad().clamp_(-5, 5);
    });
    HookHandle after = model.register_after_reduction_hook(
        p, [&](const Tensor& leaf) { mean.push_back(number(leaf.grad())); });
    pass(model, {group.rank() == 0 ? 1.0 : 4.0});
    CHECK(local == std::vector{group.rank() == 0 ? 2.0 : 8.0});
    CHECK(mean == std::vector{3.5});  // of 2 and 5
    CHECK(grad_of(model) == 3.5);
    after.remove();
    model.zero_grad();
    pass(model, {1});
    CHECK(mean.size() == 1);
    CHECK(has(error_of<Error>(
                  [&] { model.register_after_reduction_hook(filled(1), [](const Tensor&) {}); }),
              "no parameter"));
  });
}

TEST_CASE(
    "comm.2.4: buckets are laid out anew once, in the order in which gradients arrived on rank 0") {
  on_ranks(2, [](ProcessGroup group) {
    std::vector<std::vector<int64_t>> shapes(11, {1600});
    shapes[0] = {80};
    auto module = weighted(shapes);
    DistributedDataParallel model(module, group,
                                  {.bucket_bytes = 8192, .first_bucket_bytes = 1024});
    using Lists = std::vector<std::vector<size_t>>;
    std::vector<double> ones(11, 1);
    CHECK(model.bucket_layout().size() == 1);
    for (int i = 0; i < 3; ++i) pass(model, ones);
    CHECK(model.bucket_layout() == Lists{{10}, {9, 8}, {7, 6}, {5, 4}, {3, 2}, {1, 0}});
    CHECK(model.stats().rebuilt);

    DistributedDataParallel searching(
        weighted(shapes), group,
        {.bucket_bytes = 8192, .first_bucket_bytes = 1024, .find_unused_parameters = true});
    for (int i = 0; i < 3; ++i) pass(searching, ones);
    CHECK(searching.bucket_layout() == Lists{{10}, {8, 9}, {6, 7}, {4, 5}, {2, 3}, {0, 1}});
    CHECK(!searching.stats().rebuilt);

    DistributedDataParallel last(
        weighted(shapes), group,
        {.bucket_bytes = 8192, .first_bucket_bytes = 300, .small_bucket_last = true});
    for (int i = 0; i < 2; ++i) pass(last, ones);
    CHECK(last.bucket_layout() == Lists{{10, 9}, {8, 7}, {6, 5}, {4, 3}, {2, 1}, {0}});
  });
}

TEST_CASE("comm.2.2: results do not depend on the size of buckets") {
  std::vector<std::vector<double>> seen(2);
  on_ranks(2, [&](ProcessGroup group) {
    Tensor expected;
    for (int64_t bytes : {1, 100, 4000, 1 << 20}) {
      auto module = weighted({{30}, {7}, {50}, {3}});
      DistributedDataParallel model(module, group, {.bucket_bytes = bytes});
      for (int i = 0; i < 3; ++i) {
        model.zero_grad();
        pass(model, {0.1 * (group.rank() + 1), 0.2 * i, -0.3 * group.rank(), 1e-3});
      }
      std::vector<Tensor> flat;
      for (const Tensor& p : module->p) flat.push_back(p.grad());
      if (!expected.defined()) expected = cat(flat);
      CHECK(equal(cat(flat), expected));
    }
  });
}

TEST_CASE("comm.5.4: iteration one counts, later ones send early; a change is an error") {
  struct Reused : nn::Module {
    Tensor a, b, c;
    Reused() {
      a = register_parameter("a", ones({2}));
      b = register_parameter("b", ones({2}));
      c = register_parameter("c", ones({2}));
    }
    Tensor forward(Tensor x, bool use_c) {
      const Tensor y = x * b * a;
      // A pass inside the pass: a is reached in both.
      y.register_hook([this](const Tensor&) {
        EnableGradGuard on;
        (a * 2.0).sum().backward();
      });
      return (use_c ? y * c : y).sum();
    }
  };
  on_ranks(2, [](ProcessGroup group) {
    auto module = std::make_shared<Reused>();
    DistributedDataParallel model(module, group, {.static_graph = true});
    std::vector<size_t> indices;
    for (int i = 0; i < 3; ++i) {
      model.zero_grad();
      model(filled(group.rank() + 1, {2}), false).backward();
      CHECK(all_are(module->a.grad(), 3.5));
      CHECK(all_are(module->b.grad(), 1.5));
      CHECK(!module->c.grad().defined());
    }
    CHECK(has(error_of<Error>([&] { model(filled(1, {2}), true).backward(); }),
              "unused in the first iteration"));
  });
}

TEST_CASE("comm.5.4: a parameter that goes missing is named at the next forward") {
  on_ranks(2, [](ProcessGroup group) {
    DistributedDataParallel model(weighted({{1}, {1}}), group);
    model.set_static_graph();
    pass(model, {1, 1});
    model(std::vector<Tensor>{filled(1), Tensor()}).backward();
    const std::string text = error_of<Error>([&] { pass(model, {1, 1}); });
    CHECK(has(text, "p1"));
    CHECK(has(text, "declared static"));
  });
}

TEST_CASE("comm.5.2: an output that the loss leaves out: its parameters count as unused") {
  struct TwoHeads : nn::Module {
    Tensor a, b;
    TwoHeads() {
      a = register_parameter("a", ones({2}));
      b = register_parameter("b", ones({2}));
    }
    std::tuple<Tensor, Tensor> forward(Tensor x) { return {(x * a).sum(), (x * b).sum()}; }
  };
  on_ranks(2, [](ProcessGroup group) {
    auto module = std::make_shared<TwoHeads>();
    DistributedDataParallel model(module, group, {.find_unused_parameters = true});
    for (int i = 0; i < 2; ++i) {
      model.zero_grad();
      const auto [left, right] = model(filled(group.rank() + 1, {2}));
      left.backward();
      CHECK(all_are(module->a.grad(), 1.5));
      CHECK(!module->b.grad().defined());
    }
  });
}

TEST_CASE(
    "comm.5.6: searching although nothing is unused warns once; a graph of gradients warns once") {
  if (dist::launched_by_mpi()) return;
  std::vector<std::string> warnings;
  set_warning_handler([&](const std::string& text) { warnings.push_back(text); });
  dist::run_threads(1, [](ProcessGroup group) {
    DistributedDataParallel model(one(), group, {.find_unused_parameters = true});
    for (int i = 0; i < 3; ++i) {
      model.zero_grad();
      model(std::vector{filled(1)}).backward({}, {}, true);
      model.module().p[0].reset_grad();
    }
  });
  set_warning_handler([](const std::string& text) { std::fputs((text + "\n").c_str(), stderr); });
  REQUIRE(warnings.size() == 2);
  CHECK(has(warnings[0], "find_unused_parameters"));
  CHECK(has(warnings[1], "create_graph"));
}

TEST_CASE("buffers of rank 0 reach all ranks before each synchronised forward") {
  for (const bool on : {true, false})
    on_ranks(2, [&](ProcessGroup group) {
      auto module = one();
      Tensor& count = module->register_buffer("count", filled(0));
      DistributedDataParallel model(module, group, {.broadcast_buffers = on});
      count.fill_(group.rank() + 1);
      pass(model, {1});
      CHECK(number(count) == (on ? 1 : group.rank() + 1));
      count.fill_(group.rank() + 1);
      const auto local = model.no_sync();
      pass(model, {1});
      CHECK(number(count) == group.rank() + 1);
    });
}

TEST_CASE("several wrappers live side by side, and one that is gone leaves its module clean") {
  on_ranks(2, [](ProcessGroup group) {
    auto first = weighted({{2}}), second = weighted({{3}});
    auto a = std::make_unique<DistributedDataParallel<Weighted>>(first, group);
    auto b = std::make_unique<DistributedDataParallel<Weighted>>(second, group);
    (*a)(std::vector{filled(group.rank(), {2})})
        .add((*b)(std::vector{filled(group.rank(), {3})}))
        .backward();
    CHECK(all_are(first->p[0].grad(), 0.5));
    CHECK(all_are(second->p[0].grad(), 0.5));
    a.reset();
    CHECK(hooks_of(first->p[0]).empty());
    first->zero_grad();
    first->forward({filled(group.rank(), {2})}).backward();
    CHECK(all_are(first->p[0].grad(), group.rank()));
    // A fresh wrapper around the same module works.
    DistributedDataParallel again(first, group);
    first->zero_grad();
    pass(again, {double(group.rank())});
    CHECK(all_are(first->p[0].grad(), 0.5));
  });
}

TEST_CASE("comm.9.2: a parameter shared by two layers is reduced once (test_ddp_weight_sharing)") {
  struct Shared : nn::Module {
    Tensor w;
    explicit Shared(int64_t n) { w = register_parameter("w", ones({n})); }
    Tensor forward(double factor) { return (w * factor).sum() + (w * factor).sum(); }
  };
  for (const bool view : {false, true})
    for (const bool to_none : {false, true})
      on_ranks(2, [&](ProcessGroup group) {
        auto module = std::make_shared<Shared>(2048 * 8);
        DistributedDataParallel model(module, group,
                                      {.bucket_bytes = 65536, .gradient_as_bucket_view = view});
        for (int i = 0; i < 3; ++i) {
          module->zero_grad(to_none);
          model(group.rank() + 1.0).backward();
          CHECK(all_are(module->w.grad(), 3));
        }
      });
}

TEST_CASE("parameters with permuted strides keep them, in buckets and in grad()") {
  on_ranks(2, [](ProcessGroup group) {
    struct Transposed : nn::Module {
      Tensor w, b;
      Transposed() {
        w = register_parameter("w", arange(6, kFloat32).view({2, 3}).t());
        b = register_parameter("b", ones({4}));
      }
      Tensor forward(Tensor x) { return (w * x).sum() + b.sum(); }
    };
    auto module = std::make_shared<Transposed>();
    REQUIRE(module->w.stride(0) == 1);
    DistributedDataParallel model(module, group);
    std::vector<int64_t> strides;
    model.register_comm_hook([&](GradBucket& bucket) {
      for (const Tensor& g : bucket.gradients())
        if (g.dim() == 2) strides.assign(g.strides().begin(), g.strides().end());
      return dist::hooks::allreduce(bucket);
    });
    const Tensor x = arange(6, kFloat32).view({3, 2}) * (group.rank() + 1);
    model(x).backward();
    CHECK(strides == std::vector<int64_t>{1, 3});
    CHECK(allclose(module->w.grad(), arange(6, kFloat32).view({3, 2}) * 1.5));
  });
}

TEST_CASE(
    "comm.6.9: with reduced precision forward and backward run narrow, parameters and gradients "
    "stay wide") {
  on_ranks(2, [](ProcessGroup group) {
    auto module = weighted({{2}, {3}});
    DistributedDataParallel model(
        module, group,
        {.reduced_precision = DataParallelOptions::ReducedPrecision{kBFloat16, kFloat32}});
    CHECK_THROWS_AS(model.register_comm_hook(dist::hooks::allreduce), Error);
    for (int i = 0; i < 3; ++i) {
      model.zero_grad();
      const Tensor out = model(
          std::vector{filled(1 + group.rank(), {2}, kBFloat16), filled(1.0 / 3, {3}, kBFloat16)});
      CHECK(out.dtype() == kBFloat16);
      out.backward();
      CHECK(module->p[0].dtype() == kFloat32);
      CHECK(module->p[0].grad().dtype() == kFloat32);
      CHECK(all_are(module->p[0].grad(), 1.5));
      NoGradGuard off;
      module->p[0].sub_(module->p[0].grad() * 1e-4);
    }
    CHECK(number(module->p[0].detach()[0]) == doctest::Approx(1 - 4.5e-4));
  });
}

TEST_CASE("communication begins before the last gradient is there") {
  on_ranks(2, [](ProcessGroup group) {
    using Kind = dist::ReducerEvent::Kind;
    std::vector<std::pair<Kind, size_t>> trace;
    auto module = weighted({{64}, {64}, {64}, {64}});
    DistributedDataParallel model(
        module, group, {.bucket_bytes = 256, .on_event = [&](const dist::ReducerEvent& e) {
                          trace.emplace_back(e.kind, e.index);
                        }});
    pass(model, {1, 1, 1, 1});
    trace.clear();
    pass(model, {1, 1, 1, 1});
    const auto at = [&](Kind kind, size_t i) {
      return std::find(trace.begin(), trace.end(), std::pair{kind, i}) - trace.begin();
    };
    CHECK(at(Kind::launch, 0) < at(Kind::grad_ready, 0));
    CHECK(at(Kind::launch, 2) < at(Kind::grad_ready, 0));
    CHECK(at(Kind::written, 0) > at(Kind::launch, 3));
    CHECK(trace.size() == 12);
  });
}

TEST_CASE("comm.7: the wrapper's own state goes on where it stopped") {
  on_ranks(2, [](ProcessGroup group) {
    const std::vector<std::vector<int64_t>> shapes{{20}, {20}, {20}};
    DistributedDataParallel model(weighted(shapes), group, {.bucket_bytes = 80});
    for (int i = 0; i < 3; ++i) pass(model, {1, 1, 1});
    const nn::StateDict state = model.wrapper_state();
    DistributedDataParallel other(weighted(shapes), group, {.bucket_bytes = 80});
    other.load_wrapper_state(state);
    CHECK(other.bucket_layout() == model.bucket_layout());
    CHECK(other.stats().iterations == 3);
    CHECK(other.stats().rebuilt);
    pass(other, {1, 2, 3});
    CHECK(grad_of(other, 2) == 3);
    CHECK(other.bucket_layout() == model.bucket_layout());
    CHECK(
        has(error_of<Error>([&] { other.load_wrapper_state(nn::StateDict()); }), "bucket_members"));
  });
}

TEST_CASE(
    "comm.5.1: without a hook gradients are divided by the number of ranks, then summed in their "
    "order") {
  if (dist::launched_by_mpi()) return;  // The order is the library's there.
  on_ranks(3, [](ProcessGroup group) {
    DistributedDataParallel model(one(), group);
    const double g[] = {1, 2, 4};
    pass(model, {g[group.rank()]});
    CHECK(model.module().p[0].grad().item<float>() == std::bit_cast<float>(0x40155556u));
  });
}

TEST_CASE("comm.5.3: a parameter used inside no_sync only still sends what it has accumulated") {
  on_ranks(2, [](ProcessGroup group) {
    DistributedDataParallel model(weighted({{1}, {1}}), group, {.find_unused_parameters = true});
    {
      const auto local = model.no_sync();
      pass(model, {1, group.rank() + 1.0});
    }
    model(std::vector<Tensor>{filled(1), Tensor()}).backward();
    CHECK(grad_of(model, 0) == 2);
    CHECK(grad_of(model, 1) == 1.5);
  });
}

TEST_CASE(
    "comm.9.2: a layer that is used later only is trained from then on "
    "(test_forward_backward_unused_parameters)") {
  on_ranks(2, [](ProcessGroup group) {
    auto module = weighted({{2}, {2}, {2}});
    DistributedDataParallel model(module, group, {.find_unused_parameters = true});
    optim::SGD optimizer(model.parameters(), 0.1);
    for (int i = 0; i < 3; ++i) {
      optimizer.zero_grad();
      model(std::vector<Tensor>{filled(1, {2}), filled(1, {2}),
                                i == 0 ? Tensor() : filled(group.rank() * 2, {2})})
          .backward();
      CHECK(module->p[2].grad().defined() == (i > 0));
      optimizer.step();
    }
    CHECK(number(module->p[2].detach()[0]) == doctest::Approx(0.8));
  });
}

TEST_CASE("join ends on all ranks, whatever one of them throws") {
  on_ranks(2, [](ProcessGroup group) {
    DistributedDataParallel model(one(), group);
    const auto body = [&] {
      if (group.rank() == 1) throw 7;
      pass(model, {1});
    };
    if (group.rank() == 1) CHECK_THROWS_AS(dist::join(model, body), int);
    else CHECK_THROWS_AS(dist::join(model, body), dist::CommError);
  });
}
