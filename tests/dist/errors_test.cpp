/// What goes wrong, and what is said about it: E1 to E18, and rules G and H of hooks.
#include <stdexcept>
#include <thread>

#include "weighted.h"

using namespace grapnel;
using namespace grapnel::test;
using dist::DistributedDataParallel;
namespace hooks = dist::hooks;

TEST_CASE("comm.E1: a second hook is refused, and the first stays") {
  on_ranks(2, [](ProcessGroup group) {
    for (int kind = 0; kind < 3; ++kind) {
      DistributedDataParallel model(one(), group);
      model.register_comm_hook(
          [](GradBucket& b) { return Future<Tensor>(full_like(b.buffer(), 42)); },
          {.name = "answer"});
      const std::string text = error_of<Error>([&] {
        if (kind == 0) model.register_comm_hook(dist::hooks::allreduce);
        if (kind == 1) model.register_builtin_comm_hook("fp16_compress");
        if (kind == 2)
          model.register_optimizer_in_backward(
              std::make_shared<optim::SGD>(model.parameters(), 0.1));
      });
      CHECK(has(text, "answer is registered already"));
      pass(model, {1});
      CHECK(grad_of(model) == 42);
    }
  });
}

TEST_CASE("comm.E2: an empty callable is refused where it is registered") {
  on_ranks(1, [](ProcessGroup group) {
    DistributedDataParallel model(one(), group);
    CHECK(has(error_of<Error>(
                  [&] { model.register_comm_hook(std::function<Future<Tensor>(GradBucket&)>()); }),
              "the hook is empty"));
  });
}

TEST_CASE("comm.E3: every signature that is meant to work does") {
  on_ranks(1, [](ProcessGroup group) {
    struct Counter {
      int calls = 0;
    };
    const auto count = [](Counter& c, GradBucket& b) {
      ++c.calls;
      return Future<Tensor>(b.buffer());
    };
    Counter mine;
    auto shared = std::make_shared<Counter>();
    const auto run = [&](auto&& state, auto hook) {
      DistributedDataParallel model(one(), group);
      model.register_comm_hook(std::forward<decltype(state)>(state), hook);
      pass(model, {1});
    };
    run(std::ref(mine), count);
    run(shared, count);
    run(Counter(), count);
    run(group, dist::hooks::allreduce);
    CHECK(mine.calls == 1);
    CHECK(shared->calls == 1);
    DistributedDataParallel model(one(), group);
    model.register_comm_hook([](const GradBucket& b) { return Future<Tensor>(b.buffer()); });
    pass(model, {1});
  });
}

TEST_CASE("comm.E4: an empty future is an error that names the bucket") {
  on_ranks(2, [](ProcessGroup group) {
    DistributedDataParallel model(one(), group);
    model.register_comm_hook([](GradBucket&) { return Future<Tensor>(); }, {.name = "hollow"});
    const std::string text = error_of<Error>([&] { pass(model, {1}); });
    CHECK(has(text, "bucket 0, comm hook hollow"));
    CHECK(has(text, str("[rank ", group.rank(), " of 2]")));
  });
}

TEST_CASE("comm.E5: registration after the first backward is refused") {
  on_ranks(2, [](ProcessGroup group) {
    DistributedDataParallel model(one(), group);
    pass(model, {1});
    CHECK(has(error_of<Error>([&] { model.register_comm_hook(dist::hooks::allreduce); }),
              "before training"));
  });
}

TEST_CASE("comm.E6: a result of another length is an error with both counts") {
  on_ranks(2, [](ProcessGroup group) {
    DistributedDataParallel model(weighted({{3}}), group);
    model.register_comm_hook([](GradBucket&) { return Future<Tensor>(zeros({5})); });
    const std::string text = error_of<Error>([&] { pass(model, {1}); });
    CHECK(has(text, "bucket 0"));
    if (text.find("gave up") == std::string::npos)
      CHECK(has(text, "has 5 elements, the bucket has 3"));
    CHECK(all_are(model.module().p[0].grad(), 1));
  });
}

TEST_CASE("comm.E7: an unknown built-in hook is an error that lists those there are") {
  on_ranks(1, [](ProcessGroup group) {
    DistributedDataParallel model(one(), group);
    const std::string text =
        error_of<Error>([&] { model.register_builtin_comm_hook("fp12_compress"); });
    CHECK(has(text, "'fp12_compress'"));
    CHECK(has(text, "fp16_compress"));
    for (const char* name : {"allreduce", "fp16_compress", "bf16_compress", "quantize_per_tensor",
                             "quantize_per_channel", "noop"}) {
      DistributedDataParallel other(one(), group);
      other.register_builtin_comm_hook(name);
      pass(other, {2});
      CHECK(grad_of(other) == doctest::Approx(2));
    }
  });
}

TEST_CASE("comm.E8: ranks with different numbers of parameters are refused, on all ranks") {
  on_ranks(3, [](ProcessGroup group) {
    auto module = group.rank() == 2 ? weighted({{2}, {3}}) : weighted({{2}});
    const std::string text = error_of<Error>([&] { DistributedDataParallel model(module, group); });
    CHECK(has(text, "rank 0 has 1 parameters that require grad, rank 2 has 2"));
    CHECK(has(text, "Rank 0 lacks p1."));
    // Nothing is broken: equal modules can be wrapped.
    DistributedDataParallel model(one(), group);
    pass(model, {double(group.rank())});
    CHECK(grad_of(model) == doctest::Approx(1));
  });
}

TEST_CASE("the parameters that differ are named, those of either side") {
  on_ranks(2, [](ProcessGroup group) {
    struct Net : nn::Module {
      explicit Net(const std::vector<std::string>& names) {
        for (const std::string& name : names) register_parameter(name, ones({1}));
      }
    };
    const auto make = [&] {
      DistributedDataParallel model(
          std::make_shared<Net>(group.rank() == 0
                                    ? std::vector<std::string>{"a", "shared", "b"}
                                    : std::vector<std::string>{"shared", "other"}),
          group);
    };
    const std::string text = error_of<Error>(make);
    CHECK(has(text, "rank 0 has 3 parameters that require grad, rank 1 has 2."));
    CHECK(has(text, "Rank 1 lacks a, b."));
    CHECK(has(text, "Rank 0 lacks other."));
  });
}

TEST_CASE("comm.E9: ranks with different shapes, strides or types are refused, on all ranks") {
  for (int kind = 0; kind < 4; ++kind)
    on_ranks(2, [&](ProcessGroup group) {
      const bool odd = group.rank() == 1;
      auto module = weighted({{2},
                              odd && kind == 0   ? std::vector<int64_t>{4, 3}
                              : odd && kind == 3 ? std::vector<int64_t>{12}
                                                 : std::vector<int64_t>{3, 4}});
      if (odd && kind == 1) module->p[1].set_data(zeros({4, 3}).t());
      if (odd && kind == 2) module->p[1].set_data(zeros({3, 4}, kFloat64));
      const std::string text =
          error_of<Error>([&] { DistributedDataParallel model(module, group); });
      CHECK(has(text, "parameter 1 (p1) of rank 1"));
      CHECK(has(text, "f32 of shape [3, 4] and strides [4, 1]"));
    });
}

TEST_CASE("comm.E10: a parameter that gets its gradient twice is named, with likely causes") {
  struct Nested : nn::Module {
    Tensor a;
    Nested() { a = register_parameter("a", ones({2})); }
    Tensor forward(Tensor x) {
      const Tensor y = x * a;
      y.register_hook([this](const Tensor&) {
        EnableGradGuard on;
        (a * 2.0).sum().backward();
      });  // a pass inside the pass
      return y.sum();
    }
  };
  on_ranks(2, [](ProcessGroup group) {
    DistributedDataParallel model(std::make_shared<Nested>(), group);
    const std::string text = error_of<Error>([&] { model(ones({2})).backward(); });
    CHECK(has(text, "parameter a got its gradient twice"));
    CHECK(has(text, "static_graph"));
  });
}

TEST_CASE(
    "comm.E11: gradients that are missing when the next forward starts are named, with advice") {
  on_ranks(2, [](ProcessGroup group) {
    DistributedDataParallel model(weighted({{1}, {1}, {1}}), group);
    model(std::vector<Tensor>{filled(1), Tensor(), filled(1)}).backward();
    const std::string text = error_of<Error>([&] { pass(model, {1, 1, 1}); });
    CHECK(has(text, "Missing: p1."));
    CHECK(has(text, "find_unused_parameters"));
    // reset makes the wrapper usable again.
    model.reset(group);
    model.zero_grad();
    pass(model, {1, 1, 1});
    CHECK(grad_of(model, 1) == 1);
  });
}

TEST_CASE("comm.E12: a module that was converted after wrapping is noticed") {
  on_ranks(2, [](ProcessGroup group) {
    DistributedDataParallel model(one(), group);
    model.module().to(kFloat64);
    const std::string text = error_of<Error>([&] { pass(model, {1}); });
    CHECK(has(text, "the gradient of p0 is f64, its bucket f32"));
  });
}

TEST_CASE("a gradient of another shape than its place in the bucket is neither stretched nor cut") {
  on_ranks(2, [](ProcessGroup group) {
    DistributedDataParallel model(weighted({{2, 3}}), group);
    model.module().p[0].set_data(zeros({3}));
    const std::string text = error_of<Error>([&] { pass(model, {1}); });
    CHECK(has(text, "has shape [3], its place in the bucket [2, 3]"));
  });
}

TEST_CASE(
    "comm.E13: a wrapper with explicit buckets checks them (test_multi_dtype_single_bucket)") {
  on_ranks(1, [](ProcessGroup group) {
    auto module = weighted({{2}, {2}});
    module->p[1].set_data(zeros({2}, kFloat64));
    CHECK(has(error_of<Error>(
                  [&] { DistributedDataParallel model(module, group, {.buckets = {{0, 1}}}); }),
              "mixes types"));
    CHECK(has(error_of<Error>([&] {
                DistributedDataParallel model(module, group, {.buckets = {{0}, {}, {1}}});
              }),
              "empty"));
    DistributedDataParallel model(module, group, {.buckets = {{0}, {1}}});
    model(std::vector{filled(1, {2}), filled(2, {2}, kFloat64)}).backward();
    CHECK(all_are(module->p[1].grad(), 2));
    DistributedDataParallel single(weighted({{2}, {2}}), group, {.buckets = {{0, 1}}});
    pass(single, {1, 1});
  });
}

TEST_CASE("comm.E14: buckets cannot be laid out during a backward pass") {
  on_ranks(1, [](ProcessGroup group) {
    DistributedDataParallel model(one(), group);
    std::string text;
    model.module().p[0].register_hook(
        [&](const Tensor&) { text = error_of<Error>([&] { model.reset(group); }); });
    pass(model, {1});
    CHECK(has(text, "a backward pass is under way"));
  });
}

TEST_CASE("comm.E15: a graph cannot be declared static after training began") {
  on_ranks(2, [](ProcessGroup group) {
    DistributedDataParallel model(one(), group);
    pass(model, {1});
    CHECK(has(error_of<Error>([&] { model.set_static_graph(); }), "training has begun"));
    DistributedDataParallel other(one(), group, {.static_graph = true});
    pass(other, {1});
    CHECK_NOTHROW(other.set_static_graph());
  });
}

TEST_CASE("comm.E16: a hook that throws on one rank ends the pass on all of them, and says where") {
  on_ranks(3, [](ProcessGroup group) {
    DistributedDataParallel model(weighted({{1}, {2}}), group, {.buckets = {{1}, {0}}});
    model.module().p[0].set_grad(filled(100));
    model.register_comm_hook(
        [&](GradBucket& bucket) -> Future<Tensor> {
          if (bucket.index() == 1 && group.rank() == 1) throw std::out_of_range("seven");
          return dist::hooks::allreduce(bucket);
        },
        {.name = "unlucky"});
    if (group.rank() == 1) {
      bool nested = false;
      try {
        pass(model, {1, 1});
        CHECK(false);
      } catch (const dist::CommHookError& e) {
        CHECK(has(e.what(), "[rank 1 of 3] bucket 1, comm hook unlucky: seven"));
        try {
          std::rethrow_if_nested(e);
        } catch (const std::out_of_range&) {
          nested = true;
        }
      }
      CHECK(nested);
    } else {
      const std::string text = error_of<dist::CommAborted>([&] { pass(model, {1, 1}); });
      CHECK(has(text, "seven"));
      CHECK(has(text, "comm hook unlucky"));
    }
    // Bucket 1 was never finished: its gradient is the local one on top of what was there.
    CHECK(grad_of(model, 0) == 101);
    CHECK(has(error_of<Error>([&] { pass(model, {1, 1}); }), "has to be reset"));
  });
}

TEST_CASE(
    "comm.D10: a callback that throws on one rank ends the pass on all; a new group and wrapper "
    "work") {
  on_ranks(2, [](ProcessGroup group) {
    auto module = one();
    {
      DistributedDataParallel model(module, group);
      model.register_comm_hook([&](GradBucket& bucket) {
        return dist::hooks::allreduce(bucket)
            .then([&](const Tensor& t) -> Tensor {
              if (group.rank() == 1) throw Error("no");
              return t;
            })
            .then(
                [group = bucket.group()](const Tensor& t) { return group.all_reduce(t).single(); });
      });
      CHECK_THROWS_AS(pass(model, {1}), Error);
      CHECK(group.aborted());
    }
    const ProcessGroup fresh = group.renew();
    DistributedDataParallel model(module, fresh);
    model.zero_grad();
    pass(model, {group.rank() + 1.0});
    CHECK(grad_of(model) == 1.5);
    CHECK(!fresh.aborted());
  });
}

TEST_CASE("comm.F3: when backward throws, no callback of the hook runs any more") {
  on_ranks(2, [](ProcessGroup group) {
    std::atomic<int> running{0};
    DistributedDataParallel model(weighted({{1}, {1}, {1}}), group, {.buckets = {{2}, {1}, {0}}});
    model.register_comm_hook([&](GradBucket& bucket) {
      ++running;
      const size_t index = bucket.index();
      return dist::hooks::allreduce(bucket).then([&running, index](Future<Tensor> f) {
        std::this_thread::sleep_for(10ms);
        --running;
        if (index == 0) throw Error("first");
        return f.value();
      });
    });
    CHECK_THROWS_AS(pass(model, {1, 1, 1}), Error);
    CHECK(running == 0);
  });
}

TEST_CASE(
    "comm.F3: the wrapper that failed works again after reset with a new group, hook included") {
  on_ranks(2, [](ProcessGroup group) {
    DistributedDataParallel model(one(), group);
    bool bad = true;
    model.register_comm_hook([&](GradBucket& bucket) {
      if (bad) throw Error("once");
      return dist::hooks::allreduce(bucket);
    });
    CHECK_THROWS_AS(pass(model, {1}), Error);
    bad = false;
    CHECK(grad_of(model) == 1);  // not written
    model.reset(group.renew());
    model.zero_grad();
    pass(model, {group.rank() + 1.0});
    CHECK(grad_of(model) == 1.5);
  });
}

TEST_CASE("comm.F3: a bucket stays until its hook is done, although backward ended early") {
  on_ranks(1, [](ProcessGroup group) {
    for (const bool resets : {false, true}) {
      const auto late = Future<Tensor>::make();
      std::thread completes;
      auto module = weighted({{1}, {1}});
      {
        DistributedDataParallel model(module, group, {.buckets = {{1}, {0}}});
        auto optimizer = std::make_shared<optim::SGD>(model.parameters(), 0.1);
        model.register_comm_hook(dist::hooks::hook_then_optimizer(
            [&](GradBucket& bucket) {
              completes = std::thread([late, buffer = bucket.buffer()] {
                std::this_thread::sleep_for(30ms);
                late.set_result(buffer);
              });
              return late;
            },
            optimizer));
        module->p[0].register_hook([](const Tensor&) { throw Error("mine"); });
        CHECK(has(error_of<Error>([&] { pass(model, {1, 1}); }), "mine"));
        group = group.renew();
        if (resets) {
          model.reset(group);
          CHECK(late.done());
        }
      }
      CHECK(late.done());
      completes.join();
      CHECK(number(module->p[1].detach()) == doctest::Approx(0.9));
    }
  });
}

TEST_CASE(
    "comm.E17: a rank that stops taking part: the others get a timeout, gradients stay, and a "
    "checkpoint can be made") {
  if (dist::launched_by_mpi())
    return;  // After a timeout MPI cannot be ended properly; see check_faults.py.
  on_ranks(3, [](ProcessGroup group) {
    DistributedDataParallel model(weighted({{1}, {2}}), group, {.buckets = {{1}, {0}}});
    pass(model, {1, 1});
    model.zero_grad();
    group.set_timeout(150ms);
    if (group.rank() == 2) return;
    const std::string text = error_of<dist::CommError>([&] { pass(model, {5, 5}); });
    CHECK(has(text, "bucket 0"));
    CHECK(has(text, "all_reduce"));
    CHECK(grad_of(model, 0) == 5);
    CHECK(grad_of(model, 1) == 5);
    CHECK(model.state_dict().size() == 2);
  });
}

TEST_CASE("comm.G1: with a hook the buffer holds undivided local gradients") {
  on_ranks(2, [](ProcessGroup group) {
    DistributedDataParallel model(weighted({{2}, {3}}), group);
    Tensor seen;
    model.register_comm_hook([&](GradBucket& bucket) {
      seen = bucket.buffer().clone();
      CHECK(!bucket.buffer().requires_grad());
      CHECK(!GradMode::is_enabled());
      return dist::hooks::allreduce(bucket);
    });
    pass(model, {group.rank() + 1.0, 7});
    CHECK(equal(seen, cat({filled(group.rank() + 1.0, {2}), filled(7, {3})})));
  });
}

TEST_CASE("comm.G2: parts of unused parameters are zero") {
  on_ranks(2, [](ProcessGroup group) {
    DistributedDataParallel model(weighted({{2}, {3}}), group, {.find_unused_parameters = true});
    std::vector<Tensor> seen;
    model.register_comm_hook([&](GradBucket& bucket) {
      seen = {bucket.buffer().clone()};
      return dist::hooks::allreduce(bucket);
    });
    model.module().p[1].set_grad(filled(9, {3}));
    model(std::vector<Tensor>{filled(1, {2}), Tensor()}).backward();
    CHECK(equal(seen[0], cat({filled(1, {2}), filled(0, {3})})));
  });
}

TEST_CASE("comm.G3: gradients are views of the current buffer in the parameters' shapes") {
  on_ranks(1, [](ProcessGroup group) {
    DistributedDataParallel model(weighted({{2, 2}, {3}}), group);
    model.register_comm_hook([&](GradBucket& bucket) {
      CHECK(bucket.gradients().size() == 2);
      CHECK(bucket.gradients()[0].shape() == Shape{2, 2});
      CHECK(bucket.parameters()[1].is_same(model.module().p[1]));
      bucket.gradients()[1].fill_(5);
      CHECK(number(bucket.buffer()[4]) == 5);
      const Tensor other = zeros({7}, kFloat64);
      bucket.set_buffer(other);
      CHECK(bucket.gradients()[0].is_alias_of(other));
      CHECK(has(error_of<Error>([&] { bucket.set_buffer(zeros({6})); }),
                "has 7 elements, the new buffer has 6"));
      return Future<Tensor>(bucket.buffer() + 1);
    });
    pass(model, {1, 1});
    CHECK(all_are(model.module().p[0].grad(), 1));
  });
}

TEST_CASE("comm.G4: buffers are used again by the next pass") {
  on_ranks(1, [](ProcessGroup group) {
    DistributedDataParallel model(one(), group, {.buckets = {{0}}});
    std::vector<Tensor> kept;
    model.register_comm_hook([&](GradBucket& bucket) {
      kept.push_back(bucket.buffer());
      return Future<Tensor>(bucket.buffer());
    });
    for (double g : {1.0, 2.0}) {
      model.zero_grad();
      pass(model, {g});
    }
    CHECK(kept[0].is_alias_of(kept[1]));
    CHECK(number(kept[0]) == 2);
  });
}

TEST_CASE("comm.H1: the hook runs on the backward thread, in order, once per bucket and pass") {
  on_ranks(2, [](ProcessGroup group) {
    const auto here = std::this_thread::get_id();
    std::vector<size_t> order;
    DistributedDataParallel model(weighted({{1}, {1}, {1}}), group, {.buckets = {{2}, {1}, {0}}});
    model.register_comm_hook([&](GradBucket& bucket) {
      CHECK(std::this_thread::get_id() == here);
      order.push_back(bucket.index());
      return dist::hooks::allreduce(bucket);
    });
    for (int i = 0; i < 2; ++i) pass(model, {1, 1, 1});
    CHECK(order == std::vector<size_t>{0, 1, 2, 0, 1, 2});
  });
}

TEST_CASE("comm.H2: a result of any shape with the right number of elements is copied") {
  on_ranks(2, [](ProcessGroup group) {
    DistributedDataParallel model(weighted({{2, 2}}), group);
    model.register_comm_hook(
        [](GradBucket&) { return Future<Tensor>(arange(4, kFloat32).view({2, 2}).t()); });
    pass(model, {1});
    CHECK(equal(model.module().p[0].grad(), tensor({{0.0, 2.0}, {1.0, 3.0}})));
  });
}

TEST_CASE("comm.H3: a hook that does not communicate returns a complete future") {
  on_ranks(2, [](ProcessGroup group) {
    DistributedDataParallel model(one(), group);
    model.register_comm_hook([](GradBucket& bucket) { return Future<Tensor>(bucket.buffer()); });
    pass(model, {group.rank() + 1.0});
    CHECK(grad_of(model) == group.rank() + 1);
  });
}

TEST_CASE(
    "comm.H4: collectives of callbacks may come in any order of buckets, but agree within each") {
  on_ranks(3, [](ProcessGroup group) {
    std::vector<std::vector<int64_t>> shapes(6, {2});
    DistributedDataParallel model(weighted(shapes), group,
                                  {.buckets = {{5}, {4}, {3}, {2}, {1}, {0}}});
    model.register_comm_hook([](GradBucket& bucket) {
      return dist::hooks::allreduce(bucket).then([group = bucket.group()](const Tensor& t) {
        return group.all_reduce(t.clone()).single().wait();
      });
    });
    for (int i = 0; i < 5; ++i) {
      model.zero_grad();
      pass(model, {1, 2, 3, 4, 5, 6});
      CHECK(grad_of(model, 3) == 12);
    }
  });
}

TEST_CASE(
    "comm.H5: the hook stays for the wrapper's whole life, also when buckets are laid out anew") {
  on_ranks(2, [](ProcessGroup group) {
    DistributedDataParallel model(weighted({{1}, {1}}), group, {.bucket_bytes = 4});
    size_t calls = 0;
    model.register_comm_hook([&](GradBucket& bucket) {
      ++calls;
      return dist::hooks::allreduce(bucket);
    });
    for (int i = 0; i < 3; ++i) pass(model, {1, 1});
    CHECK(calls == 1 + 2 + 2);
    CHECK(model.stats().rebuilt);
  });
}

TEST_CASE("gradients with the same bits for 1, 2 and 4 ranks") {
  if (dist::launched_by_mpi()) return;
  std::vector<Tensor> weights;
  for (int ranks : {1, 2, 4}) {
    std::vector<Tensor> ends(static_cast<size_t>(ranks));
    dist::run_threads(ranks, [&](ProcessGroup group) {
      Generator draws(5);
      const Tensor x = randn({16, 6}, draws), y = randn({16, 3}, draws);
      nn::Linear fc(6, 3);
      {
        NoGradGuard off;
        fc->weight.copy_(randn({3, 6}, draws));
        fc->bias.zero_();
      }
      DistributedDataParallel model(fc, group);
      optim::SGD optimizer(model.parameters(), optim::SGDOptions(0.05).momentum(0.9));
      for (int step = 0; step < 100; ++step) {
        dist::backward_by_micro_batches(model, 4, [&](int64_t i) {
          mse_loss(model(x.narrow(0, 4 * i, 4)), y.narrow(0, 4 * i, 4)).backward();
        });
        optimizer.step();
      }
      ends[static_cast<size_t>(group.rank())] = fc->weight.detach().clone();
    });
    for (const Tensor& w : ends) CHECK(equal(w, ends[0]));
    weights.push_back(ends[0]);
  }
  CHECK(equal(weights[0], weights[1]));
  CHECK(equal(weights[0], weights[2]));
  CHECK(has(error_of<Error>([] {
              dist::run_threads(3, [](ProcessGroup group) {
                DistributedDataParallel model(one(), group);
                dist::backward_by_micro_batches(model, 4, [](int64_t) {});
              });
            }),
            "powers of two"));
}
