/// Calls that are planned with the call that reads them: see Note [Waiting calls] in compile/plan.h.
#include "grapnel/base/allocator.h"
#include "grapnel/optim/in_backward.h"
#include "tests/compile/plans.h"
#include "tests/ops/sweep.h"

using namespace grapnel;

namespace {

/// Peak of memory of the third step of `layers` layers of 256, with the optimiser in the backward
/// pass.
template <class Activation>
size_t peak_of_steps(int layers, bool captured, bool compiled_backward) {
  reset_compile_cache();
  compiler::pass_options().background_kernels = false;
  const ThreadsScope one(1);  // how many threads have scratch memory at once is chance
  manual_seed(4);
  nn::Sequential net;
  for (int i = 0; i < layers; ++i) {
    net->push_back(nn::Linear(nn::LinearOptions(256, 256).bias(false)));
    net->push_back(Activation());
  }
  optim::SGD opt(net->parameters(), optim::SGDOptions(1e-3));
  const optim::StepInBackward stepping(opt);
  std::optional<CompiledBackward> scope;
  if (compiled_backward) scope.emplace();
  const auto step = [&](const Tensor& x) {
    const Tensor loss = net(x).square().sum();
    loss.backward();
    return loss.detach();
  };
  auto compiled = compile(step);
  const Tensor x = randn({64, 256});  // a small batch: weights are larger than activations
  size_t peak = 0;
  for (int i = 0; i < 3; ++i) {
    const size_t before = memory_stats().in_use;
    reset_peak_memory();
    captured ? compiled(x) : step(x);
    opt.zero_grad();
    peak = memory_stats().peak - before;
  }
  return peak;
}

template <class Fn>
void check_bits(Fn fn) {
  reset_compile_cache();
  compiler::pass_options().background_kernels = false;
  const std::vector<Tensor> want = fn();
  auto f = compile(fn);
  for (int i = 0; i < 2; ++i) {
    const std::vector<Tensor> got = f();
    REQUIRE(got.size() == want.size());
    for (size_t k = 0; k < want.size(); ++k) CHECK(same_bits(got[k], want[k]));
  }
}

}  // namespace

TEST_CASE_TEMPLATE("a step with the optimiser in the backward pass needs no more memory than eager",
                   Activation, nn::Tanh, nn::Sigmoid, nn::ReLU, nn::GELU, nn::SiLU) {
  for (const int layers : {4, 12, 24}) {
    CAPTURE(layers);
    const size_t eager = peak_of_steps<Activation>(layers, false, false);
    CHECK(peak_of_steps<Activation>(layers, true, false) <= eager);
    CHECK(peak_of_steps<Activation>(layers, false, true) <= eager);
    CHECK(peak_of_steps<Activation>(layers, true, true) <= eager);
  }
}

TEST_CASE("a factor of a gradient is computed where the gradient is, not with the forward pass") {
  manual_seed(5);
  const Tensor x = randn({8, 8}), w = randn({8, 8}), narrow = randn({8, 3});
  const auto factor_of = [&](auto factor) {
    return [&, factor] {
      const Tensor y = tanh(x.matmul(w));
      const Tensor g = y.matmul(w).exp().matmul(w), other = y.matmul(narrow);
      return std::vector<Tensor>{g * factor(y), other};
    };
  };
  const auto chain = factor_of([](const Tensor& y) { return 1.0 - y * y; });
  CHECK(planned(chain).str() == "[matmul tanh] [matmul exp] [matmul mul sub mul] matmul");
  check_bits(chain);
  // Smaller than what it is made of: it is stored, and y is not kept for it.
  const auto mask = factor_of([](const Tensor& y) { return y > 0.0; });
  CHECK(planned(mask).str() == "[matmul tanh gt] [matmul exp] [matmul mul] matmul");
  check_bits(mask);
  // Two tensors would be kept for one.
  const auto two = factor_of([&](const Tensor& y) { return y * x; });
  CHECK(planned(two).str() == "[matmul tanh mul] [matmul exp] [matmul mul] matmul");
  check_bits(two);
}

TEST_CASE("a call waits for one call, which sees what the first saw when it was called") {
  manual_seed(6);
  const Tensor x = randn({8, 8}), w = randn({8, 8}), narrow = randn({8, 3});
  struct Step {
    Tensor y, g, other, factor;
  };
  const auto begin = [&] {
    const Tensor y = tanh(x.matmul(w)), g = y.matmul(w).exp().matmul(w), other = y.matmul(narrow);
    return Step{y, g, other, 1.0 - y};
  };
  const auto twice = [&] {
    const auto [y, g, other, factor] = begin();
    return std::vector<Tensor>{g * factor, g.matmul(factor), other};
  };
  CHECK(planned(twice).str() == "[matmul tanh sub] [matmul exp] [matmul mul] matmul matmul");
  check_bits(twice);
  const auto kept = [&] {
    const auto [y, g, other, factor] = begin();
    return std::vector<Tensor>{g * factor, other, factor};
  };
  CHECK(planned(kept).str() == "[matmul tanh sub] [matmul exp] [matmul mul] matmul");
  check_bits(kept);
  const auto as_operand = [&] {
    const auto [y, g, other, factor] = begin();
    return std::vector<Tensor>{g.matmul(factor), other};
  };
  CHECK(planned(as_operand).str() == "[matmul tanh sub] [matmul exp] matmul matmul matmul");
  check_bits(as_operand);
  const auto in_other_order = [&] {
    const auto [y, g, other, factor] = begin();
    return std::vector<Tensor>{g * factor.t(), other};
  };
  check_bits(in_other_order);
  const auto overwritten = [&] {
    const auto [y, g, other, factor] = begin();
    Tensor(y).mul_(3.0);
    return std::vector<Tensor>{g * factor, other, y.matmul(w)};
  };
  CHECK(planned(overwritten).str() ==
        "[matmul tanh sub] [matmul exp] matmul matmul [mul mul] matmul");
  check_bits(overwritten);
  const auto into_its_source = [&] {
    const auto [y, g, other, factor] = begin();
    Tensor(y).mul_(factor);
    return std::vector<Tensor>{g, other, y.matmul(w)};
  };
  CHECK(planned(into_its_source).str() ==
        "[matmul tanh sub] [matmul exp] matmul matmul [mul]> matmul");
  check_bits(into_its_source);
  const auto into_another = [&] {
    const auto [y, g, other, factor] = begin();
    Tensor(g).mul_(factor);
    return std::vector<Tensor>{g.matmul(w), other};
  };
  CHECK(planned(into_another).str() == "[matmul tanh] [matmul exp] [matmul sub mul] matmul matmul");
  check_bits(into_another);
}

TEST_CASE("no call waits past an opaque one") {
  manual_seed(7);
  const Tensor w = randn({8, 8}), narrow = randn({8, 3}), start = randn({8, 8});
  Tensor outside = start.clone();
  const auto writing = [&](const Tensor& what) {
    return opaque([&outside, what](const Tensor& t) {
      outside.copy_(what);
      return t.clone();
    });
  };
  const auto step = [&] {
    const Tensor y = outside * 2.0;
    const Tensor g = y.matmul(w).exp().matmul(w), other = y.matmul(narrow), factor = 1.0 - outside;
    const Tensor result = invoke(writing(w), g) * factor;
    return std::vector<Tensor>{invoke(writing(start), result), other, y};
  };
  check_bits(step);
}
