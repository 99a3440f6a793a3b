/// What a compiled function is asked for.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

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

}  // namespace grapnel
