/// TapeObserver: told about every op that is put on the tape, when its results and its node exist.
/// For tools such as hooks::NanGuard.
#pragma once

#include <span>

#include "grapnel/autograd/node.h"

namespace grapnel {

class TapeObserver {
 public:
  virtual ~TapeObserver() = default;
  /// What the observer computes itself is not observed.
  virtual void on_op(Node& node, std::span<const Tensor> outputs) = 0;

  /// The observer of this thread, or null. One null check per recorded op is what it costs when
  /// there is none.
  static inline constinit thread_local TapeObserver* current = nullptr;
  static void notify(Node& node, std::span<const Tensor> outputs) {
    if (current) [[unlikely]]
      tell(node, outputs);
  }

 private:
  static void tell(Node& node, std::span<const Tensor> outputs);
};

}  // namespace grapnel
