/// Pooling as users call it.
#include "grapnel/functions/functions.h"
#include "grapnel/ops/defs/pool.h"
#include "grapnel/ops/op_site.h"
#include "grapnel/ops/op_table.h"

namespace grapnel {

namespace {

PoolAttrs pool_attrs(std::string_view op, IntArrayRef kernel, IntArrayRef stride,
                     IntArrayRef padding, IntArrayRef dilation, bool ceil_mode,
                     bool count_include_pad) {
  auto pair = [&](IntArrayRef v, const char* what) -> Shape {
    check(v.size() == 1 || v.size() == 2, op, ": ", what,
          " takes one number or [vertical, horizontal], got ", v, ".");
    return {v[0], v[v.size() - 1]};
  };
  PoolAttrs attrs;
  attrs.kernel = pair(kernel, "kernel_size");
  // Windows lie side by side unless a stride is given.
  attrs.stride = stride.empty() ? attrs.kernel : pair(stride, "stride");
  attrs.padding = pair(padding, "padding");
  attrs.dilation = pair(dilation, "dilation");
  attrs.ceil_mode = ceil_mode;
  attrs.count_include_pad = count_include_pad;
  return attrs;
}

}  // namespace

Tensor max_pool2d(const Tensor& x, IntArrayRef kernel_size, IntArrayRef stride, IntArrayRef padding,
                  IntArrayRef dilation, bool ceil_mode) {
  GRAPNEL_CALL_SITE;
  return apply_all<MaxPool2d>(
      pool_attrs("max_pool2d", kernel_size, stride, padding, dilation, ceil_mode, true), x)[0];
}
Tensor avg_pool2d(const Tensor& x, IntArrayRef kernel_size, IntArrayRef stride, IntArrayRef padding,
                  bool ceil_mode, bool count_include_pad) {
  GRAPNEL_CALL_SITE;
  return apply<AvgPool2d>(
      pool_attrs("avg_pool2d", kernel_size, stride, padding, {1}, ceil_mode, count_include_pad), x);
}

}  // namespace grapnel
