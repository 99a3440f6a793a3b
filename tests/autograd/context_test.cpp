/// What code means on a thread is the same however deep passes are nested, and goes along with work
/// that other threads do.
#include "grapnel/base/context.h"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "grapnel/base/rank.h"
#include "grapnel/grapnel.h"
#include "tests/ops/error_text.h"

namespace grapnel {

namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Passes nested deeper than 60 go on with a fresh stack, those deeper than 120 with another one.
constexpr int kDepth = 130;

/// Calls fn() in a hook of a pass that is nested `depth` deep.
void in_nested_passes(int depth, const std::function<void()>& fn) {
  Tensor y;
  {
    const EnableGradGuard grad;
    y = ones({1}, requires_grad()) * 2;
  }
  y.register_hook([&](const Tensor&) {
    if (depth == 0) fn();
    else in_nested_passes(depth - 1, fn);
  });
  y.backward();
}

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const std::exception& e) {
    return e.what();
  }
  return {};
}

/// Back as it was, whatever a test left.
struct ContextKept {
  const Context before = this_context;
  ~ContextKept() {
    CHECK(this_context.modes == before.modes);
    CHECK(this_context.recorder == before.recorder);
    CHECK(this_context.pass == before.pass);
    CHECK(this_context.walks == before.walks);
    CHECK(this_context.place == before.place);
    CHECK(this_context.call_site == before.call_site);
    CHECK(this_context.module_site == before.module_site);
    CHECK(this_context.called_op == before.called_op);
    CHECK(this_context.declared == before.declared);
    CHECK(this_context.checkpoint == before.checkpoint);
    CHECK(this_context.generator == before.generator);
  }
};

struct Doubling : nn::Module {
  Tensor forward(const Tensor& x) { return x * 2; }
};

}  // namespace

TEST_CASE("a NaN guard sees what hooks of deeply nested passes compute") {
  const ContextKept kept;
  nn::Linear net(2, 2);
  hooks::NanGuard guard(*net);
  in_nested_passes(kDepth, [] {
    const EnableGradGuard grad;
    const Tensor zero = zeros({1}, requires_grad());
    const Tensor nan = zero / zero;
  });
  const auto found = guard.find();
  REQUIRE(found);
  CHECK(found->op == "div");
  CHECK(contains(found->where, "context_test.cpp:"));
}

TEST_CASE("module backward hooks fire in deeply nested passes, also for modules called there") {
  const ContextKept kept;
  int outside = 0, inside = 0;
  const auto net = std::make_shared<Doubling>();
  net->register_full_backward_hook(
      [&](nn::Module&, const variable_list&, const variable_list&) { ++outside; });
  Tensor x = ones({1}, requires_grad());
  const Tensor y = nn::call(*net, x * 1);
  in_nested_passes(kDepth, [&] {
    y.backward();
    const EnableGradGuard grad;
    const auto made_here = std::make_shared<Doubling>();
    made_here->register_full_backward_hook(
        [&](nn::Module&, const variable_list&, const variable_list&) { ++inside; });
    nn::call(*made_here, x * 1).backward();
  });
  CHECK(outside == 1);
  CHECK(inside == 1);
  CHECK(x.grad().item<double>() == 4);
}

TEST_CASE("Autocast opened in a deeply nested pass casts there, and nowhere else") {
  const ContextKept kept;
  const Tensor a = ones({2, 2});
  DType outside{}, inside{};
  in_nested_passes(kDepth, [&] {
    outside = matmul(a, a).dtype();
    const Autocast scope(kBFloat16);
    inside = matmul(a, a).dtype();
    in_nested_passes(kDepth, [&] { CHECK(matmul(a, a).dtype() == kFloat32); });
  });
  CHECK(outside == kFloat32);
  CHECK(inside == kBFloat16);
}

TEST_CASE("inference and grad mode reach deeply nested passes") {
  const ContextKept kept;
  const Tensor x = ones({1}, requires_grad());
  in_nested_passes(kDepth, [&] {
    CHECK(!(x * 2).requires_grad());
    const EnableGradGuard grad;
    CHECK((x * 2).requires_grad());
    const InferenceGuard inference;
    CHECK(ones({1}).impl().inference);
  });
}

TEST_CASE("a declared scope reaches deeply nested passes") {
  const ContextKept kept;
  const Lifted factor = 2.0;
  const CompiledNodeArgs args;
  const DeclaredScope declared(&args);
  in_nested_passes(
      kDepth, [&] { CHECK(contains(error_of([&] { (void)factor.value(); }), "has no value")); });
}

TEST_CASE(
    "errors in deeply nested passes name the user's line, the hook, the module and the rank") {
  const ContextKept kept;
  const base::Rank before = this_context.modes.rank;
  base::set_thread_rank({1, 3});
  in_nested_passes(kDepth, [&] {
    CHECK(base::this_rank().str() == "rank 1 of 3");
    const std::string text = error_of([] { matmul(ones({2, 3}), ones({2, 3})); });
    CHECK(contains(text, "context_test.cpp:"));
  });
  base::set_thread_rank(before);
  const std::string text =
      error_of([] { in_nested_passes(kDepth, [] { matmul(ones({2, 3}), ones({2, 3})); }); });
  CHECK(contains(text, "in the tensor hook registered at "));
}

TEST_CASE("saved-tensor hooks pack what deeply nested passes save") {
  const ContextKept kept;
  int packed = 0;
  const SavedTensorHooks hooks(
      [&](const Tensor& t) {
        ++packed;
        return t;
      },
      [](const Tensor& t) { return t; });
  const int before = packed;
  in_nested_passes(kDepth, [&] {
    const int so_far = packed;
    const EnableGradGuard grad;
    const Tensor x = ones({1}, requires_grad());
    const Tensor y = sin(x);
    CHECK(packed > so_far);
  });
  CHECK(packed > before);
}

TEST_CASE("a recording goes on in deeply nested passes") {
  const ContextKept kept;
  int inside = 0;
  auto step = compile([&](const Tensor& x) {
    Tensor out;
    in_nested_passes(kDepth, [&] {
      ++inside;
      out = x * 3;
    });
    return out;
  });
  CHECK(step(ones({2}))[0].item<double>() == 3);
  CHECK(inside == 1);
  CHECK(step.stats().breaks == 0);
}

TEST_CASE("pieces of parallel work have the modes of the caller") {
  const ContextKept kept;
  const NoGradGuard no_grad;
  const Autocast scope(kBFloat16);
  std::atomic<int> wrong = 0, pieces = 0;
  base::parallel_for(64, 1, [&](int64_t, int64_t) {
    ++pieces;
    wrong += GradMode::is_enabled() || Autocast::dtype() != kBFloat16;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  });
  CHECK(pieces == 64);
  CHECK(wrong == 0);
}

TEST_CASE("a callback of a future is meant as the code that asked for it, on whatever thread") {
  const ContextKept kept;
  const auto modes_in_callback = [](bool complete_before) {
    auto f = dist::Future<int>::make();
    if (complete_before) f.set_result(1);
    auto seen = f.then([](int) { return this_context.modes; });
    if (!complete_before) f.set_result(1);
    return seen.wait();
  };
  for (const bool complete_before : {false, true}) {
    CAPTURE(complete_before);
    CHECK(modes_in_callback(complete_before) == this_context.modes);
    const NoGradGuard no_grad;
    const Autocast scope(kFloat16);
    CHECK(modes_in_callback(complete_before) == this_context.modes);
  }
}

TEST_CASE("workers of a data loader work in the modes of the reader") {
  struct Counting final : data::Dataset {
    int64_t size() const override { return 8; }
    data::Example get(int64_t, Generator&) const override {
      return {matmul(ones({2, 2}), ones({2, 2})), {}};
    }
  };
  const ContextKept kept;
  const Autocast scope(kBFloat16);
  for (const int64_t workers : {0, 2}) {
    const data::DataLoader loader(std::make_shared<Counting>(),
                                  {.batch_size = 2, .workers = workers});
    for (const data::Example& batch : loader.epoch(0)) CHECK(batch.data.dtype() == kBFloat16);
  }
}

}  // namespace grapnel
