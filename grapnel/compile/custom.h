/// Graphs that a compiler of the user's own was asked about.
#pragma once

#include "grapnel/compile/executable.h"

namespace grapnel::compiler {

/// Asks the compiler of the options about this trace.
std::unique_ptr<Executable> make_custom(const capture::Trace& trace, const CompileOptions& options);
/// Fails if this thread is asking that compiler at the moment: it would wait for itself.
void refuse_inside(const CompileOptions& options);

}  // namespace grapnel::compiler
