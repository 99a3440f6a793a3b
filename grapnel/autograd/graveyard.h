/// bury: ends objects that own others of their kind, one after the other.
///
/// Note [Ending chains]
/// Nodes own nodes, and a tensor may own another one through its gradient or through what its hooks
/// hold. If each ended the next in its destructor, a chain of a million would need a stack of a
/// million frames. So whoever may own such an object is buried: while one is being ended on this
/// thread, those that it lets go of wait for their turn.
#pragma once

namespace grapnel {

void bury(void* object, void (*end)(void* object) noexcept) noexcept;

}  // namespace grapnel
