/// The list of all ops: the second and last place that a new op is written in. Tests, printers and
/// tools walk it.
#pragma once

#include <span>

#include "grapnel/ops/defs/attention.h"
#include "grapnel/ops/defs/calls.h"
#include "grapnel/ops/defs/conv.h"
#include "grapnel/ops/defs/copy.h"
#include "grapnel/ops/defs/index.h"
#include "grapnel/ops/defs/join.h"
#include "grapnel/ops/defs/matmul.h"
#include "grapnel/ops/defs/norm.h"
#include "grapnel/ops/defs/pool.h"
#include "grapnel/ops/defs/random.h"
#include "grapnel/ops/defs/recurrent.h"
#include "grapnel/ops/defs/reduction.h"
#include "grapnel/ops/defs/softmax.h"
#include "grapnel/ops/defs/sort.h"
#include "grapnel/ops/defs/view.h"
#include "grapnel/ops/pointwise_list.h"

namespace grapnel {

namespace define {

template <class... Lists>
struct Concat;
template <class... D>
struct Concat<OpList<D...>> {
  using type = OpList<D...>;
};
template <class... D, class... E, class... Rest>
struct Concat<OpList<D...>, OpList<E...>, Rest...> : Concat<OpList<D..., E...>, Rest...> {};

}  // namespace define

using AllOps = define::Concat<PointwiseOps, ReductionOps, ViewOps, CopyOps, IndexOps, JoinOps,
                              SortOps, MatmulOps, AttentionOps, ConvOps, PoolOps, SoftmaxOps,
                              NormOps, RecurrentOps, RandomOps, CallOps>::type;

/// The run-time faces of AllOps, in its order.
std::span<const Op* const> all_ops();

}  // namespace grapnel
