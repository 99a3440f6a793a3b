// A small program that needs the headers, the library and its module: it looks for LLVM, provokes an error and prints it.
#include <grapnel/base/error.h>
#include <grapnel/codegen/llvm_module.h>

#include <cstdio>

int main() {
  const grapnel::codegen::LlvmModule& llvm = grapnel::codegen::llvm_module();
  std::puts(llvm.api ? "machine code: yes" : llvm.problem.c_str());
  try {
    grapnel::check(1 + 1 == 3, "toy: one and one is ", 1 + 1, ", not 3.");
  } catch (const grapnel::Error& error) {
    std::puts(error.what());
    return 0;
  }
  return 1;
}
