/// Everything that compiling makes of a graph, as text that is the same in every run and on every
/// machine: for tools/replay, which compares what two versions of the library make of the same
/// programs, and for reading.
///
/// GRAPNEL_DUMP=FILE appends all graphs of a process to a file.
#pragma once

#include <iosfwd>

#include "grapnel/compile/passes.h"
#include "grapnel/compile/plan.h"

namespace grapnel::compiler {

/// Where graphs go as they are made: what set_dump_stream said, else the file named by
/// GRAPNEL_DUMP, else null.
std::ostream* dump_stream();
void set_dump_stream(std::ostream* out);

/// The trace, its key, the plan, and every kernel for every instruction set: a line `= PART` before
/// each.
void dump(std::ostream& stream, const capture::Trace& trace, const Simplified& simplified,
          const Plan& plan);

}  // namespace grapnel::compiler
