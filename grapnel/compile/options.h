/// What a compiled function is asked for, and what it tells: numbers and reasons.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace grapnel {

class GraphCompiler;

/// How a recorded graph is run. All give the same bits.
enum class Backend : uint8_t {
  eager,      ///< call by call, as recorded
  aot_eager,  ///< call by call, after all passes
  fused,      ///< chains of ops become generated kernels
};
std::string_view name(Backend backend);

/// `exact` keeps the bits of eager mode. `fast` is leave to use faster, looser arithmetic inside
/// fused kernels; no kernel takes it so far.
enum class Numerics : uint8_t { exact, fast };

/// What happens when a graph cannot be compiled: run it op by op after one warning, or throw. A
/// kernel that cannot be made is interpreted.
enum class OnFailure : uint8_t { fall_back, error };

/// How a function or a backward pass is compiled.
struct CompileOptions {
  Backend backend = Backend::fused;
  bool fullgraph = false;  ///< reading a value in the middle is an error
  bool dynamic = true;     ///< sizes are arguments; otherwise every size gets its own graph
  /// The function is pure: its body runs once per kind of arguments (compile/replay.h).
  bool replay = false;
  Numerics numerics = Numerics::exact;
  OnFailure on_failure = OnFailure::fall_back;
  /// A backend of the user's own, which is asked before `backend`: compile/graph_compiler.h.
  std::shared_ptr<GraphCompiler> compiler = nullptr;
  friend bool operator==(const CompileOptions&, const CompileOptions&) = default;
};

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
