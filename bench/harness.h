/// Runs workloads: checks them, times them, or counts their instructions under callgrind.
///
/// A workload is a named step that can be repeated, and the tensors it leaves behind.
/// `bench/compare` runs the same workload in two programs, one per library, compares what they
/// leave behind, and only then looks at the times.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "library.h"

#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#else
#define CALLGRIND_START_INSTRUMENTATION
#define CALLGRIND_STOP_INSTRUMENTATION
#define CALLGRIND_ZERO_STATS
#define CALLGRIND_DUMP_STATS_AT(name) (void)(name)
#endif

namespace bench {

using lib::Tensor;

struct Body {
  std::function<void()> step;
  std::function<std::vector<Tensor>()> results;
};

/// What one step amounts to: so many ops, nodes or hook firings (reported in ns each), flop or
/// bytes (reported per second), or one whole (reported as its time).
enum class Unit { each, flop, byte, whole };

struct Workload {
  std::string name;
  Unit unit;
  double amount;
  std::function<Body()> make;
};

/// Values that are the same in every library: small, of both signs, none of them special.
inline Tensor values(std::vector<int64_t> sizes, double scale = 1, double offset = 0) {
  int64_t count = 1;
  for (int64_t s : sizes) count *= s;
  Tensor t = lib::empty(sizes);
  float* p = t.data_ptr<float>();
  for (int64_t i = 0; i < count; ++i)
    p[i] = static_cast<float>(
        offset +
        scale * (static_cast<double>(static_cast<uint64_t>(i) * 2654435761u % 1009) / 1009 - 0.5));
  return t;
}
inline Tensor parameter(std::vector<int64_t> sizes, double scale = 1, double offset = 0) {
  Tensor t = values(std::move(sizes), scale, offset);
  t.requires_grad_();
  return t;
}

/// Three numbers that tell tensors apart: the sum, the sum of magnitudes, and a sum in which every
/// place has its own weight.
inline void print_digest(const Tensor& t) {
  const Tensor dense = t.detach().contiguous();
  const float* p = dense.data_ptr<float>();
  double sum = 0, magnitude = 0, weighted = 0;
  for (int64_t i = 0; i < dense.numel(); ++i) {
    sum += p[i];
    magnitude += std::abs(p[i]);
    weighted += p[i] * static_cast<double>(i % 97 + 1);
  }
  std::printf("\t%.9g\t%.9g\t%.9g", sum, magnitude, weighted);
}

inline void check(const Workload& w) {
  const Body body = w.make();
  body.step();
  std::printf("%s", w.name.c_str());
  for (const Tensor& t : body.results()) print_digest(t);
  std::printf("\n");
}

/// Best time of one step over batches long enough for the clock and short enough to slip between
/// other programs.
inline double best_seconds(const Body& body, double budget) {
  using Clock = std::chrono::steady_clock;
  body.step();
  double best = 1e9, spent = 0;
  int64_t steps = 1;
  for (int batch = 0; batch < 3 || (spent < budget && batch < 100000); ++batch) {
    const auto begin = Clock::now();
    for (int64_t i = 0; i < steps; ++i) body.step();
    const double time = std::chrono::duration<double>(Clock::now() - begin).count();
    best = std::min(best, time / static_cast<double>(steps));
    spent += time;
    if (time < 1e-3) steps *= 2;
  }
  return best;
}

inline void time(const Workload& w, double budget, bool readable) {
  const double seconds = best_seconds(w.make(), budget);
  if (!readable) {
    std::printf("%s\t%.9g\n", w.name.c_str(), seconds);
  } else if (w.unit == Unit::each) {
    std::printf("%-46s %10.1f ns each\n", w.name.c_str(), seconds / w.amount * 1e9);
  } else if (w.unit == Unit::whole) {
    std::printf("%-46s %10.3f ms\n", w.name.c_str(), seconds * 1e3);
  } else {
    std::printf("%-46s %10.1f %s\n", w.name.c_str(), w.amount / seconds * 1e-9,
                w.unit == Unit::flop ? "GFLOP/s" : "GB/s");
  }
  std::fflush(stdout);
}

/// Leaves the instructions of `steps` steps in a dump of callgrind that is named after the
/// workload.
inline void count(const Workload& w, int steps) {
  const Body body = w.make();
  for (int i = 0; i < 3; ++i) body.step();
  CALLGRIND_START_INSTRUMENTATION;
  body.step();
  CALLGRIND_ZERO_STATS;
  for (int i = 0; i < steps; ++i) body.step();
  CALLGRIND_DUMP_STATS_AT(w.name.c_str());
  CALLGRIND_STOP_INSTRUMENTATION;
}

inline int usage(const char* program) {
  std::printf(
      "usage: %s [list|check|time|count] [--threads N] [--seconds S] [--steps N] [--exact] "
      "[text...]\n"
      "Without a word, times every workload whose name contains one of the texts. With --exact, is "
      "one of them.\n",
      program);
  return 2;
}

inline int run(const std::vector<Workload>& workloads, int argc, char** argv) {
  std::string mode;
  std::vector<std::string_view> wanted;
  bool exact = false;
  double budget = 0.2;
  int steps = 10;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const bool more = i + 1 < argc;
    if (word == "--threads" && more) lib::set_num_threads(std::atoi(argv[++i]));
    else if (word == "--seconds" && more) budget = std::atof(argv[++i]);
    else if (word == "--steps" && more) steps = std::atoi(argv[++i]);
    else if (word == "--exact") exact = true;
    else if (word.starts_with("--")) return usage(argv[0]);
    else if (mode.empty() &&
             (word == "list" || word == "check" || word == "time" || word == "count"))
      mode = word;
    else wanted.push_back(word);
  }
  for (const Workload& w : workloads) {
    const bool chosen =
        wanted.empty() || std::any_of(wanted.begin(), wanted.end(), [&](std::string_view text) {
          return exact ? w.name == text : w.name.find(text) != std::string::npos;
        });
    if (!chosen) continue;
    if (mode == "list")
      std::printf("%s\t%d\t%.9g\n", w.name.c_str(), static_cast<int>(w.unit), w.amount);
    else if (mode == "check") check(w);
    else if (mode == "count") count(w, steps);
    else time(w, budget, mode.empty());
  }
  return 0;
}

}  // namespace bench
