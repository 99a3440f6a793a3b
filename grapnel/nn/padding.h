/// Padding layers: elements added around the last one, two or three dimensions.
///
///   nn::ReflectionPad2d pad(nn::ReflectionPad2dOptions({1, 1, 2, 0}));  // left, right, top, bottom
#pragma once

#include "grapnel/base/arg.h"
#include "grapnel/functions/padding.h"
#include "grapnel/nn/expanding_array.h"
#include "grapnel/nn/module_holder.h"

namespace grapnel::nn {

/// How many elements to add before and after the last dimension, then those of the one before it.
template <size_t D>
struct PadOptions {
  PadOptions(ExpandingArray<2 * D> padding) : padding_(padding) {}
  GRAPNEL_ARG(ExpandingArray<2 * D>, padding);
};
/// The same, and what stands there.
template <size_t D>
struct ConstantPadOptions {
  ConstantPadOptions(ExpandingArray<2 * D> padding, double value = 0)
      : padding_(padding), value_(value) {}
  GRAPNEL_ARG(ExpandingArray<2 * D>, padding);
  GRAPNEL_ARG(double, value);
};

namespace detail {
void print_pad(std::ostream& stream, const char* name, IntArrayRef padding);
}

// All have the same face: [batch, channels, ...] to a larger one.
#define GRAPNEL_PAD(Name, D, mode)                                                             \
  class Name##Impl : public Cloneable<Name##Impl> {                                            \
   public:                                                                                     \
    explicit Name##Impl(const PadOptions<D>& options_) : options(options_) {}                  \
    explicit Name##Impl(ExpandingArray<2 * D> padding) : Name##Impl(PadOptions<D>(padding)) {} \
    void reset() override {}                                                                   \
    void pretty_print(std::ostream& stream) const override {                                   \
      detail::print_pad(stream, #Name, options.padding());                                     \
    }                                                                                          \
    Tensor forward(const Tensor& input) { return pad(input, options.padding(), mode); }        \
    PadOptions<D> options;                                                                     \
  };                                                                                           \
  GRAPNEL_MODULE(Name);                                                                        \
  using Name##Options = PadOptions<D>
/// Pads with the mirrored input.
GRAPNEL_PAD(ReflectionPad1d, 1, PadMode::reflect);
/// Pads with the mirrored input.
GRAPNEL_PAD(ReflectionPad2d, 2, PadMode::reflect);
/// Pads with the mirrored input.
GRAPNEL_PAD(ReflectionPad3d, 3, PadMode::reflect);
/// Pads with the edge of the input.
GRAPNEL_PAD(ReplicationPad1d, 1, PadMode::replicate);
/// Pads with the edge of the input.
GRAPNEL_PAD(ReplicationPad2d, 2, PadMode::replicate);
/// Pads with the edge of the input.
GRAPNEL_PAD(ReplicationPad3d, 3, PadMode::replicate);
/// Pads with zeros.
GRAPNEL_PAD(ZeroPad1d, 1, PadMode::constant);
/// Pads with zeros.
GRAPNEL_PAD(ZeroPad2d, 2, PadMode::constant);
/// Pads with zeros.
GRAPNEL_PAD(ZeroPad3d, 3, PadMode::constant);
#undef GRAPNEL_PAD

#define GRAPNEL_PAD(Name, D)                                                          \
  class Name##Impl : public Cloneable<Name##Impl> {                                   \
   public:                                                                            \
    explicit Name##Impl(const ConstantPadOptions<D>& options_) : options(options_) {} \
    Name##Impl(ExpandingArray<2 * D> padding, double value)                           \
        : Name##Impl(ConstantPadOptions<D>(padding, value)) {}                        \
    void reset() override {}                                                          \
    void pretty_print(std::ostream& stream) const override {                          \
      detail::print_pad(stream, #Name, options.padding());                            \
    }                                                                                 \
    Tensor forward(const Tensor& input) {                                             \
      return pad(input, options.padding(), PadMode::constant, options.value());       \
    }                                                                                 \
    ConstantPadOptions<D> options;                                                    \
  };                                                                                  \
  GRAPNEL_MODULE(Name);                                                               \
  using Name##Options = ConstantPadOptions<D>
/// Pads with a number.
GRAPNEL_PAD(ConstantPad1d, 1);
/// Pads with a number.
GRAPNEL_PAD(ConstantPad2d, 2);
/// Pads with a number.
GRAPNEL_PAD(ConstantPad3d, 3);
#undef GRAPNEL_PAD

}  // namespace grapnel::nn
