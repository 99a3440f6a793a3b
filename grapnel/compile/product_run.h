/// Running a product with the groups before and behind it: Note [Epilogues] and Note [Prologues] in
/// plan.h.
#pragma once

#include "grapnel/compile/executable.h"
#include "grapnel/compile/memory.h"
#include "grapnel/compile/plan.h"

namespace grapnel::compile_detail {

/// A group and its kernel, which may be null: then the program is interpreted.
struct GroupCode {
  const Group* group = nullptr;
  codegen::BlockFn kernel = nullptr;
};

/// Runs a group that begins with a product.
void run_epilogue(const GroupCode& group, capture::Trace& trace, Memory& memory, RunCounts& counts);

/// Runs the group of an item together with the product behind it, or with the group `behind` that
/// begins with it. False, with nothing done, if sizes speak against it.
bool run_prologue(const Item& item, const GroupCode& before, uint32_t product,
                  const GroupCode& behind, capture::Trace& trace, Memory& memory,
                  RunCounts& counts);

}  // namespace grapnel::compile_detail
