/// Convolutions as users call them: conv2d, and conv1d as a picture of height 1.
#include "grapnel/base/checked.h"
#include "grapnel/functions/functions.h"
#include "grapnel/ops/autocast.h"
#include "grapnel/ops/defs/conv.h"
#include "grapnel/ops/op_site.h"
#include "grapnel/ops/op_table.h"

namespace grapnel {

namespace {

Shape pair_of(IntArrayRef values, const char* what) {
  check(values.size() == 1 || values.size() == 2, "conv2d: ", what,
        " takes one number or [vertical, horizontal], got ", values, ".");
  return {values[0], values[values.size() - 1]};
}
int64_t one_of(IntArrayRef values, const char* what) {
  check(values.size() == 1, "conv1d: ", what, " takes one number, got ", values, ".");
  return values[0];
}

}  // namespace

Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, IntArrayRef stride,
              IntArrayRef padding, IntArrayRef dilation, int64_t groups) {
  GRAPNEL_CALL_SITE;
  if (autocast::lowers(x, weight)) [[unlikely]]
    return conv2d(autocast::lower(x), autocast::lower(weight), autocast::lower(bias), stride,
                  padding, dilation, groups);
  ConvAttrs attrs;
  attrs.stride = pair_of(stride, "stride");
  attrs.padding = pair_of(padding, "padding");
  attrs.dilation = pair_of(dilation, "dilation");
  attrs.groups = groups;
  if (x.dim() == 3) return apply<Conv2d>(attrs, x.unsqueeze(0), weight, bias).squeeze(0);
  return apply<Conv2d>(attrs, x, weight, bias);
}

Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias, IntArrayRef stride,
              IntArrayRef padding, IntArrayRef dilation, int64_t groups) {
  GRAPNEL_CALL_SITE;
  check((x.dim() == 2 || x.dim() == 3) && weight.dim() == 3,
        "conv1d: x must be [batch, channels, length] or [channels, length] and weight ",
        "[out_channels, channels / groups, length], got shapes ", x.shape(), " and ",
        weight.shape(), ".");
  // A picture of height 1.
  return conv2d(x.unsqueeze(-2), weight.unsqueeze(2), bias, {1, one_of(stride, "stride")},
                {0, one_of(padding, "padding")}, {1, one_of(dilation, "dilation")}, groups)
      .squeeze(-2);
}

Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        IntArrayRef stride, IntArrayRef padding, IntArrayRef output_padding,
                        int64_t groups, IntArrayRef dilation) {
  GRAPNEL_CALL_SITE;
  if (autocast::lowers(x, weight)) [[unlikely]]
    return conv_transpose2d(autocast::lower(x), autocast::lower(weight), autocast::lower(bias),
                            stride, padding, output_padding, groups, dilation);
  check((x.dim() == 3 || x.dim() == 4) && weight.dim() == 4 && x.size(-3) == weight.size(0) &&
            groups > 0 && weight.size(0) % groups == 0,
        "conv_transpose2d: x must be [batch, in, height, width] and weight [in, out / groups, "
        "height, ",
        "width] with groups that divide in, got shapes ", x.shape(), " and ", weight.shape(),
        " and groups ", groups, ".");
  ConvAttrs attrs;
  attrs.stride = pair_of(stride, "stride");
  attrs.padding = pair_of(padding, "padding");
  attrs.dilation = pair_of(dilation, "dilation");
  attrs.groups = groups;
  const Shape added = pair_of(output_padding, "output_padding");
  for (int i = 0; i < 2; ++i) {
    const char* const op = "conv_transpose2d";
    check(added[i] >= 0 && (added[i] < attrs.stride[i] || added[i] < attrs.dilation[i]),
          "conv_transpose2d: output_padding must be smaller than the stride or the dilation, got ",
          output_padding, ", stride ", stride, " and dilation ", dilation, ".");
    const int64_t moved =
        checked_mul(checked_sub(x.size(i - 2), int64_t{1}, op), attrs.stride[i], op);
    const int64_t reach =
        checked_mul(checked_sub(weight.size(i + 2), int64_t{1}, op), attrs.dilation[i], op);
    const int64_t size = checked_sub(checked_add(checked_add(moved, reach, op), added[i] + 1, op),
                                     checked_mul(attrs.padding[i], int64_t{2}, op), op);
    check(size > 0, "conv_transpose2d: the result would have a size of ", size, " (x is ",
          x.shape(), ", padding ", padding, ").");
    attrs.size.push_back(size);
  }
  const Tensor batch = x.dim() == 3 ? x.unsqueeze(0) : x;
  Tensor y = apply<Conv2dBackwardInput>(attrs, batch, weight);
  if (bias.defined()) {
    check(bias.dim() == 1 && bias.size(0) == y.size(1), "conv_transpose2d: bias must be [",
          y.size(1), "], got shape ", bias.shape(), ".");
    y = y + bias.view({-1, 1, 1});
  }
  return x.dim() == 3 ? y.squeeze(0) : y;
}

Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        IntArrayRef stride, IntArrayRef padding, IntArrayRef output_padding,
                        int64_t groups, IntArrayRef dilation) {
  GRAPNEL_CALL_SITE;
  check((x.dim() == 2 || x.dim() == 3) && weight.dim() == 3,
        "conv_transpose1d: x must be [batch, in, length] or [in, length] and weight ",
        "[in, out / groups, length], got shapes ", x.shape(), " and ", weight.shape(), ".");
  // A picture of height 1.
  return conv_transpose2d(x.unsqueeze(-2), weight.unsqueeze(2), bias, {1, one_of(stride, "stride")},
                          {0, one_of(padding, "padding")},
                          {0, one_of(output_padding, "output_padding")}, groups,
                          {1, one_of(dilation, "dilation")})
      .squeeze(-2);
}

}  // namespace grapnel
