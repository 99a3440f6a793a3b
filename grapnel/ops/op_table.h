/// Turns definitions into Ops. Included by the sources that call `apply<Definition>`.
#pragma once

#include "grapnel/ops/pointwise_list.h"
#include "grapnel/ops/reduction_list.h"

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
const Op OpOf<D>::value = define::make<D>(kernel_index<D>());

}  // namespace grapnel
