/// A block program as an LLVM function.
#pragma once

#include <llvm/IR/Module.h>

#include <string>

#include "grapnel/codegen/llvm/api.h"

namespace grapnel::codegen {

inline constexpr char kKernelSymbol[] = "grapnel_kernel";

/// The name under which generated code calls the eager kernel of an op.
std::string op_symbol(int op, Compute compute);

/// Adds a BlockFn of the name kKernelSymbol to the module.
void build_kernel(const ProgramView& program, base::Isa isa, llvm::Module& module);

}  // namespace grapnel::codegen
