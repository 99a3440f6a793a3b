#include "grapnel/nn/conv.h"

#include <algorithm>
#include <cmath>

#include "grapnel/base/checked.h"
#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"
#include "grapnel/functions/padding.h"
#include "grapnel/nn/init.h"

namespace grapnel::nn {

namespace {

/// The choice of pad() for a layer.
PadMode pad_mode(PaddingMode mode) {
  switch (mode) {
    case PaddingMode::zeros: return PadMode::constant;
    case PaddingMode::reflect: return PadMode::reflect;
    case PaddingMode::replicate: return PadMode::replicate;
    case PaddingMode::circular: return PadMode::circular;
  }
  __builtin_unreachable();
}

Tensor conv(const Tensor& x, const Tensor& w, const Tensor& b, const ConvOptions<1>& o,
            IntArrayRef padding) {
  return conv1d(x, w, b, o.stride(), padding, o.dilation(), o.groups());
}
Tensor conv(const Tensor& x, const Tensor& w, const Tensor& b, const ConvOptions<2>& o,
            IntArrayRef padding) {
  return conv2d(x, w, b, o.stride(), padding, o.dilation(), o.groups());
}

Tensor conv_transpose(const Tensor& x, const Tensor& w, const Tensor& b,
                      const ConvTransposeOptions<1>& o, IntArrayRef output_padding) {
  return conv_transpose1d(x, w, b, o.stride(), o.padding(), output_padding, o.groups(),
                          o.dilation());
}
Tensor conv_transpose(const Tensor& x, const Tensor& w, const Tensor& b,
                      const ConvTransposeOptions<2>& o, IntArrayRef output_padding) {
  return conv_transpose2d(x, w, b, o.stride(), o.padding(), output_padding, o.groups(),
                          o.dilation());
}

void start_weights(const Tensor& weight, const Tensor& bias) {
  init::kaiming_uniform_(weight, std::sqrt(5.0));
  if (!bias.defined()) return;
  const double bound =
      1 / std::sqrt(static_cast<double>(std::max<int64_t>(1, init::fans_of(weight).in)));
  init::uniform_(bias, -bound, bound);
}

/// A weight whose sizes begin with `channels`, and a bias if there is to be one.
void register_weights(auto& conv, Shape channels) {
  for (const int64_t k : *conv.options.kernel_size()) channels.push_back(k);
  conv.weight = conv.register_parameter("weight", empty(channels));
  conv.bias = conv.register_parameter(
      "bias", conv.options.bias() ? empty({conv.options.out_channels()}) : Tensor());
}

template <size_t D>
void check_channels(const char* name, const auto& options) {
  check(options.in_channels() > 0 && options.out_channels() > 0, name, D,
        "d: in_channels and out_channels must be positive, got ", options.in_channels(), " and ",
        options.out_channels(), ".");
  check(options.groups() > 0 && options.in_channels() % options.groups() == 0 &&
            options.out_channels() % options.groups() == 0,
        name, D, "d: groups must divide in_channels and out_channels, got groups ",
        options.groups(), ", in_channels ", options.in_channels(), " and out_channels ",
        options.out_channels(), ".");
}

}  // namespace

template <size_t D, class Derived>
ConvNdImpl<D, Derived>::ConvNdImpl(const ConvOptions<D>& options_) : options(options_) {
  check_channels<D>("Conv", options);
  for (size_t i = 0; i < D; ++i)
    check(!options.padding().is_same() || options.stride()[i] == 1, "Conv", D,
          "d: the padding `same` needs stride 1, got ", options.stride(), ".");
  ConvNdImpl::reset();
}

template <size_t D, class Derived>
void ConvNdImpl<D, Derived>::reset() {
  register_weights(*this, {options.out_channels(), options.in_channels() / options.groups()});
  reset_parameters();
}

template <size_t D, class Derived>
void ConvNdImpl<D, Derived>::reset_parameters() {
  start_weights(weight, bias);
}

template <size_t D, class Derived>
void ConvNdImpl<D, Derived>::pretty_print(std::ostream& stream) const {
  stream << "grapnel::nn::Conv" << D << "d(" << options.in_channels() << ", "
         << options.out_channels() << ", kernel_size=" << options.kernel_size()
         << ", stride=" << options.stride();
  if (options.padding().is_same()) stream << ", padding=same";
  else if (std::ranges::any_of(*options.padding().sizes(), [](int64_t n) { return n != 0; }))
    stream << ", padding=" << options.padding().sizes();
  if (std::ranges::any_of(*options.dilation(), [](int64_t n) { return n != 1; }))
    stream << ", dilation=" << options.dilation();
  if (options.groups() != 1) stream << ", groups=" << options.groups();
  if (!options.bias()) stream << ", bias=false";
  stream << ')';
}

template <size_t D, class Derived>
Tensor ConvNdImpl<D, Derived>::forward(const Tensor& input) {
  if (input.dim() == static_cast<int64_t>(D) + 1) return forward(input.unsqueeze(0)).squeeze(0);
  std::array<int64_t, D> before = *options.padding().sizes(), after = before;
  if (options.padding().is_same())
    for (size_t i = 0; i < D; ++i) {
      const int64_t total = checked_mul(options.dilation()[i],
                                        checked_sub(options.kernel_size()[i], int64_t{1}, "conv"),
                                        "conv, reach of the kernel");
      before[i] = total / 2, after[i] = total - before[i];
    }
  if (options.padding_mode() != PaddingMode::zeros) {
    Shape padding;
    for (size_t i = D; i-- > 0;) padding.push_back(before[i]), padding.push_back(after[i]);
    const Tensor x = pad(input, padding, pad_mode(options.padding_mode()));
    return conv(x, weight, bias, options, std::array<int64_t, D>{});
  }
  // The op pads both sides alike. With one element too many in front (and stride 1), the first
  // result is one too many.
  Tensor y = conv(input, weight, bias, options, after);
  for (size_t i = 0; i < D; ++i)
    if (after[i] > before[i]) y = y.slice(static_cast<int64_t>(i) + 2, after[i] - before[i]);
  return y;
}

template class ConvNdImpl<1, Conv1dImpl>;
template class ConvNdImpl<2, Conv2dImpl>;

// --- ConvTranspose ---

template <size_t D, class Derived>
ConvTransposeNdImpl<D, Derived>::ConvTransposeNdImpl(const ConvTransposeOptions<D>& options_)
    : options(options_) {
  check_channels<D>("ConvTranspose", options);
  ConvTransposeNdImpl::reset();
}

template <size_t D, class Derived>
void ConvTransposeNdImpl<D, Derived>::reset() {
  register_weights(*this, {options.in_channels(), options.out_channels() / options.groups()});
  reset_parameters();
}

template <size_t D, class Derived>
void ConvTransposeNdImpl<D, Derived>::reset_parameters() {
  start_weights(weight, bias);
}

template <size_t D, class Derived>
void ConvTransposeNdImpl<D, Derived>::pretty_print(std::ostream& stream) const {
  stream << "grapnel::nn::ConvTranspose" << D << "d(" << options.in_channels() << ", "
         << options.out_channels() << ", kernel_size=" << options.kernel_size()
         << ", stride=" << options.stride() << ", padding=" << options.padding()
         << ", output_padding=" << options.output_padding() << ')';
}

template <size_t D, class Derived>
Tensor ConvTransposeNdImpl<D, Derived>::forward(
    const Tensor& input, const std::optional<std::vector<int64_t>>& output_size) {
  std::array<int64_t, D> added = *options.output_padding();
  if (output_size) {
    check(output_size->size() >= D && input.dim() > static_cast<int64_t>(D), "ConvTranspose", D,
          "d: output_size must hold ", D, " sizes, got ", IntArrayRef(*output_size), ".");
    for (size_t i = 0; i < D; ++i) {
      const int64_t wanted = (*output_size)[output_size->size() - D + i];
      const int64_t size = input.size(static_cast<int64_t>(i) - static_cast<int64_t>(D));
      const int64_t least = (size - 1) * options.stride()[i] - 2 * options.padding()[i] +
                            options.dilation()[i] * (options.kernel_size()[i] - 1) + 1;
      check(wanted >= least && wanted < least + options.stride()[i], "ConvTranspose", D,
            "d: a size of ", wanted, " was asked for, but it is between ", least, " and ",
            least + options.stride()[i] - 1, " for an input of shape ", input.shape(), ".");
      added[i] = wanted - least;
    }
  }
  return conv_transpose(input, weight, bias, options, added);
}

template class ConvTransposeNdImpl<1, ConvTranspose1dImpl>;
template class ConvTransposeNdImpl<2, ConvTranspose2dImpl>;

}  // namespace grapnel::nn
