/// What programs know about pointwise ops, by their number in PointwiseOps.
#pragma once

#include <string_view>

#include "grapnel/tensor/dtype.h"

namespace grapnel::codegen {

int op_count();
std::string_view op_name(int op);
int op_arity(int op);
/// Whether the op has a formula for this type: floating formulas have none for integers.
bool op_exists(int op, Compute compute);
/// By its number in ReductionOps.
std::string_view reduction_name(int reduction);
/// Changes with the names and the order of both lists.
uint32_t ops_fingerprint();

}  // namespace grapnel::codegen
