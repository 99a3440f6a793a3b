/// Products and convolutions in tiles: how the CPU computes an op with a ProductForm (ops/op.h) so
/// that others can do more with a tile while it is in the cache, or make the operand piece by piece.
/// The tiles and their bits are those of the op itself.
#pragma once

#include "grapnel/cpu/kernels/tile.h"
#include "grapnel/ops/define.h"

namespace grapnel::cpu {

struct Tiles {
  /// Computes the product into `out`, which is dense; `done` hears of every tile of it. With `fill`
  /// the operand has no memory: it is dense, and fill(tile) computes some of it in tile.local, in
  /// its compute type.
  using Product = void (*)(Inputs in, const void* attrs, const Tensor& out, kernels::TileFn done,
                           kernels::TileFn fill);
  /// Whether every piece of the operand is needed once. Looks at shapes only.
  using InPieces = bool (*)(Inputs in, const void* attrs, const Tensor& out);

  Product product;
  InPieces in_pieces;
  bool copies_strided = false;  ///< operands that are not dense are copied first
};

/// Specialised for every op with a `product`, in the source of its family; one without does not
/// link.
template <HasProduct D>
Tiles tiles();
/// Those of an op.
Tiles tiles_of(const Op& op);

}  // namespace grapnel::cpu
