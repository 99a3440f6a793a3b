/// What compiled functions did, in numbers and reasons.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

namespace grapnel {

/// Why a graph was compiled, or broken.
struct Reason {
  std::string what;   ///< "item reads a value"
  std::string where;  ///< "train.cpp:42 (step)", empty when unknown
  std::string str() const;
};

/// What compiling has done so far: graphs, hits, misses and breaks with their reasons.
struct CompileStats {
  int64_t graphs = 0;       ///< compiled
  int64_t hits = 0;         ///< run from the cache
  int64_t misses = 0;       ///< not found in the cache, whether or not compiling then worked
  int64_t breaks = 0;       ///< run early because a value was read
  int64_t calls = 0;        ///< recorded ops, over all runs
  int64_t kernels = 0;      ///< fused kernels in the compiled graphs
  int64_t fused_calls = 0;  ///< ops that went into them
  int64_t bytes_read = 0;   ///< by fused kernels, over all runs
  int64_t bytes_written = 0;
  int64_t fallbacks = 0;      ///< graphs that could not be compiled and run call by call
  int64_t skipped_hooks = 0;  ///< calls of declared hooks that were not needed
  double compile_ms = 0;
  std::vector<Reason> miss_reasons;
  std::vector<Reason> break_reasons;
  std::string str() const;
};
std::ostream& operator<<(std::ostream& out, const CompileStats& stats);

/// Counts graphs compiled by the whole program while it lives, for tests.
class CompileCounter {
 public:
  CompileCounter();
  /// Since construction or the last reset.
  int64_t graphs() const;
  void reset();

 private:
  int64_t start_;
};

/// Forgets every compiled graph of the program (not those on disk).
void reset_compile_cache();

}  // namespace grapnel
