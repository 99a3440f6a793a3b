/// Programs to object files.
#pragma once

#include "grapnel/codegen/llvm/api.h"

namespace grapnel::codegen {

bool compile_program(const ProgramView& program, base::Isa isa, Sink object, Sink error);
bool print_program(const ProgramView& program, base::Isa isa, Sink text, Sink error);

}  // namespace grapnel::codegen
