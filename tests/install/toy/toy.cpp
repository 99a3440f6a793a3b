// A first program against the installed library: a compiled function, a gradient with a hook on it,
// an error; and whether the library found its module, without which compiled functions run
// interpreted.
#include <grapnel/codegen/llvm_module.h>
#include <grapnel/grapnel.h>

#include <cstdio>

int main() {
  using namespace grapnel;
  Tensor x = tensor({1.0, 2.0, 3.0}, requires_grad());
  x.register_hook([](const Tensor& grad) { return grad * 10; });
  auto energy = compile([](const Tensor& t) { return (t * t).sum(); });
  energy(x).backward();
  if (!equal(x.grad(), tensor({20.0, 40.0, 60.0}))) return 1;

  const codegen::LlvmModule& llvm = codegen::llvm_module();
  std::puts(llvm.api ? "LLVM makes kernels" : llvm.problem.c_str());
  try {
    x.reshape({2, 2});
  } catch (const Error& error) {
    std::puts(error.what());
    return 0;
  }
  return 1;
}
