#include <grapnel/grapnel.h>

#include <iostream>
using namespace grapnel;

int main() {
  Tensor x = linspace(-1, 1, 64), y = 3 * x + 0.5;  // the line to find
  Tensor w = zeros({1}, requires_grad()), b = zeros({1}, requires_grad());

  int clipped = 0;
  w.register_hook([&](const Tensor& grad) {  // sees every gradient of w, and replaces it
    clipped += grad.abs().item<double>() > 0.5;
    return grad.clamp(-0.5, 0.5);
  });
  optim::SGD optimizer({w, b}, 0.1);
  for (int step = 0; step < 200; ++step) {
    optimizer.zero_grad();
    mse_loss(w * x + b, y).backward();
    optimizer.step();
  }
  std::cout << "w = " << w.item<double>() << ", b = " << b.item<double>() << ", clipped " << clipped
            << " times\n";
}
