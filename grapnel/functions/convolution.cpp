/// Convolutions as users call them: conv2d, and conv1d as a picture of height 1.
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

}  // namespace grapnel
