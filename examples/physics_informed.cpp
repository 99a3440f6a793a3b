/// A network that learns a law instead of data: u'' = -u with u(0) = 0 and u'(0) = 1, whose
/// solution is the sine.
///
/// The loss contains derivatives of the network by its input, so its own gradient is one of a
/// gradient of a gradient.
#include <grapnel/grapnel.h>

#include <cstdio>
using namespace grapnel;

namespace {

/// dy/dx, which can be differentiated again.
Tensor derivative(const Tensor& y, const Tensor& x) {
  return autograd::grad({y.sum()}, {x}, {}, {}, /*create_graph=*/true)[0];
}

}  // namespace

int main() {
  manual_seed(1);
  nn::Sequential u(nn::Linear(1, 32), nn::Tanh(), nn::Linear(32, 32), nn::Tanh(),
                   nn::Linear(32, 1));
  optim::Adam optimizer(u->parameters(), optim::AdamOptions(5e-3));
  optim::CosineAnnealingLR schedule(optimizer, 1200);

  const Tensor x = linspace(0, 3, 64).view({64, 1}).requires_grad_();
  const Tensor origin = zeros({1, 1}, requires_grad());
  for (int step = 0; step < 1200; ++step) {
    const Tensor y = u(x), slope = derivative(y, x), bend = derivative(slope, x);
    const Tensor start = u(origin), start_slope = derivative(start, origin);
    const Tensor loss =
        (bend + y).square().mean() + start.square().sum() + (start_slope - 1).square().sum();
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    schedule.step();
    if (step % 300 == 0) std::printf("step %4d  loss %.6f\n", step, loss.item<double>());
  }
  const NoGradGuard no_grad;
  const double error = (u(x) - x.sin()).abs().max().item<double>();
  std::printf("largest distance from the sine on [0, 3]: %.4f\n", error);
  return error < 0.02 ? 0 : 1;
}
