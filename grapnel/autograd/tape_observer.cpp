#include "grapnel/autograd/tape_observer.h"

#include <utility>

#include "grapnel/autograd/grad_mode.h"

namespace grapnel {

void TapeObserver::tell(Node& node, std::span<const Tensor> outputs) {
  struct Pause {
    TapeObserver* observer = std::exchange(current, nullptr);
    ~Pause() { current = observer; }
  } pause;
  NoGradGuard no_grad;
  pause.observer->on_op(node, outputs);
}

}  // namespace grapnel
