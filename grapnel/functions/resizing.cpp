/// Interpolation, one dimension after the other: rows are picked, or two of them are mixed.
#include "grapnel/functions/resizing.h"

#include <algorithm>
#include <cmath>

#include "grapnel/base/checked.h"
#include "grapnel/ops/op_site.h"
#include "grapnel/ops/vectors.h"

namespace grapnel {

namespace {

/// Where the pixels of the result lie in a dimension of x.
struct Scale {
  int64_t in, out;
  bool exact;   ///< the step is in / out, and not a number that somebody rounded
  double step;  ///< pixels of x for one of the result

  Scale(int64_t from, int64_t to, bool align_corners, double scale) : in(from), out(to) {
    const bool even = static_cast<double>(in) * scale == static_cast<double>(out);
    exact = !align_corners && (!(scale > 0) || even);
    if (align_corners)
      step = out > 1 ? static_cast<double>(in - 1) / static_cast<double>(out - 1) : 0;
    else step = exact ? static_cast<double>(in) / static_cast<double>(out) : 1 / scale;
  }
  /// The pixel of x in which a place >= 0 lies; the last one for those behind it, however far.
  int64_t pixel(double place) const {
    return static_cast<int64_t>(std::min(std::floor(place), static_cast<double>(in - 1)));
  }
};

/// The pixel in which the edge (`halves` = 0) or the centre (1) of each pixel of the result lies.
Tensor nearest(const Tensor& x, int64_t dim, const Scale& s, int64_t halves) {
  checked_mul(checked_mul(s.out, int64_t{2}, "interpolate"), s.in, "interpolate");
  std::vector<int64_t> index(static_cast<size_t>(s.out));
  for (int64_t i = 0; i < s.out; ++i) {
    const int64_t at = 2 * i + halves;  // in halves of a pixel
    const int64_t source =
        s.exact ? at * s.in / (2 * s.out)
                : s.pixel(static_cast<double>(at) / 2 * s.step);
    index[static_cast<size_t>(i)] = std::min(s.in - 1, source);
  }
  return x.index_select(dim, from_vector(index).to(x.device()));
}

Tensor linear_along(const Tensor& x, int64_t dim, const Scale& s, bool align_corners) {
  const auto n = static_cast<size_t>(s.out);
  std::vector<int64_t> below(n), above(n);
  std::vector<double> weight(n);
  for (size_t i = 0; i < n; ++i) {
    const auto place = static_cast<double>(i);
    const double at = align_corners ? place * s.step : std::max(0.0, (place + 0.5) * s.step - 0.5);
    below[i] = s.pixel(at);
    above[i] = std::min(s.in - 1, below[i] + 1);
    weight[i] = std::min(1.0, at - static_cast<double>(below[i]));
  }
  Shape column = Shape::filled(static_cast<int>(x.dim()), 1);
  column[static_cast<int>(dim)] = s.out;
  const Tensor w = from_vector(weight).to(TensorOptions(x.dtype()).device(x.device())).view(column);
  const Tensor low = x.index_select(dim, from_vector(below).to(x.device())),
               high = x.index_select(dim, from_vector(above).to(x.device()));
  return low * (1.0 - w) + high * w;
}

int64_t dims_of(Interpolation mode) {
  switch (mode) {
    case Interpolation::linear: return 1;
    case Interpolation::bilinear: return 2;
    case Interpolation::trilinear: return 3;
    default: return 0;
  }
}

void check_factor(const char* op, const Tensor& x, int64_t factor) {
  check(factor > 0 && x.dim() >= 3, op,
        ": x must be [..., channels, height, width] and the factor positive, got shape ", x.shape(),
        " and ", factor, ".");
}

}  // namespace

Tensor interpolate(const Tensor& x, IntArrayRef size, Interpolation mode, bool align_corners,
                   std::span<const double> scales) {
  GRAPNEL_CALL_SITE;
  const auto dims = static_cast<int64_t>(size.size());
  check(dims >= 1 && dims <= 3 && x.dim() == dims + 2,
        "interpolate: x must be [batch, channels, sizes...] with one size for each number of ",
        size, ", got shape ", x.shape(), ".");
  check(dims_of(mode) == 0 || dims_of(mode) == dims, "interpolate: this mode is for ",
        dims_of(mode), " dimensions of pixels, but x of shape ", x.shape(), " has ", dims, ".");
  check(scales.empty() || scales.size() == size.size(), "interpolate: got ", scales.size(),
        " scales for ", dims, " dimensions.");
  Tensor out = x;
  for (int64_t i = 0; i < dims; ++i) {
    const auto at = static_cast<size_t>(i);
    check(size[at] > 0 && x.size(i + 2) > 0,
          "interpolate: sizes must be positive and x not empty, got ", size, " and ", x.shape(),
          ".");
    const Scale s(x.size(i + 2), size[at], align_corners && dims_of(mode) > 0,
                  scales.empty() ? 0 : scales[at]);
    if (dims_of(mode) > 0) {
      if (s.in != s.out || s.step != 1) out = linear_along(out, i + 2, s, align_corners);
    } else if (s.in != s.out || s.step != 1) {
      out = nearest(out, i + 2, s, mode == Interpolation::nearest_exact ? 1 : 0);
    }
  }
  return out.is_same(x) ? x.clone() : out;
}

Tensor pixel_shuffle(const Tensor& x, int64_t upscale_factor) {
  GRAPNEL_CALL_SITE;
  const int64_t r = upscale_factor, n = x.dim();
  check_factor("pixel_shuffle", x, r);
  const int64_t square = checked_mul(r, r, "pixel_shuffle");
  check(x.size(-3) % square == 0, "pixel_shuffle: the ", x.size(-3),
        " channels are no multiple of ", square, ".");
  // [..., c, r, r, h, w] to [..., c, h, r, w, r]
  const Tensor parts = x.unflatten(-3, {x.size(-3) / square, r, r});
  return parts.movedim(n - 2, n).movedim(n - 2, n + 1).flatten(-2, -1).flatten(-3, -2);
}

Tensor pixel_unshuffle(const Tensor& x, int64_t downscale_factor) {
  GRAPNEL_CALL_SITE;
  const int64_t r = downscale_factor, n = x.dim();
  check_factor("pixel_unshuffle", x, r);
  check(x.size(-2) % r == 0 && x.size(-1) % r == 0, "pixel_unshuffle: height and width of ",
        x.shape(), " are no multiples of ", r, ".");
  // [..., c, h, r, w, r] to [..., c, r, r, h, w]
  const Tensor parts = x.unflatten(-1, {x.size(-1) / r, r}).unflatten(-3, {x.size(-2) / r, r});
  return parts.movedim(n - 1, n - 2).movedim(n + 1, n - 1).flatten(-5, -3);
}

}  // namespace grapnel
