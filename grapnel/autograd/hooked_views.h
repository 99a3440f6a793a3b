/// Hooks on views: a base remembers the tables of view nodes that carry hooks and would be cut off
/// by an in-place change.
#pragma once

#include <memory>

#include "grapnel/autograd/meta.h"

namespace grapnel {

/// Remembers that a view of `base` has hooks, or is about to, in `table`. Safe to call from several
/// threads.
void hook_view(const Tensor& base, const std::shared_ptr<HookTable>& table);
/// The table of a view of `base` that has hooks; null if there is none.
std::shared_ptr<HookTable> first_hooked_view(AutogradMeta& base);

}  // namespace grapnel
