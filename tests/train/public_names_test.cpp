/// The names that programs outside this repository are written against, spelt as they spell them.
#include <doctest/doctest.h>

#include "grapnel/grapnel.h"

using namespace grapnel;

namespace {
struct Doubling : FunctionPreHook {
  variable_list operator()(const variable_list& grads) override { return {grads[0] * 2}; }
};
struct Looking : FunctionPostHook {
  variable_list operator()(const variable_list& outputs, const variable_list&) override {
    return outputs;
  }
};
struct Counting : PostAccumulateGradHook {
  explicit Counting(int& n) : calls(n) {}
  void operator()(const Tensor&) override { ++calls; }
  int& calls;
};
}  // namespace

TEST_CASE("tensors and nodes take hooks under the pinned names") {
  int calls = 0;
  Tensor x = ones({3}, requires_grad());
  HookHandle doubled = x.register_hook([](const Tensor& g) { return g * 2; });
  x.register_hook([&](const Tensor&, const HookContext& context) { calls += 1 + context.depth; });
  x.register_hook([](const Tensor& g) -> std::optional<Tensor> { return g; });
  x.register_post_accumulate_grad_hook([&](Tensor) { ++calls; });
  x.register_post_accumulate_grad_hook([&](const Tensor&) { ++calls; });
  x.register_post_accumulate_grad_hook(std::make_unique<Counting>(calls));
  const unsigned number = doubled;
  x.remove_hook(HookHandle(number));

  Tensor y = x * x;
  y.retain_grad();
  const auto node = y.grad_fn();
  node->register_prehook([](const variable_list& grads) { return variable_list{grads[0]}; });
  node->register_prehook([](const variable_list&) {});
  node->register_hook(
      [](const variable_list& grad_inputs, const variable_list&) { return grad_inputs; });
  node->add_pre_hook(std::make_unique<Doubling>());
  node->add_post_hook(std::make_unique<Looking>());
  y.sum().backward({}, true, false, std::vector<Tensor>{x});
  CHECK(calls == 4);
  CHECK(x.grad().equal(full({3}, 4.0)));
  x.mutable_grad() = Tensor();
  x.set_grad(ones({3}));
  x.reset_grad();
  CHECK(!x.grad().defined());

  CHECK(autograd::grad({y.sum()}, {x}, {}, true, true, false).size() == 1);
  HookHandle all =
      register_multi_grad_hook({x, y}, [&](const variable_list&) { ++calls; }, MultiGrad::all);
  register_multi_grad_hook({x, y}, [&](const Tensor&) { ++calls; }, MultiGrad::any);
  all.remove();
  CHECK(!all.active());
  bool ended = false;
  y.register_hook([&](const Tensor&) { queue_callback([&] { ended = true; }); });
  y.sum().backward();
  CHECK(ended);

  const nn::Linear layer(3, 2);
  layer->register_forward_hook([](nn::Module&, const nn::Args&, const nn::Value&) {});
  const std::vector<HookInfo> of_tensor = hooks_of(x), of_node = hooks_of(node),
                              of_module = hooks_of(layer);
  CHECK(of_tensor.size() == 6);
  CHECK(of_node.size() == 7);
  CHECK(of_module.size() == 1);
  CHECK(name(of_module[0].kind) == "forward hook");
  const size_t before = hooks_of(x).size();
  {
    ScopedHook scoped = x.register_hook([](const Tensor&) {});
    CHECK(hooks_of(x).size() == before + 1);
  }
  CHECK(hooks_of(x).size() == before);

  int packed = 0;
  SavedTensorHooks scope([&](const Tensor& t) { return ++packed, t; },
                         [](const Tensor& t) { return t; });
  x* x;
  CHECK(packed == 2);
}

TEST_CASE("compiling has the pinned names") {
  auto f = compile([](Tensor t) { return t * 2 + 1; }, {.backend = Backend::fused,
                                                        .fullgraph = false,
                                                        .dynamic = true,
                                                        .replay = false,
                                                        .numerics = Numerics::exact,
                                                        .on_failure = OnFailure::fall_back});
  f.reset();
  CHECK(f(ones({4})).equal(full({4}, 3.0)));
  const CompileStats stats = f.stats();
  CHECK(stats.graphs + stats.hits >= 1);
  CHECK(stats.breaks == 0);
  CHECK(stats.compile_ms >= 0);
  CHECK(stats.miss_reasons.size() == static_cast<size_t>(stats.misses));
  CHECK(stats.break_reasons.empty());

  Tensor x = ones({3}, requires_grad());
  {
    CompiledBackward scope(CompileOptions{.backend = Backend::aot_eager});
    (x * x).sum().backward();
    CHECK(scope.stats().breaks == 0);
  }
  {
    CompiledBackward scope;
  }
  const Graph graph = trace([](Tensor t) { return t * 3; }, {ones({2})});
  CHECK(graph.str().find("mul") != std::string::npos);
  const Tensor doubled = invoke([](const Tensor& t) { return t * 2; }, ones({2}));
  CHECK(opaque([](const Tensor& t) { return t; })(doubled).equal(full({2}, 2.0)));
  CHECK(cond(
            tensor(true), [](const Tensor& t) { return t + 1; },
            [](const Tensor& t) { return t - 1; }, {doubled})
            .equal(full({2}, 3.0)));
}

TEST_CASE("data-parallel training has the pinned names") {
  CHECK(dist::init().size() == 1);
  dist::run_threads(2, [](dist::ProcessGroup group) {
    const auto gradient_with = [&](auto... hook) {
      nn::Linear layer(3, 2);
      dist::DistributedDataParallel model(layer, group, {});
      model.register_comm_hook(hook...);
      model(ones({1, 3})).sum().backward();
      return layer->weight.grad();
    };
    const auto mean = [](dist::GradBucket& bucket) -> dist::Future<Tensor> {
      return bucket.group().all_reduce(bucket.buffer()).single().then([](const Tensor& sum) {
        return sum / 2;
      });
    };
    CHECK(gradient_with(mean).equal(ones({2, 3})));
    CHECK(gradient_with(dist::hooks::fp16_compress).equal(ones({2, 3})));
    CHECK(gradient_with(nullptr, dist::hooks::fp16_compress).equal(ones({2, 3})));
  });
}
