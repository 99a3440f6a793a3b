/// GraphCompiler: a backend of the user's own.
///
///   struct Count : GraphCompiler {
///     int graphs = 0;
///     Runner compile(const Graph& graph, const std::vector<Tensor>& inputs) override {
///       ++graphs;
///       return Backend::fused;                       // or a graph, or a function of the inputs
///     }
///   };
///   auto f = compile(fn, {.compiler = std::make_shared<Count>()});
///
/// It is asked once for every graph that the cache does not have yet. Who asks is part of the key:
/// functions with one compiler share its graphs, and functions with two do not.
///
/// A Backend runs whatever has the key of the graph. A function of the user's, or a graph, is for
/// the very sizes, numbers and draws that it was made for, since only the library knows what else
/// the key allows; for others the compiler is asked again. A graph that calls functions of the
/// program (invoke, opaque hooks) can only be run by a Backend.
#pragma once

#include <atomic>
#include <functional>
#include <variant>
#include <vector>

#include "grapnel/capture/graph.h"
#include "grapnel/compile/options.h"

namespace grapnel {

/// How a graph is run: by a backend, by running a graph op by op, or by a function. A function is
/// given the tensors that the inputs of the graph stand for, and returns one for each output. What
/// the graph writes in place, it writes to these tensors.
class Runner {
 public:
  using Function = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;
  Runner(Backend backend) : how_(backend) {}
  Runner(Graph graph)
      : how_([graph = std::move(graph)](const std::vector<Tensor>& x) { return graph.run(x); }) {}
  template <class F>
    requires std::is_invocable_r_v<std::vector<Tensor>, F&, const std::vector<Tensor>&>
  Runner(F function) : how_(Function(std::move(function))) {}

  const Backend* backend() const { return std::get_if<Backend>(&how_); }
  const Function& function() const { return std::get<Function>(how_); }

 private:
  std::variant<Backend, Function> how_;
};

/// A backend of the user's own; CompileOptions::compiler takes one.
class GraphCompiler {
 public:
  GraphCompiler() : identity_(next_identity()) {}
  /// Compilers of one identity share their graphs.
  explicit GraphCompiler(uint64_t identity) : identity_(identity) {}
  virtual ~GraphCompiler() = default;
  /// Says how the graph is run. `inputs` are those of its first run. Called on the thread that runs
  /// the graph first, while others that want the same graph wait; no lock is held. What it throws
  /// reaches the caller of the compiled function, and nothing of the step has happened.
  virtual Runner compile(const Graph& graph, const std::vector<Tensor>& inputs) = 0;

  uint64_t identity() const { return identity_; }
  static uint64_t next_identity() {
    static std::atomic<uint64_t> last{0};
    return ++last;
  }

 private:
  const uint64_t identity_;
};

}  // namespace grapnel
