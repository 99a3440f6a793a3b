/// Steps of block programs as functions that emit them; instantiated in formulas.cpp from the
/// definitions of the ops.
#pragma once

#include "grapnel/codegen/block_program.h"
#include "grapnel/codegen/llvm/ir_value.h"

namespace grapnel::codegen {

/// Emits the formula of pointwise op number `op`.
Ref emit_op(int op, Compute compute, const Ref* operands);
/// Emits what a store to `via` and a load as `to` make of a value.
Ref emit_convert(Compute from, DType via, Compute to, Ref operand);

/// Emits what reduction number `reduction` makes of two values.
Ref emit_combine(int reduction, Compute compute, Ref a, Ref b);

/// About how many instructions emit_op makes of one value.
int op_cost(int op, Compute compute);

}  // namespace grapnel::codegen
