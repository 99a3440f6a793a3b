/// The smallest program that differentiates: what does it cost to start, and to keep in memory?
#include <cstdio>

#include "library.h"

int main() {
  const lib::Tensor x = lib::ones({2, 2}, lib::requires_grad());
  (x * x).sum().backward();
  std::printf("%g\n", x.grad().sum().item<double>());
}
