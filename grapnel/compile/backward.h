/// CompiledBackward: inside its scope, backward passes are recorded and run as one graph, hooks
/// included.
///
/// The walk is the eager engine's own: same nodes, same order, same hooks, called once each, on
/// pending gradients. When it ends, what it recorded is looked up, compiled on a miss, and run. If
/// a traced hook throws before anything has run, nothing has happened: no grad() has changed and
/// nothing that the graph saved was freed. A compiled graph that fails leaves what the eager pass
/// leaves.
#pragma once

#include "grapnel/autograd/engine.h"
#include "grapnel/compile/scope.h"

namespace grapnel {

/// Backward passes inside this scope are recorded and compiled, hooks included.
class CompiledBackward final : engine::PassRunner {
 public:
  explicit CompiledBackward(const CompileOptions& options = {});
  /// Several scopes, one after the other, may share what they remember.
  explicit CompiledBackward(std::shared_ptr<compiler::Session> session);
  /// Scopes end in the reverse order of their beginning; ending an outer one first throws.
  ~CompiledBackward() noexcept(false);
  CompiledBackward(const CompiledBackward&) = delete;
  CompiledBackward& operator=(const CompiledBackward&) = delete;

  /// Ends the scope before the block does. An outer one fails and goes on.
  void end();
  CompileStats stats() const { return compiler::stats_of(*session_); }
  void reset() { compiler::reset(*session_); }

 private:
  void run(const std::function<void()>& walk) override;

  std::shared_ptr<compiler::Session> session_;
  engine::PassRunner* outer_;
  bool ended_ = false;
};

}  // namespace grapnel
