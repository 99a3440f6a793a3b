#include "grapnel/cpu/tiled.h"

#include "grapnel/ops/defs/conv.h"
#include "grapnel/ops/defs/matmul.h"
#include "grapnel/ops/op_table.h"

namespace grapnel::cpu {

using kernels::TileFn;

namespace {

constexpr Tiled kMatMul{
    .product = [](Inputs in, const void*, const Tensor& out, TileFn done,
                  TileFn fill) { run_matmul(*in[0], *in[1], out, done, fill); },
    .in_pieces = [](Inputs in, const void*,
                    const Tensor& out) { return matmul_in_pieces(*in[0], *in[1], out); }};
constexpr Tiled kAddmm{
    .product = [](Inputs in, const void*, const Tensor& out, TileFn done,
                  TileFn fill) { run_matmul(*in[1], *in[2], out, done, fill); },
    .in_pieces = [](Inputs in, const void*,
                    const Tensor& out) { return matmul_in_pieces(*in[1], *in[2], out); },
    .operand = 1,
    .addend = 0};
constexpr Tiled kConv2d{.product = run_conv2d,
                        .in_pieces = conv2d_in_pieces,
                        .addend = 2,
                        .trailing = 2,
                        .copies_strided = true};
constexpr Tiled kConv2dBackwardInput{.product = run_conv2d_backward_input,
                                     .in_pieces = conv2d_backward_input_in_pieces,
                                     .copies_strided = true};

}  // namespace

Tiled tiled(const Op& op, const void* attrs) {
  if (&op == &op_of<MatMul>) return kMatMul;
  if (&op == &op_of<Addmm>) return static_cast<const AddmmAttrs*>(attrs)->scaled ? Tiled() : kAddmm;
  if (&op == &op_of<Conv2d>) return kConv2d;
  if (&op == &op_of<Conv2dBackwardInput>) return kConv2dBackwardInput;
  return {};
}

}  // namespace grapnel::cpu
