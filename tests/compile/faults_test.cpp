/// Failures of every stage, graphs of unusual form, caches that cannot be used: results stay right,
/// or there is an error that says why.
#include <filesystem>
#include <fstream>
#include <thread>

#include "grapnel/base/warn.h"
#include "grapnel/codegen/jit.h"
#include "tests/compile/plans.h"
#include "tests/ops/sweep.h"

using namespace grapnel;
using codegen::JitFault;
using compiler::PassOptions;
using compiler::Stage;

namespace {

Tensor work(const Tensor& x) {
  const Tensor e = (x * 0.5 + 1.0).exp();
  return e / e.sum({-1}, true);
}

/// Nothing compiled, in memory or on disk; machine code is waited for.
class FreshCaches {
 public:
  FreshCaches() {
    char name[] = "/tmp/grapnel-test-XXXXXX";
    folder = mkdtemp(name);
    setenv("GRAPNEL_CACHE_DIR", folder.c_str(), 1);
    compiler::pass_options().background_kernels = false;
    forget();
  }
  ~FreshCaches() {
    codegen::set_jit_fault_for_testing(JitFault::none);
    compiler::pass_options() = before_;
    forget();
    unsetenv("GRAPNEL_CACHE_DIR");
    std::error_code ignored;
    std::filesystem::permissions(folder, std::filesystem::perms::owner_all, ignored);
    std::filesystem::remove_all(folder, ignored);
  }
  static void forget() {
    reset_compile_cache();
    codegen::reset_jit_for_testing();
  }
  std::filesystem::path folder;

 private:
  const PassOptions before_ = compiler::pass_options();
};

}  // namespace

TEST_CASE("a compile that fails falls back to running call by call, with the same bits") {
  const Tensor x = rand({8, 30});
  for (const Stage stage : {Stage::passes, Stage::plan, Stage::kernels}) {
    CAPTURE(static_cast<int>(stage));
    const FreshCaches fresh;
    compiler::pass_options().fails = stage;
    auto f = compile(work);
    CHECK(f(x).equal(work(x)));
    CHECK(f(x).equal(work(x)));
    CHECK(f.stats().fallbacks == 1);
    CHECK(f.stats().hits == 1);
  }
}

TEST_CASE("with OnFailure::error a compile that fails is an error, and the next call tries again") {
  const Tensor x = rand({8, 30});
  for (const Stage stage : {Stage::passes, Stage::plan, Stage::kernels}) {
    CAPTURE(static_cast<int>(stage));
    const FreshCaches fresh;
    compiler::pass_options().fails = stage;
    auto f = compile(work, {.on_failure = OnFailure::error});
    CHECK_THROWS_WITH_AS(f(x), "compile: backend fused failed: a test asked for a failure.", Error);
    compiler::pass_options().fails = Stage::none;
    if (codegen::kernel_for({})->state() == codegen::Kernel::State::ready)
      CHECK(f(x).equal(work(x)));
  }
}

TEST_CASE("machine code that cannot be made is interpreted, or an error, whatever step fails") {
  const Tensor x = rand({8, 30});
  for (const JitFault fault : {JitFault::load, JitFault::compile, JitFault::link,
                               JitFault::disk_read, JitFault::disk_write}) {
    CAPTURE(static_cast<int>(fault));
    const FreshCaches fresh;
    codegen::set_jit_fault_for_testing(fault);
    auto f = compile(work);
    CHECK(f(x).equal(work(x)));
    auto strict = compile(work, {.on_failure = OnFailure::error});
    if (fault <= JitFault::link)
      CHECK_THROWS_WITH_AS(strict(x), doctest::Contains("No machine code for a fused group"),
                           Error);
  }
}

TEST_CASE("a graph of 10,000 calls compiles, in pieces that kernels can hold") {
  const FreshCaches fresh;
  const Tensor x = rand({100}), w = rand({100});
  auto run = [&] {
    Tensor y = x;
    for (int i = 0; i < 2000; ++i) y = ((y * w + 0.5).tanh() - x).abs();
    return y;
  };
  auto f = compile(run);
  CHECK(f().equal(run()));
  CHECK(f.stats().graphs == 1);
  CHECK(f.stats().calls == 10000);
  CHECK(f.stats().kernels >= 100);
}

TEST_CASE("a trace that grows past its limit is run in pieces, and that is no break") {
  const Tensor x = rand({3});
  auto run = [&] {
    Tensor y = x;
    for (int i = 0; i < 25000; ++i) y = y * 0.999;
    return y;
  };
  auto f = compile(run, {.backend = Backend::eager, .fullgraph = true});
  CHECK(f().equal(run()));
  CHECK(f.stats().breaks == 0);
  CHECK(f.stats().graphs == 2);
}

TEST_CASE("compiled functions may be nested deeply: all of it is one graph") {
  std::function<Tensor(Tensor, int)> nested = [&](Tensor x, int depth) -> Tensor {
    if (depth == 0) return x;
    auto inner = compile([&, depth](Tensor t) { return nested(t, depth - 1); },
                         {.fullgraph = depth % 2 == 0});
    return inner(x * 1.5 + 0.25).tanh();
  };
  auto f = compile([&](Tensor x) { return nested(x, 200); }, {.fullgraph = true});
  const Tensor x = rand({10});
  CHECK(f(x).equal(nested(x, 200)));
  CHECK(f.stats().graphs == 1);
}

TEST_CASE("a hook that throws while it is recorded leaves everything as it was") {
  on_each_backend([](CompileOptions options) {
    Tensor w = ones({3}, requires_grad());
    int calls = 0;
    w.register_hook([&](const Tensor& g) {
      if (++calls == 1) throw std::runtime_error("not now");
      return g * 2.0;
    });
    auto f = compile(
        [&](Tensor x) {
          (w * x).sum().backward();
          NoGradGuard off;
          w.sub_(w.grad() * 0.5);
          return w.detach().clone();
        },
        options);
    CHECK_THROWS_WITH_AS(f(full({3}, 3.0)), "not now", std::runtime_error);
    CHECK_FALSE(w.grad().defined());
    CHECK(w.detach().equal(ones({3})));
    CHECK(f(full({3}, 3.0)).equal(full({3}, -2.0)));
  });
}

TEST_CASE("tensors without elements pass through every backend") {
  for (const Shape& sizes : {Shape{0}, Shape{0, 5}, Shape{5, 0}, Shape{3, 0, 2}})
    on_each_backend([&](CompileOptions options) {
      CAPTURE(sizes);
      auto run = [](Tensor x) {
        const Tensor y = (x * 2.0 + 1.0).exp();
        return std::vector<Tensor>{y, y.sum(), y.sum({-1}, true), y - y.sum({-1}, true),
                                   y.t().contiguous().sum({0})};
      };
      if (sizes.size() > 2) return;
      auto f = compile(run, options);
      const std::vector<Tensor> got = f(rand(sizes)), want = run(rand(sizes));
      for (size_t i = 0; i < want.size(); ++i) CHECK(same_bits(got[i], want[i]));
    });
}

TEST_CASE("sizes may become 0 and back with one graph") {
  auto f = compile([](Tensor x) { return softmax(x * 2.0, -1) + (x - x.mean({-1}, true)); });
  for (const int64_t rows : {3, 0, 5, 0, 1}) {
    const Tensor x = rand({rows, 6});
    CHECK(same_bits(f(x), softmax(x * 2.0, -1) + (x - x.mean({-1}, true))));
  }
  CHECK(f.stats().graphs == 1);
}

TEST_CASE("a cache folder that is full, read-only, damaged or foreign changes no result") {
  const Tensor x = rand({8, 30});
  const FreshCaches fresh;
  auto right = [&] {
    FreshCaches::forget();
    auto f = compile(work);
    return f(x).equal(work(x));
  };
  CHECK(right());
  for (const auto& entry : std::filesystem::directory_iterator(fresh.folder))
    std::ofstream(entry.path(), std::ios::trunc) << "damaged";
  CHECK(right());
  for (const auto& entry : std::filesystem::directory_iterator(fresh.folder)) {
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(40);
    file << "another version";
  }
  CHECK(right());
  std::filesystem::permissions(
      fresh.folder, std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  CHECK(right());
  std::filesystem::permissions(fresh.folder, std::filesystem::perms::owner_all);
  setenv("GRAPNEL_CACHE_DIR", "/dev/full", 1);
  CHECK(right());
}

TEST_CASE("a function that compiles graph after graph is told so once, with the reason") {
  std::string warned;
  int warnings = 0;
  set_warning_handler([&](const std::string& text) { warned = text, ++warnings; });
  auto f = compile(
      [](Tensor x, int ops) {
        for (int i = 0; i < ops; ++i) x = x + 1.0;
        return x;
      },
      {.backend = Backend::aot_eager});
  for (int i = 1; i <= 70; ++i) f(ones({2}), i);
  set_warning_handler([](const std::string& text) { MESSAGE(text); });
  CHECK(warnings == 1);
  CHECK(warned.find("a function has compiled 64 graphs") != std::string::npos);
  CHECK(warned.find("add, is new: the graph ended there before, at ") != std::string::npos);
  CHECK(warned.find("faults_test.cpp") != std::string::npos);
}

TEST_CASE("borrowed memory is read when an op first sees it") {
  on_each_backend([](CompileOptions options) {
    float memory[3] = {1, 2, 3};
    auto f = compile(
        [&](Tensor x) {
          const Tensor y = x * 2.0;
          memory[0] = 100;
          return y;
        },
        options);
    CHECK(f(from_blob(memory, {3})).equal(tensor({2.0f, 4.0f, 6.0f})));
    // Writes go to the memory itself.
    Tensor blob = from_blob(memory, {3});
    auto write = compile([&] { blob.add_(1.0); }, options);
    write();
    CHECK(memory[1] == 3);
  });
}

TEST_CASE("borrowed memory that is declared stable is read where it lies, when the graph runs") {
  on_each_backend([](CompileOptions options) {
    float memory[3] = {1, 2, 3};
    auto f = compile(
        [&](Tensor x) {
          const Tensor y = x * 2.0, z = x.view({3, 1}) + 1.0;
          memory[0] = 100;  // breaks the promise, to see which memory is read
          return y + z.view({3});
        },
        options);
    const Tensor blob = from_blob(memory, {3});
    declare_stable(blob);
    CHECK(f(blob).equal(tensor({301.0f, 7.0f, 10.0f})));
    // Between calls it may change, as any tensor may.
    memory[1] = 20;
    CHECK(f(blob).equal(tensor({301.0f, 61.0f, 10.0f})));
    CHECK(f.stats().graphs == 1);
    auto write = compile([&] { Tensor(blob).add_(1.0); }, options);
    write();
    CHECK(memory[1] == 21);
  });
  CHECK_THROWS_AS(declare_stable(Tensor()), Error);
  const Tensor own = ones({2});
  declare_stable(own);  // says nothing new
  CHECK(compile([](Tensor x) { return x + 1.0; })(own).equal(tensor({2.0f, 2.0f})));
}

TEST_CASE("whether integers can be divided is looked at when the graph runs, without a break") {
  on_each_backend([](CompileOptions options) {
    options.fullgraph = true;
    Tensor counter = zeros({2}, kInt64);
    auto f = compile(
        [&](Tensor a, Tensor b) {
          const Tensor divisor = b - 1;
          const Tensor quotient = floor_divide(a, divisor), rest = remainder(a, divisor);
          counter.add_(1);
          return quotient + rest + a.pow(divisor);
        },
        options);
    const Tensor a = tensor({int64_t{7}, int64_t{9}}), b = tensor({int64_t{3}, int64_t{2}});
    CHECK(f(a, b).equal(floor_divide(a, b - 1) + remainder(a, b - 1) + a.pow(b - 1)));
    CHECK(counter.equal(ones({2}, kInt64)));
    const Tensor bad = tensor({int64_t{3}, int64_t{1}});
    CHECK_THROWS_WITH_AS(f(a, bad), doctest::Contains("floor_divide: the divisor is 0 at [1]"),
                         Error);
    try {
      f(a, bad);
      FAIL("it should have thrown");
    } catch (const Error& e) {
      CHECK(std::string_view(e.what()).find("faults_test.cpp") != std::string_view::npos);
    }
    CHECK(counter.equal(ones({2}, kInt64)));
    CHECK_THROWS_WITH_AS(compile([](Tensor x, Tensor y) { return x.pow(y - 5); }, options)(a, b),
                         doctest::Contains("pow: the exponent is negative at [0]"), Error);
  });
}
