/// Programs on a device give the same bits in every mode, and those of the CPU.
#include <cstdlib>

#include "tests/compile/backends.h"
#include "tests/compile/random_program.h"
#include "tests/mock_device/mock_device.h"

using namespace grapnel;

namespace {

struct OnDevice {
  OnDevice() {
    mock::install();
    set_default_device(kCUDA);
  }
  ~OnDevice() { set_default_device(kCPU); }
};

struct Outcome {
  std::vector<Tensor> tensors;
  bool failed = false;
};

template <class Run>
Outcome outcome_of(const RandomProgram& program, Run&& run) {
  manual_seed(5);
  Outcome result;
  try {
    for (const Tensor& t : run(program.inputs())) result.tensors.push_back(t.cpu());
  } catch (const Error&) {
    result.failed = true;
  }
  return result;
}

void check_same(const Outcome& got, const Outcome& want) {
  REQUIRE(got.failed == want.failed);
  if (want.failed) return;
  REQUIRE(got.tensors.size() == want.tensors.size());
  for (size_t i = 0; i < want.tensors.size(); ++i) {
    CAPTURE(i);
    CHECK(same_bits(got.tensors[i], want.tensors[i]));
  }
}

}  // namespace

TEST_CASE("random programs on a device give the CPU's bits: eager, on each backend, replayed") {
  const char* const more = std::getenv("GRAPNEL_FUZZ_PROGRAMS");
  const uint64_t count = more ? std::strtoull(more, nullptr, 10) : 200;
  uint64_t replayed = 0;
  for (uint64_t seed = 1; seed <= count; ++seed) {
    CAPTURE(seed);
    const RandomProgram program(seed);
    const auto eager = [&](std::vector<Tensor> in) { return program.run(std::move(in)); };
    const Outcome want = outcome_of(program, eager);
    const OnDevice there;
    const uint64_t calls = mock::counts().calls;
    check_same(outcome_of(program, eager), want);
    CHECK(mock::counts().calls > calls);
    for (const Backend backend : kBackends) {
      CAPTURE(name(backend));
      CompileOptions options;
      options.backend = backend;
      auto f = compile(eager, options);
      check_same(outcome_of(program, f), want);
      CHECK(f.stats().fallbacks == 0);
    }
    CompileOptions options;
    options.replay = true;
    auto f = compile(eager, options);
    for (int i = 0; i < 2; ++i) {
      const Outcome got = outcome_of(program, f);
      if (got.failed) break;  // it writes to its arguments or draws numbers, which is refused
      ++replayed;
      check_same(got, want);
    }
    if (seed % 64 == 0) reset_compile_cache();
  }
  CHECK(replayed > count / 10);
}

TEST_CASE("a function that is replayed on a device gives what it gives in eager mode") {
  const OnDevice there;
  const auto step = [](const Tensor& x, const Tensor& w) {
    return (x.matmul(w).tanh() * 2).sum({0});
  };
  CompileOptions options;
  options.replay = true;
  auto f = compile(step, options);
  for (int i = 0; i < 4; ++i) {
    const Tensor x = randn({3, 4}), w = randn({4, 5});
    CHECK(same_bits(f(x, w), step(x, w)));
    CHECK(f(x, w).is_cuda());
  }
}

TEST_CASE("one function on two devices is two graphs") {
  mock::install();
  auto f = compile([](const Tensor& x) { return x * 2 + 1; });
  const Tensor x = ones({3});
  for (int i = 0; i < 2; ++i) {
    CHECK(f(x).is_cpu());
    CHECK(f(x.to(Device(kCUDA, 0))).device() == Device(kCUDA, 0));
    CHECK(f(x.to(Device(kCUDA, 1))).device() == Device(kCUDA, 1));
  }
  CHECK(f.stats().graphs == 3);
}

TEST_CASE("a step on a device is compiled whole: hooks, copies from the CPU, an optimiser") {
  mock::install();
  const auto train = [](bool compiled, Device device) {
    manual_seed(1);
    nn::Linear net(4, 3);
    net->to(device);
    optim::AdamW opt(net->parameters(), optim::AdamWOptions(0.1));
    int called = 0;
    net->weight.register_hook([&](const Tensor& g) {
      ++called;
      return g * 0.5;
    });
    const auto step = [&](const Tensor& x) {
      opt.zero_grad();
      net(x.to(device)).square().sum().backward();
      opt.step();
    };
    auto fast = compile(step);
    for (int i = 0; i < 4; ++i) {
      const Tensor x = arange(8, kFloat32).reshape({2, 4}) * 0.1;
      if (compiled) fast(x);
      else step(x);
    }
    CHECK(called == 4);
    return net->weight.detach().cpu();
  };
  const Tensor want = train(false, kCPU);
  CHECK(same_bits(train(false, kCUDA), want));
  CHECK(same_bits(train(true, kCUDA), want));
}

TEST_CASE("a compiled function whose operands change devices halfway runs on both") {
  mock::install();
  auto f = compile([](const Tensor& x) {
    const Tensor far = (x + 1).to(Device(kCUDA, 1)) * 3;
    return far.cpu() - 1;
  });
  CHECK(f(tensor({1.0, 2.0})).equal(tensor({5.0, 8.0})));
  CHECK(f.stats().graphs == 1);
  CHECK(f.stats().breaks == 0);
}
