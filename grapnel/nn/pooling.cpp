#include "grapnel/nn/pooling.h"

#include "grapnel/nn/functional.h"

namespace grapnel::nn {

namespace {
void print(std::ostream& stream, const char* name, const auto& o) {
  stream << "grapnel::nn::" << name << '(';
  if constexpr (requires { o.output_size(); }) stream << "output_size=" << o.output_size() << ')';
  else
    stream << "kernel_size=" << o.kernel_size() << ", stride=" << o.stride()
           << ", padding=" << o.padding() << ')';
}
}  // namespace

#define GRAPNEL_POOL_PRINT(Name) \
  void Name##Impl::pretty_print(std::ostream& stream) const { print(stream, #Name, options); }
GRAPNEL_POOL_PRINT(MaxPool1d)
GRAPNEL_POOL_PRINT(MaxPool2d)
GRAPNEL_POOL_PRINT(AvgPool1d)
GRAPNEL_POOL_PRINT(AvgPool2d)
GRAPNEL_POOL_PRINT(AdaptiveAvgPool1d)
GRAPNEL_POOL_PRINT(AdaptiveAvgPool2d)
GRAPNEL_POOL_PRINT(AdaptiveMaxPool1d)
GRAPNEL_POOL_PRINT(AdaptiveMaxPool2d)
#undef GRAPNEL_POOL_PRINT

Tensor MaxPool1dImpl::forward(const Tensor& x) {
  return functional::max_pool1d(x, options.kernel_size()[0], options.stride()[0],
                                options.padding()[0], options.dilation()[0], options.ceil_mode());
}
Tensor MaxPool2dImpl::forward(const Tensor& x) {
  return max_pool2d(x, options.kernel_size(), options.stride(), options.padding(),
                    options.dilation(), options.ceil_mode());
}
Tensor AvgPool1dImpl::forward(const Tensor& x) {
  return functional::avg_pool1d(x, options.kernel_size()[0], options.stride()[0],
                                options.padding()[0], options.ceil_mode(),
                                options.count_include_pad());
}
Tensor AvgPool2dImpl::forward(const Tensor& x) {
  return avg_pool2d(x, options.kernel_size(), options.stride(), options.padding(),
                    options.ceil_mode(), options.count_include_pad());
}
Tensor AdaptiveAvgPool1dImpl::forward(const Tensor& x) {
  return functional::adaptive_avg_pool(x, options.output_size());
}
Tensor AdaptiveAvgPool2dImpl::forward(const Tensor& x) {
  return functional::adaptive_avg_pool(x, options.output_size());
}
Tensor AdaptiveMaxPool1dImpl::forward(const Tensor& x) {
  return functional::adaptive_max_pool(x, options.output_size());
}
Tensor AdaptiveMaxPool2dImpl::forward(const Tensor& x) {
  return functional::adaptive_max_pool(x, options.output_size());
}

}  // namespace grapnel::nn
