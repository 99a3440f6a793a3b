/// TapeObserver: told about every op that is put on the tape, when its results and its node exist.
/// For tools such as hooks::NanGuard.
#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "grapnel/autograd/node.h"
#include "grapnel/base/context.h"

namespace grapnel {

class TapeObserver {
 public:
  virtual ~TapeObserver() = default;
  /// What the observer computes itself is not observed.
  virtual void on_op(Node& node, std::span<const Tensor> outputs) = 0;
  /// A hook at this node returned `result`, or left it in grad() of a leaf.
  virtual void on_hook(const HookLabel& /*label*/, HookKind /*kind*/, const Node& /*node*/,
                       const Tensor& /*result*/) {}

  /// From now on the observer is told about this thread's ops, after those that were added before,
  /// for as long as it lives.
  static void add(const std::shared_ptr<TapeObserver>& observer);
  /// One null check per recorded op is what observers cost when there are none.
  static void notify(Node& node, std::span<const Tensor> outputs) {
    if (this_context.observers) [[unlikely]]
      tell(node, outputs);
  }
  /// The same price for every hook that returned something.
  static void notify_hook(const HookLabel& label, HookKind kind, const Node& node,
                          const Tensor& result) {
    if (this_context.observers) [[unlikely]]
      tell_hook(label, kind, node, result);
  }

  /// While it lives, nothing on this thread is observed.
  class Pause {
   public:
    Pause() : observers_(std::exchange(this_context.observers, nullptr)) {}
    ~Pause() { this_context.observers = observers_; }
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    friend class TapeObserver;
    TapeObservers* observers_;
  };

 private:
  template <class Tell>
  static void tell_all(Tell&& tell_one);
  static void tell(Node& node, std::span<const Tensor> outputs);
  static void tell_hook(const HookLabel& label, HookKind kind, const Node& node,
                        const Tensor& result);
};

}  // namespace grapnel
