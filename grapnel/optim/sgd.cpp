#include "grapnel/optim/sgd.h"

#include "grapnel/base/error_kinds.h"
#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"

namespace grapnel::optim {

void SGDOptions::validate() const {
  check_as<ValueError>(lr() >= 0, "SGD: the learning rate must not be negative, got ", lr(), ".");
  check_as<ValueError>(momentum() >= 0, "SGD: momentum must not be negative, got ", momentum(),
                       ".");
  check_as<ValueError>(weight_decay() >= 0, "SGD: weight_decay must not be negative, got ",
                       weight_decay(), ".");
  check(!nesterov() || (momentum() > 0 && dampening() == 0),
        "SGD: nesterov needs momentum and no dampening, got momentum ", momentum(),
        " and dampening ", dampening(), ".");
}

Update SGD::update(const Tensor& param, const Tensor& grad, const SGDOptions& o,
                   SGDParamState& state) {
  // The first step starts from the gradient itself, undampened.
  const bool first = o.momentum() != 0 && !state.momentum_buffer.defined();
  // Zeros, since a step that fails halfway leaves them to the next one.
  if (first) state.momentum_buffer = zeros_like(param);
  return elementwise(
      [first, &o](const Tensor& p, const Tensor& g, const Tensor& buffer) {
        Tensor d = o.maximize() ? -g : g;
        if (o.weight_decay() != 0) d = d.add(p, o.weight_decay());
        if (buffer.defined()) {
          if (first) buffer.copy_(d);
          else buffer.mul_(o.momentum()).add_(d, 1 - o.dampening());
          d = o.nesterov() ? d.add(buffer, o.momentum()) : buffer;
        }
        p.add_(d, -o.lr());
      },
      param, grad, o.momentum() != 0 ? state.momentum_buffer : Tensor());
}

}  // namespace grapnel::optim
