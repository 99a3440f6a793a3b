#include "grapnel/nn/conv.h"

#include <algorithm>
#include <cmath>

#include "grapnel/base/checked.h"
#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"
#include "grapnel/nn/init.h"
#include "grapnel/ops/vectors.h"

namespace grapnel::nn {

namespace {

/// Which element of [0, size) stands at `place` outside of it.
int64_t source_of(int64_t place, int64_t size, PaddingMode mode) {
  if (mode == PaddingMode::replicate) return std::clamp<int64_t>(place, 0, size - 1);
  if (mode == PaddingMode::circular) return (place + size) % size;
  return place < 0 ? -place : place >= size ? 2 * (size - 1) - place : place;
}

/// `x` with `before` and `after` elements more along `dim`, taken from x itself.
Tensor pad_from_itself(const Tensor& x, int64_t dim, int64_t before, int64_t after,
                       PaddingMode mode) {
  const int64_t padding = checked_add(before, after, "conv, padding");
  const int64_t size = x.size(dim), most = mode == PaddingMode::reflect    ? size - 1
                                           : mode == PaddingMode::circular ? size
                                                                           : padding;
  check(size > 0 && std::max(before, after) <= most, "conv: padding by ", std::max(before, after),
        " needs more than the ", size, " elements that the input has in dimension ", dim, ".");
  std::vector<int64_t> index;
  index.reserve(static_cast<size_t>(checked_add(size, padding, "conv, padding")));
  for (int64_t i = -before; i < size + after; ++i) index.push_back(source_of(i, size, mode));
  return x.index_select(dim, from_vector(index).to(x.device()));
}

Tensor conv(const Tensor& x, const Tensor& w, const Tensor& b, const ConvOptions<1>& o,
            IntArrayRef padding) {
  return conv1d(x, w, b, o.stride(), padding, o.dilation(), o.groups());
}
Tensor conv(const Tensor& x, const Tensor& w, const Tensor& b, const ConvOptions<2>& o,
            IntArrayRef padding) {
  return conv2d(x, w, b, o.stride(), padding, o.dilation(), o.groups());
}

}  // namespace

template <size_t D, class Derived>
ConvNdImpl<D, Derived>::ConvNdImpl(const ConvOptions<D>& options_) : options(options_) {
  check(options.in_channels() > 0 && options.out_channels() > 0, "Conv", D,
        "d: in_channels and out_channels must be positive, got ", options.in_channels(), " and ",
        options.out_channels(), ".");
  check(options.groups() > 0 && options.in_channels() % options.groups() == 0 &&
            options.out_channels() % options.groups() == 0,
        "Conv", D, "d: groups must divide in_channels and out_channels, got groups ",
        options.groups(), ", in_channels ", options.in_channels(), " and out_channels ",
        options.out_channels(), ".");
  for (size_t i = 0; i < D; ++i)
    check(!options.padding().is_same() || options.stride()[i] == 1, "Conv", D,
          "d: the padding `same` needs stride 1, got ", options.stride(), ".");
  ConvNdImpl::reset();
}

template <size_t D, class Derived>
void ConvNdImpl<D, Derived>::reset() {
  Shape shape{options.out_channels(), options.in_channels() / options.groups()};
  for (const int64_t k : *options.kernel_size()) shape.push_back(k);
  weight = this->register_parameter("weight", empty(shape));
  bias =
      this->register_parameter("bias", options.bias() ? empty({options.out_channels()}) : Tensor());
  reset_parameters();
}

template <size_t D, class Derived>
void ConvNdImpl<D, Derived>::reset_parameters() {
  init::kaiming_uniform_(weight, std::sqrt(5.0));
  if (!bias.defined()) return;
  const double bound =
      1 / std::sqrt(static_cast<double>(std::max<int64_t>(1, init::fans_of(weight).in)));
  init::uniform_(bias, -bound, bound);
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
  Tensor x = input;
  if (options.padding_mode() != PaddingMode::zeros) {
    for (size_t i = 0; i < D; ++i)
      if (before[i] > 0 || after[i] > 0)
        x = pad_from_itself(x, static_cast<int64_t>(i) + 2, before[i], after[i],
                            options.padding_mode());
    return conv(x, weight, bias, options, std::array<int64_t, D>{});
  }
  // The op pads both sides alike. With one element too many in front (and stride 1), the first
  // result is one too many.
  Tensor y = conv(x, weight, bias, options, after);
  for (size_t i = 0; i < D; ++i)
    if (after[i] > before[i]) y = y.slice(static_cast<int64_t>(i) + 2, after[i] - before[i]);
  return y;
}

template class ConvNdImpl<1, Conv1dImpl>;
template class ConvNdImpl<2, Conv2dImpl>;

}  // namespace grapnel::nn
