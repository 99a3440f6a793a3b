/// What declared hooks recorded, kept to be recorded again. See Note [Declared hooks] in
/// ops/compiled_args.h.
#pragma once

#include <vector>

#include "grapnel/capture/graph.h"

namespace grapnel::capture {

/// Everything that is kept, in no order: functions of a hook's arguments and of what it lifts.
std::vector<Graph> hook_bodies();
/// Forgets all of it.
void forget_hook_bodies();

}  // namespace grapnel::capture
