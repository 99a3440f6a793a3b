#include "grapnel/ops/tiled.h"

#include "grapnel/ops/defs/conv.h"
#include "grapnel/ops/defs/matmul.h"
#include "grapnel/ops/op_table.h"

namespace grapnel {

using kernels::TileFn;

Tiled tiled(const Op& op, const void* attrs) {
  if (&op == &op_of<MatMul>)
    return {[](Inputs in, const void*, Tensor& out, TileFn done) { run_matmul(*in[0], *in[1], out, done); }};
  if (&op == &op_of<Addmm>) {
    const auto& a = *static_cast<const AddmmAttrs*>(attrs);
    if (a.beta != 1 || a.alpha != 1) return {};
    return {[](Inputs in, const void*, Tensor& out, TileFn done) { run_matmul(*in[1], *in[2], out, done); },
            0};
  }
  if (&op == &op_of<Conv2d>)
    return {[](Inputs in, const void* attributes, Tensor& out, TileFn done) {
              run_conv2d(in, attributes, out, done);
            },
            2, 2, true};
  if (&op == &op_of<Conv2dBackwardInput>)
    return {[](Inputs in, const void* attributes, Tensor& out, TileFn done) {
              run_conv2d_backward_input(in, attributes, out, done);
            },
            -1, 0, true};
  return {};
}

}  // namespace grapnel
