/// Products and convolutions in steps: an operand that can be made piece by piece, what is computed
/// from it tile by tile, and what the op then adds. Compiled graphs take them apart here, to do
/// more with a tile while it is in the cache. The tiles and their bits are those of the op itself.
#pragma once

#include "grapnel/cpu/kernels/tile.h"
#include "grapnel/ops/op.h"

namespace grapnel::cpu {

/// How an op is `product(operand, ...) + addend`.
struct Tiled {
  /// Computes the product into `out`, which is dense; `done` hears of every tile of it. With `fill`
  /// the operand has no memory: it is dense, and fill(tile) computes some of it in tile.local, in
  /// its compute type.
  using Product = void (*)(Inputs in, const void* attrs, const Tensor& out, kernels::TileFn done,
                           kernels::TileFn fill);
  /// Whether every piece of the operand is needed once. Looks at shapes only.
  using InPieces = bool (*)(Inputs in, const void* attrs, const Tensor& out);

  Product product = nullptr;
  InPieces in_pieces = nullptr;
  int operand = 0;   ///< which one can come in pieces
  int addend = -1;   ///< the operand to be added, if there is one and it is given
  int trailing = 0;  ///< dimensions of size 1 that have to be put behind those of the addend
  bool copies_strided = false;  ///< operands that are not dense are copied first
  explicit operator bool() const { return product != nullptr; }
};

/// False if this application of the op is not of that form.
Tiled tiled(const Op& op, const void* attrs);

/// a @ b, rounded once to the type of `out`.
void run_matmul(const Tensor& a, const Tensor& b, const Tensor& out, kernels::TileFn done = {},
                kernels::TileFn fill = {});
bool matmul_in_pieces(const Tensor& a, const Tensor& b, const Tensor& out);
/// Without bias. `attrs` are the ConvAttrs of the op.
void run_conv2d(Inputs in, const void* attrs, const Tensor& out, kernels::TileFn done = {},
                kernels::TileFn fill = {});
void run_conv2d_backward_input(Inputs in, const void* attrs, const Tensor& out,
                               kernels::TileFn done = {}, kernels::TileFn fill = {});
bool conv2d_in_pieces(Inputs in, const void* attrs, const Tensor& out);
bool conv2d_backward_input_in_pieces(Inputs in, const void* attrs, const Tensor& out);

}  // namespace grapnel::cpu
