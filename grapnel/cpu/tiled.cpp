#include "grapnel/cpu/tiled.h"

#include "grapnel/ops/list.h"

namespace grapnel::cpu {

namespace {

using TilesFn = Tiles (*)();

template <class D>
constexpr TilesFn maker() {
  if constexpr (HasProduct<D>) return &tiles<D>;
  else return nullptr;
}
template <class... D>
TilesFn maker_of(const Op& op, OpList<D...>) {
  static constexpr TilesFn table[] = {maker<D>()...};
  return table[op.number];
}

}  // namespace

Tiles tiles_of(const Op& op) {
  const TilesFn make = maker_of(op, AllOps{});
  GRAPNEL_ASSERT(make, op.name, " is no product");
  return make();
}

}  // namespace grapnel::cpu
