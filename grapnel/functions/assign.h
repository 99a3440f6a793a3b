/// Writing to temporaries: what operator= and the compound operators share. See assign.cpp.
#pragma once

#include "grapnel/tensor/tensor.h"

namespace grapnel {

/// Fails when nobody could ever see what is written to the temporary.
void check_assignable(const Tensor& temporary, const char* symbol);
/// The result of an op that might be taken for a view.
inline Tensor picked_copy(Tensor copy) {
  copy.impl().picked_copy = true;
  return copy;
}
/// Writes a changed copy of rows back to where this expression took them from.
void put_back(const Tensor& temporary);

}  // namespace grapnel
