/// The first line of every public op function: remembers where the user's program called it, and
/// which function that was.
#pragma once

#include "grapnel/base/place.h"
#include "grapnel/base/source_site.h"

namespace grapnel::base {

/// Marks an op function, unless one further out on this thread is marked already.
class OpCallScope {
 public:
  /// The name also keeps functions apart that are equal otherwise: a compiler that folds them makes
  /// one call the other, which would then return into the library.
  OpCallScope(const void* return_address, const char* pretty_function) noexcept
      : is_outermost_(this_context.call_site == nullptr) {
    if (!is_outermost_) return;
    this_context.call_site = return_address;
    this_context.called_op = pretty_function;
  }
  ~OpCallScope() {
    if (!is_outermost_) return;
    this_context.called_op = nullptr;
    this_context.call_site = nullptr;
  }
  OpCallScope(const OpCallScope&) = delete;
  OpCallScope& operator=(const OpCallScope&) = delete;

 private:
  const bool is_outermost_;
};

}  // namespace grapnel::base

#define GRAPNEL_CALL_SITE                                                                \
  const ::grapnel::base::OpCallScope call_site_scope(__builtin_return_address(0), \
                                                     __PRETTY_FUNCTION__)
