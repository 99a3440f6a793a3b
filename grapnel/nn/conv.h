/// Conv1d and Conv2d, ConvTranspose1d and ConvTranspose2d.
///
///   nn::Conv2d conv(nn::Conv2dOptions(3, 8, 3).stride(2).padding(1));
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "grapnel/base/arg.h"
#include "grapnel/nn/expanding_array.h"
#include "grapnel/nn/module_holder.h"

namespace grapnel::nn {

/// `same` keeps the size of the input (for stride 1), `valid` pads nothing.
enum class Padding : uint8_t { valid, same };
/// What stands in the padded places: zeros, the mirrored input, its edge, or the other end.
enum class PaddingMode : uint8_t { zeros, reflect, replicate, circular };

/// Numbers of elements on each side, or a Padding.
template <size_t D>
class ConvPadding {
 public:
  ConvPadding(int64_t all) : sizes_(all) {}
  ConvPadding(std::initializer_list<int64_t> each) : sizes_(each) {}
  ConvPadding(ExpandingArray<D> sizes) : sizes_(sizes) {}
  ConvPadding(Padding kind) : sizes_(0), same_(kind == Padding::same) {}
  const ExpandingArray<D>& sizes() const { return sizes_; }
  bool is_same() const { return same_; }

 private:
  ExpandingArray<D> sizes_;
  bool same_ = false;
};

/// Channels, kernel, and how it moves.
template <size_t D>
struct ConvOptions {
  ConvOptions(int64_t in_channels, int64_t out_channels, ExpandingArray<D> kernel_size)
      : in_channels_(in_channels), out_channels_(out_channels), kernel_size_(kernel_size) {}
  GRAPNEL_ARG(int64_t, in_channels);
  GRAPNEL_ARG(int64_t, out_channels);
  GRAPNEL_ARG(ExpandingArray<D>, kernel_size);
  GRAPNEL_ARG(ExpandingArray<D>, stride) = 1;
  GRAPNEL_ARG(ConvPadding<D>, padding) = 0;
  GRAPNEL_ARG(ExpandingArray<D>, dilation) = 1;
  GRAPNEL_ARG(int64_t, groups) = 1;
  GRAPNEL_ARG(bool, bias) = true;
  GRAPNEL_ARG(PaddingMode, padding_mode) = PaddingMode::zeros;
};
using Conv1dOptions = ConvOptions<1>;
using Conv2dOptions = ConvOptions<2>;

/// What both have: weight [out_channels, in_channels / groups, kernel...] and bias [out_channels].
template <size_t D, class Derived>
class ConvNdImpl : public Cloneable<Derived> {
 public:
  ConvNdImpl(int64_t in_channels, int64_t out_channels, ExpandingArray<D> kernel_size)
      : ConvNdImpl(ConvOptions<D>(in_channels, out_channels, kernel_size)) {}
  explicit ConvNdImpl(const ConvOptions<D>& options_);

  void reset() override;
  /// Both uniform in +-1 / sqrt(fan_in), drawn from the default generator.
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;
  /// Input [batch, in_channels, ...], or one example without its batch dimension.
  Tensor forward(const Tensor& input);

  ConvOptions<D> options;
  Tensor weight, bias;
};

/// x [batch, channels, length]
class Conv1dImpl : public ConvNdImpl<1, Conv1dImpl> {
 public:
  using ConvNdImpl::ConvNdImpl;
};
GRAPNEL_MODULE(Conv1d);
/// x [batch, channels, height, width]
class Conv2dImpl : public ConvNdImpl<2, Conv2dImpl> {
 public:
  using ConvNdImpl::ConvNdImpl;
};
GRAPNEL_MODULE(Conv2d);

extern template class ConvNdImpl<1, Conv1dImpl>;
extern template class ConvNdImpl<2, Conv2dImpl>;

/// Channels, kernel, and how it moves. `output_padding` adds elements at one end, where a stride lets
/// several sizes fit.
template <size_t D>
struct ConvTransposeOptions {
  ConvTransposeOptions(int64_t in_channels, int64_t out_channels, ExpandingArray<D> kernel_size)
      : in_channels_(in_channels), out_channels_(out_channels), kernel_size_(kernel_size) {}
  GRAPNEL_ARG(int64_t, in_channels);
  GRAPNEL_ARG(int64_t, out_channels);
  GRAPNEL_ARG(ExpandingArray<D>, kernel_size);
  GRAPNEL_ARG(ExpandingArray<D>, stride) = 1;
  GRAPNEL_ARG(ExpandingArray<D>, padding) = 0;
  GRAPNEL_ARG(ExpandingArray<D>, output_padding) = 0;
  GRAPNEL_ARG(int64_t, groups) = 1;
  GRAPNEL_ARG(bool, bias) = true;
  GRAPNEL_ARG(ExpandingArray<D>, dilation) = 1;
};
using ConvTranspose1dOptions = ConvTransposeOptions<1>;
using ConvTranspose2dOptions = ConvTransposeOptions<2>;

/// What both have: weight [in_channels, out_channels / groups, kernel...] and bias [out_channels].
template <size_t D, class Derived>
class ConvTransposeNdImpl : public Cloneable<Derived> {
 public:
  ConvTransposeNdImpl(int64_t in_channels, int64_t out_channels, ExpandingArray<D> kernel_size)
      : ConvTransposeNdImpl(ConvTransposeOptions<D>(in_channels, out_channels, kernel_size)) {}
  explicit ConvTransposeNdImpl(const ConvTransposeOptions<D>& options_);

  void reset() override;
  /// Both uniform in +-1 / sqrt(fan_in), drawn from the default generator.
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;
  /// Input [batch, in_channels, ...], or one example without its batch dimension. `output_size` (the
  /// last sizes of the result) takes the place of `output_padding`.
  Tensor forward(const Tensor& input, const std::optional<std::vector<int64_t>>& output_size = {});

  ConvTransposeOptions<D> options;
  Tensor weight, bias;
};

/// x [batch, channels, length]
class ConvTranspose1dImpl : public ConvTransposeNdImpl<1, ConvTranspose1dImpl> {
 public:
  using ConvTransposeNdImpl::ConvTransposeNdImpl;
};
GRAPNEL_MODULE(ConvTranspose1d);
/// x [batch, channels, height, width]
class ConvTranspose2dImpl : public ConvTransposeNdImpl<2, ConvTranspose2dImpl> {
 public:
  using ConvTransposeNdImpl::ConvTransposeNdImpl;
};
GRAPNEL_MODULE(ConvTranspose2d);

extern template class ConvTransposeNdImpl<1, ConvTranspose1dImpl>;
extern template class ConvTransposeNdImpl<2, ConvTranspose2dImpl>;

}  // namespace grapnel::nn
