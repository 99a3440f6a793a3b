#include "grapnel/ops/list.h"

#include "grapnel/ops/op_table.h"

namespace grapnel {

namespace {

template <class... D>
std::span<const Op* const> ops_of(OpList<D...>) {
  static constexpr const Op* table[] = {&op_of<D>...};
  return table;
}

}  // namespace

std::span<const Op* const> all_ops() { return ops_of(AllOps{}); }

}  // namespace grapnel
