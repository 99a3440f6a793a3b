/// compile(fn): the same function, with its tensor arithmetic deferred, fused and cached.
///
/// The body runs on every call, with pending tensors; closures, counters, containers and hooks
/// behave as always. Only arithmetic waits until the function returns (or a value is read: a graph
/// break), and is then run as one graph from a cache that all compiled functions share.
/// docs/compile.md explains what to expect.
#pragma once

#include <functional>
#include <memory>
#include <type_traits>

#include "grapnel/base/source_site.h"
#include "grapnel/compile/replay.h"
#include "grapnel/compile/scope.h"

namespace grapnel {

/// A compiled function: call it like the one it was made of.
template <class F>
class Compiled {
 public:
  Compiled(F fn, const CompileOptions& options)
      : fn_(std::move(fn)), session_(compiler::make_session(options)) {
    if (options.replay) replays_ = std::make_shared<compiler::Replays>(session_);
  }

  /// Calls the function and computes everything it returns or leaves behind.
  template <class... Args>
    requires std::invocable<F&, Args...>
  std::invoke_result_t<F&, Args...> operator()(Args&&... args) {
    using Result = std::invoke_result_t<F&, Args...>;
    if (replays_ && !compiler::is_nested()) {
      if constexpr (compiler::replayable<Result, Args...>)
        return compiler::replay<Result, Args...>(*replays_, fn_, std::forward<Args>(args)...);
      else compiler::refuse_types();
    }
    compiler::CompileScope scope(session_);
    const base::UserCodeScope user;
    if constexpr (std::is_void_v<Result>) {
      std::invoke(fn_, std::forward<Args>(args)...);
      scope.finish();
    } else if constexpr (std::is_reference_v<Result>) {
      Result result = std::invoke(fn_, std::forward<Args>(args)...);
      scope.finish();
      return static_cast<Result>(result);
    } else {
      Result result = std::invoke(fn_, std::forward<Args>(args)...);
      scope.finish();
      return result;
    }
  }

  CompileStats stats() const { return compiler::stats_of(*session_); }
  /// Forgets the statistics and the graphs compiled for this function.
  void reset() {
    compiler::reset(*session_);
    if (replays_) replays_->forget();
  }
  F& function() { return fn_; }

 private:
  F fn_;
  std::shared_ptr<compiler::Session> session_;
  std::shared_ptr<compiler::Replays> replays_;  ///< null unless asked for
};

/// A callable that does what `fn` does. Copies share statistics.
template <class F>
auto compile(F&& fn, const CompileOptions& options = {}) {
  return Compiled<std::decay_t<F>>(std::forward<F>(fn), options);
}

}  // namespace grapnel
