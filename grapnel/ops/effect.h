/// effect: a step of the library's own that a recording keeps in its place, and does not look into.
///
/// Sending a bucket and looking for NaN are such steps. Unlike opaque() of the user's code, an
/// effect need not run in eager's order among hooks: it runs when the graph comes to it, maybe
/// after hooks that were called later.
#pragma once

#include <functional>

#include "grapnel/tensor/tensor.h"

namespace grapnel {

/// Calls `fn(inputs)`, or records that the graph will. The first `outputs` inputs say what the
/// results look like; an undefined result means "as the input". `fn` may change its inputs only if
/// nobody reads them but later effects.
variable_list effect(std::function<variable_list(const variable_list&)> fn,
                     const variable_list& inputs, size_t outputs);

}  // namespace grapnel
