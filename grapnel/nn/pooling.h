/// Pooling layers: MaxPool1d, MaxPool2d, AvgPool1d, AvgPool2d, and the adaptive ones, which are
/// told the size of the result.
#pragma once

#include <optional>

#include "grapnel/base/arg.h"
#include "grapnel/nn/expanding_array.h"
#include "grapnel/nn/module_holder.h"

namespace grapnel::nn {

/// The stride is the kernel's size unless told otherwise.
template <size_t D>
struct MaxPoolOptions {
  MaxPoolOptions(ExpandingArray<D> kernel_size) : kernel_size_(kernel_size), stride_(kernel_size) {}
  GRAPNEL_ARG(ExpandingArray<D>, kernel_size);
  GRAPNEL_ARG(ExpandingArray<D>, stride);
  GRAPNEL_ARG(ExpandingArray<D>, padding) = 0;
  GRAPNEL_ARG(ExpandingArray<D>, dilation) = 1;
  GRAPNEL_ARG(bool, ceil_mode) = false;
};
/// The stride is the kernel's size unless told otherwise.
template <size_t D>
struct AvgPoolOptions {
  AvgPoolOptions(ExpandingArray<D> kernel_size) : kernel_size_(kernel_size), stride_(kernel_size) {}
  GRAPNEL_ARG(ExpandingArray<D>, kernel_size);
  GRAPNEL_ARG(ExpandingArray<D>, stride);
  GRAPNEL_ARG(ExpandingArray<D>, padding) = 0;
  GRAPNEL_ARG(bool, ceil_mode) = false;
  GRAPNEL_ARG(bool, count_include_pad) = true;
};
using MaxPool1dOptions = MaxPoolOptions<1>;
using MaxPool2dOptions = MaxPoolOptions<2>;
using AvgPool1dOptions = AvgPoolOptions<1>;
using AvgPool2dOptions = AvgPoolOptions<2>;

/// Sizes of the result; -1 keeps the input's.
template <size_t D>
struct AdaptivePoolOptions {
  AdaptivePoolOptions(ExpandingArray<D> output_size) : output_size_(output_size) {}
  GRAPNEL_ARG(ExpandingArray<D>, output_size);
};
using AdaptiveAvgPool1dOptions = AdaptivePoolOptions<1>;
using AdaptiveAvgPool2dOptions = AdaptivePoolOptions<2>;
using AdaptiveMaxPool1dOptions = AdaptivePoolOptions<1>;
using AdaptiveMaxPool2dOptions = AdaptivePoolOptions<2>;

// All have the same face: options in, [batch, channels, ...] to a smaller one.
#define GRAPNEL_POOL(Name, D)                                                        \
  class Name##Impl : public Cloneable<Name##Impl> {                                  \
   public:                                                                           \
    explicit Name##Impl(const Name##Options& options_) : options(options_) {}        \
    explicit Name##Impl(ExpandingArray<D> size) : Name##Impl(Name##Options(size)) {} \
    void reset() override {}                                                         \
    void pretty_print(std::ostream& stream) const override;                          \
    Tensor forward(const Tensor& input);                                             \
    Name##Options options;                                                           \
  };                                                                                 \
  GRAPNEL_MODULE(Name)
/// The largest value of each window.
GRAPNEL_POOL(MaxPool1d, 1);
/// The largest value of each window.
GRAPNEL_POOL(MaxPool2d, 2);
/// The mean of each window.
GRAPNEL_POOL(AvgPool1d, 1);
/// The mean of each window.
GRAPNEL_POOL(AvgPool2d, 2);
/// Means of windows that give the size asked for.
GRAPNEL_POOL(AdaptiveAvgPool1d, 1);
/// Means of windows that give the size asked for.
GRAPNEL_POOL(AdaptiveAvgPool2d, 2);
/// Largest values of windows that give the size asked for.
GRAPNEL_POOL(AdaptiveMaxPool1d, 1);
/// Largest values of windows that give the size asked for.
GRAPNEL_POOL(AdaptiveMaxPool2d, 2);
#undef GRAPNEL_POOL

}  // namespace grapnel::nn
