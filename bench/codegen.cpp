/// What machine code for a fused group costs to make, and what it saves.
///
///   bench_codegen [ISA]
///
/// For each program: milliseconds of processor time to compile cold (code generation, linking,
/// first store to disk), milliseconds from the cache on disk, and nanoseconds per element of the
/// kernel and of the interpreter, on one thread and data that stays in the second-level cache. The
/// results of both are compared before anything is timed.
#include <stdlib.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "grapnel/base/cpu.h"
#include "grapnel/codegen/jit.h"
#include "grapnel/codegen/op_names.h"

using namespace grapnel;
using namespace grapnel::codegen;

namespace {

/// Time of this thread alone: other programs on the machine do not count.
struct Clock {
  using duration = std::chrono::nanoseconds;
  using time_point = std::chrono::time_point<Clock, duration>;
  static time_point now() {
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return time_point(std::chrono::seconds(t.tv_sec) + duration(t.tv_nsec));
  }
};
double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

struct Builder {
  BlockProgram p;
  explicit Builder(int inputs) { p.inputs.assign(static_cast<size_t>(inputs), Compute::F32); }
  int32_t op(std::string_view name, std::vector<int32_t> operands) {
    BlockProgram::Step step{.arity = static_cast<int16_t>(operands.size())};
    for (int i = 0; i < op_count(); ++i)
      if (op_name(i) == name) step.op = static_cast<int16_t>(i);
    std::copy(operands.begin(), operands.end(), step.operands);
    p.steps.push_back(step);
    return static_cast<int32_t>(p.inputs.size() + p.steps.size()) - 1;
  }
  BlockProgram result(int32_t reg) {
    p.outputs = {reg};
    return p;
  }
};

BlockProgram one(std::string_view name, int arity = 1) {
  Builder b(arity);
  return b.result(b.op(name, arity == 1 ? std::vector<int32_t>{0} : std::vector<int32_t>{0, 1}));
}

/// Two thirds arithmetic, one third elementary functions, values that stay near one.
BlockProgram chain(int length) {
  Builder b(3);
  int32_t x = 0;
  for (int i = 0; i < length; ++i) {
    switch (i % 10) {
      case 0: x = b.op("mul", {x, 1}); break;
      case 1: x = b.op("add", {x, 2}); break;
      case 2: x = b.op("tanh", {x}); break;
      case 3: x = b.op("sub", {x, 1}); break;
      case 4: x = b.op("sigmoid", {x}); break;
      case 5: x = b.op("mul", {x, 0}); break;
      case 6: x = b.op("exp", {x}); break;
      case 7: x = b.op("add", {x, 1}); break;
      case 8: x = b.op("maximum", {x, 2}); break;
      default: x = b.op("reciprocal", {x}); break;
    }
  }
  return b.result(x);
}

constexpr int64_t kCount = 8192;

struct Data {
  std::vector<std::vector<float>> in;
  std::vector<float> out = std::vector<float>(kCount);
  std::vector<const void*> in_pointers;
  void* out_pointer = out.data();
  explicit Data(const BlockProgram& p) {
    for (size_t k = 0; k < p.inputs.size(); ++k) {
      in.emplace_back(kCount);
      for (int64_t i = 0; i < kCount; ++i)
        in[k][static_cast<size_t>(i)] =
            0.5f + static_cast<float>((i * 7919 + static_cast<int64_t>(k)) % 1009) / 1009;
    }
    for (auto& v : in) in_pointers.push_back(v.data());
  }
};

template <class Fn>
double best_ns_per_element(Fn&& fn) {
  double best = 1e9;
  for (int i = 0; i < 50; ++i) {
    const auto begin = Clock::now();
    for (int repeat = 0; repeat < 8; ++repeat) fn();
    best = std::min(best, ms_since(begin) * 1e6 / 8 / kCount);
  }
  return best;
}

void measure(const char* name, const BlockProgram& p) {
  double cold = 1e9, warm = 1e9;
  for (int i = 0; i < 5; ++i) {
    for (const auto& entry : std::filesystem::directory_iterator(getenv("GRAPNEL_CACHE_DIR")))
      std::filesystem::remove(entry);
    reset_jit_for_testing();
    auto begin = Clock::now();
    kernel_for(p);
    cold = std::min(cold, ms_since(begin));
    reset_jit_for_testing();
    begin = Clock::now();
    kernel_for(p);
    warm = std::min(warm, ms_since(begin));
  }
  const auto kernel = kernel_for(p);
  Data compiled(p), interpreted(p);
  const BlockFn fn = kernel->fn();
  if (!fn) {
    std::printf("%s: %s\n", name, kernel->error().c_str());
    std::exit(1);
  }
  const std::vector<Walk> walks(p.inputs.size(), Walk::along);
  auto run = [&] {
    fn(compiled.in_pointers.data(), walks.data(), &compiled.out_pointer, nullptr, kCount);
  };
  run();
  interpret(p, interpreted.in_pointers.data(), &interpreted.out_pointer, nullptr, kCount);
  if (std::memcmp(compiled.out.data(), interpreted.out.data(), kCount * sizeof(float)) != 0) {
    std::printf("%s: the results differ\n", name);
    std::exit(1);
  }
  const double fast = best_ns_per_element(run);
  const double slow = best_ns_per_element([&] {
    interpret(p, interpreted.in_pointers.data(), &interpreted.out_pointer, nullptr, kCount);
  });
  std::printf("%-22s %8.2f %8.2f %10.3f %10.3f %8lld\n", name, cold, warm, fast, slow,
              static_cast<long long>(jit_stats().object_bytes));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) setenv("GRAPNEL_ISA", argv[1], 1);
  char folder[] = "/tmp/grapnel-bench-XXXXXX";
  if (!mkdtemp(folder)) return 1;
  setenv("GRAPNEL_CACHE_DIR", folder, 1);
  const auto begin = Clock::now();
  kernel_for(one("neg"));
  std::printf("%s; loading LLVM and the first kernel: %.2f ms\n", base::name_of(base::cpu_isa()),
              ms_since(begin));
  std::printf("%-22s %8s %8s %10s %10s %8s\n", "program", "cold ms", "disk ms", "ns/elem",
              "eager ns", "bytes");
  measure("add", one("add", 2));
  for (const char* name : {"exp", "tanh", "log", "erf", "gelu", "sigmoid", "sin", "expm1", "log1p",
                           "erfc", "atan", "asin", "sinh"})
    measure(name, one(name));
  measure("pow", one("pow", 2));
  measure("atan2", one("atan2", 2));
  for (int length : {20, 50, 100})
    measure(("chain of " + std::to_string(length)).c_str(), chain(length));
  std::filesystem::remove_all(folder);
}
