#include "grapnel/nn/upsampling.h"

#include <cmath>

#include "grapnel/ops/op_site.h"

namespace grapnel::nn {

Tensor functional::upsample(const Tensor& x, const UpsampleOptions& options,
                            bool recompute_scale_factor) {
  GRAPNEL_CALL_SITE;
  const auto& size = options.size();
  const auto& factor = options.scale_factor();
  check(size.has_value() != factor.has_value(),
        "interpolate: either a size or a scale_factor is needed, and not both.");
  check(x.dim() >= 3, "interpolate: x must be [batch, channels, sizes...], got shape ", x.shape(),
        ".");
  check(!options.align_corners() || options.mode() == Interpolation::linear ||
            options.mode() == Interpolation::bilinear || options.mode() == Interpolation::trilinear,
        "interpolate: align_corners is for linear, bilinear and trilinear interpolation.");
  const auto dims = static_cast<size_t>(x.dim() - 2), given = size ? size->size() : factor->size();
  check(given == 1 || given == dims, "interpolate: got ", given, " numbers for ", dims,
        " dimensions of pixels.");
  std::vector<int64_t> sizes;
  std::vector<double> scales;
  for (size_t i = 0; i < dims; ++i) {
    const size_t at = given == 1 ? 0 : i;
    if (size) {
      sizes.push_back((*size)[at]);
      continue;
    }
    const auto pixels = static_cast<double>(x.size(static_cast<int64_t>(i) + 2));
    const double scaled = std::floor(pixels * (*factor)[at]);
    check(scaled >= 1 && scaled < 1e18, "interpolate: a scale_factor of ", (*factor)[at], " makes ",
          scaled, " pixels of ", pixels, ".");
    sizes.push_back(static_cast<int64_t>(scaled));
    if (!recompute_scale_factor) scales.push_back((*factor)[at]);
  }
  return interpolate(x, sizes, options.mode(), options.align_corners().value_or(false), scales);
}

void UpsampleImpl::pretty_print(std::ostream& stream) const {
  static constexpr const char* names[] = {"nearest", "nearest-exact", "linear", "bilinear",
                                          "trilinear"};
  stream << "grapnel::nn::Upsample(";
  if (options.scale_factor()) {
    stream << "scale_factor=[";
    for (size_t i = 0; i < options.scale_factor()->size(); ++i)
      stream << (i ? ", " : "") << (*options.scale_factor())[i];
    stream << ']';
  } else if (options.size()) {
    stream << "size=" << IntArrayRef(*options.size());
  }
  stream << ", mode=" << names[static_cast<size_t>(options.mode())] << ')';
}

}  // namespace grapnel::nn
