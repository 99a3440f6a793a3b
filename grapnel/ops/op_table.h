/// Turns definitions into Ops. Included by the sources that call `apply<Definition>`.
#pragma once

#include "grapnel/ops/list.h"

namespace grapnel {

template <class D>
constexpr int kernel_index() {
  if constexpr (HasScalar<D>) {
    static_assert(IndexIn<D, PointwiseOps>::value >= 0, "add the op to PointwiseOps");
    return IndexIn<D, PointwiseOps>::value;
  } else if constexpr (HasCombine<D>) {
    static_assert(IndexIn<D, ReductionOps>::value >= 0, "add the op to ReductionOps");
    return IndexIn<D, ReductionOps>::value;
  } else {
    return -1;
  }
}

template <class D>
constexpr int op_number() {
  static_assert(IndexIn<D, AllOps>::value >= 0, "add the op to a list in AllOps");
  return IndexIn<D, AllOps>::value;
}

template <class D>
const Op OpOf<D>::value = define::make<D>(op_number<D>(), kernel_index<D>());

}  // namespace grapnel
