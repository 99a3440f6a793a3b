/// Images in another size: interpolation, and pixels that move between channels and places.
#pragma once

#include <optional>
#include <span>

#include "grapnel/functions/functions.h"

namespace grapnel {

/// How a pixel between others comes about: as the nearest of them (`nearest` takes the one before
/// it), or as a weighted mean of two neighbours in each of one, two or three dimensions.
enum class Interpolation : uint8_t { nearest, nearest_exact, linear, bilinear, trilinear };

/// x [batch, channels, sizes...] in the sizes named. `align_corners` lets the centres of the corner
/// pixels of both lie on each other, instead of their outer edges. `scales` holds the exact ratio
/// of the sizes for each dimension where it matters that they were rounded.
Tensor interpolate(const Tensor& x, IntArrayRef size, Interpolation mode = Interpolation::nearest,
                   bool align_corners = false, std::span<const double> scales = {});

/// [..., c * factor^2, h, w] to [..., c, h * factor, w * factor]
Tensor pixel_shuffle(const Tensor& x, int64_t upscale_factor);
/// [..., c, h * factor, w * factor] to [..., c * factor^2, h, w]
Tensor pixel_unshuffle(const Tensor& x, int64_t downscale_factor);

}  // namespace grapnel
