/// Products and convolutions in two steps: what is computed tile by tile, and what the op then adds to it. Compiled graphs take them
/// apart here, to do more with a tile while it is in the cache. The tiles and their bits are those of the op itself.
#pragma once

#include "grapnel/ops/kernels/tile.h"
#include "grapnel/ops/op.h"

namespace grapnel {

/// How an op is `product + addend`.
struct Tiled {
  void (*product)(Inputs in, const void* attrs, Tensor& out, kernels::TileFn done) = nullptr;
  int addend = -1;              ///< the operand to be added, if there is one and it is given
  int trailing = 0;             ///< dimensions of size 1 that have to be put behind those of the addend
  bool copies_strided = false;  ///< operands that are not dense are copied first

  /// Computes the product into `out`, which is dense; `done` hears of every tile of it.
  void run(Inputs in, const void* attrs, Tensor& out, kernels::TileFn done) const {
    product(in, attrs, out, done);
  }
  explicit operator bool() const { return product != nullptr; }
};

/// False if this application of the op is not of that form.
Tiled tiled(const Op& op, const void* attrs);

/// a @ b, rounded once to the type of `out`.
void run_matmul(const Tensor& a, const Tensor& b, const Tensor& out, kernels::TileFn done);
/// Without bias. `attrs` are the ConvAttrs of the op.
void run_conv2d(Inputs in, const void* attrs, const Tensor& out, kernels::TileFn done);
void run_conv2d_backward_input(Inputs in, const void* attrs, const Tensor& out, kernels::TileFn done);

}  // namespace grapnel
