/// Errors at the border to LLVM.
///
/// LLVM reports ordinary errors as values, and ends the process on what it takes for a fault of its
/// own. Inside `guarded` such a fault comes back as an error: control jumps out of LLVM, whose
/// memory is lost and whose locks may stay taken, so from then on every call is refused.
#pragma once

#include <csetjmp>
#include <exception>
#include <string>

#include "grapnel/codegen/llvm/api.h"

namespace grapnel::codegen {

inline bool fail(Sink error, const std::string& message) {
  error.write(error.context, message.data(), message.size());
  return false;
}

/// Calls body(context); if LLVM gives up meanwhile, passes its message on and returns false.
bool guarded(bool (*body)(void* context), void* context, Sink error);

template <class Fn>
bool guarded(Sink error, Fn&& fn) {
  return guarded([](void* context) { return (*static_cast<Fn*>(context))(); }, &fn, error);
}

}  // namespace grapnel::codegen
