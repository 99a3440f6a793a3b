// A program to stop in: check_gdb.py prints its variables.
#include <grapnel/grapnel.h>

using namespace grapnel;

[[gnu::noinline]] void stop_here(const Tensor& small, const Tensor& view, const Tensor& leaf, const Tensor& nothing, const Tensor& large,
                                 const Shape& shape) {
  __asm__ volatile("" ::"r"(&small), "r"(&view), "r"(&leaf), "r"(&nothing), "r"(&large), "r"(&shape) : "memory");
}

int main() {
  const Tensor small = tensor({{1.0, 2.5}, {-3.0, 4.0}});
  const Tensor leaf = tensor({1.5}, dtype(kBFloat16).requires_grad(true));
  const Tensor nothing, large = arange(1000);
  stop_here(small, small.t(), leaf, nothing, large, small.shape());
}
