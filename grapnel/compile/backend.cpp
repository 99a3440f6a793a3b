#include "grapnel/compile/executable.h"

namespace grapnel::compile_detail {

std::unique_ptr<Executable> make_executable(const capture::Trace&, const CompileOptions&) { return make_op_by_op(); }

}  // namespace grapnel::compile_detail
