/// Layers that make images larger: Upsample, PixelShuffle, PixelUnshuffle.
///
///   nn::Upsample up(nn::UpsampleOptions().scale_factor({2, 2}).mode(Interpolation::bilinear));
#pragma once

#include <optional>
#include <vector>

#include "grapnel/base/arg.h"
#include "grapnel/functions/resizing.h"
#include "grapnel/nn/module_holder.h"

namespace grapnel::nn {

/// Either the sizes of the result or their ratio to those of the input, one number for each
/// dimension of pixels or one for all.
struct UpsampleOptions {
  GRAPNEL_ARG(std::optional<std::vector<int64_t>>, size);
  GRAPNEL_ARG(std::optional<std::vector<double>>, scale_factor);
  GRAPNEL_ARG(Interpolation, mode) = Interpolation::nearest;
  /// Whether the centres of the corner pixels lie on each other; not for `nearest`.
  GRAPNEL_ARG(std::optional<bool>, align_corners);
};

namespace functional {
/// Interpolation with sizes or factors. With `recompute_scale_factor` the ratio of the rounded sizes
/// counts instead of the factor.
Tensor upsample(const Tensor& x, const UpsampleOptions& options,
                bool recompute_scale_factor = false);
}  // namespace functional

/// Interpolates [batch, channels, sizes...].
class UpsampleImpl : public Cloneable<UpsampleImpl> {
 public:
  explicit UpsampleImpl(const UpsampleOptions& options_ = {}) : options(options_) {}
  void reset() override {}
  void pretty_print(std::ostream& stream) const override;
  Tensor forward(const Tensor& input) { return functional::upsample(input, options); }

  UpsampleOptions options;
};
GRAPNEL_MODULE(Upsample);

struct PixelShuffleOptions {
  PixelShuffleOptions(int64_t upscale_factor) : upscale_factor_(upscale_factor) {}
  GRAPNEL_ARG(int64_t, upscale_factor);
};
/// [..., c * factor^2, h, w] to [..., c, h * factor, w * factor]
class PixelShuffleImpl : public Cloneable<PixelShuffleImpl> {
 public:
  explicit PixelShuffleImpl(const PixelShuffleOptions& options_) : options(options_) {}
  void reset() override {}
  void pretty_print(std::ostream& stream) const override {
    stream << "grapnel::nn::PixelShuffle(upscale_factor=" << options.upscale_factor() << ')';
  }
  Tensor forward(const Tensor& input) { return pixel_shuffle(input, options.upscale_factor()); }

  PixelShuffleOptions options;
};
GRAPNEL_MODULE(PixelShuffle);

struct PixelUnshuffleOptions {
  PixelUnshuffleOptions(int64_t downscale_factor) : downscale_factor_(downscale_factor) {}
  GRAPNEL_ARG(int64_t, downscale_factor);
};
/// [..., c, h * factor, w * factor] to [..., c * factor^2, h, w]
class PixelUnshuffleImpl : public Cloneable<PixelUnshuffleImpl> {
 public:
  explicit PixelUnshuffleImpl(const PixelUnshuffleOptions& options_) : options(options_) {}
  void reset() override {}
  void pretty_print(std::ostream& stream) const override {
    stream << "grapnel::nn::PixelUnshuffle(downscale_factor=" << options.downscale_factor() << ')';
  }
  Tensor forward(const Tensor& input) { return pixel_unshuffle(input, options.downscale_factor()); }

  PixelUnshuffleOptions options;
};
GRAPNEL_MODULE(PixelUnshuffle);

}  // namespace grapnel::nn
