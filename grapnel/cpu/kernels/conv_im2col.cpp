// f64 convolution: patches are unfolded into the columns of a matrix (im2col), then it is a matrix
// product.
#include <algorithm>
#include <memory>

#include "grapnel/cpu/kernels/conv_impl.h"
#include "grapnel/cpu/kernels/gemm.h"
#include "grapnel/cpu/kernels/onednn.h"

namespace grapnel::kernels {
namespace {

/// The sizes of one image of one group.
struct Unfolded {
  explicit Unfolded(const ConvParams& params)
      : p(params),
        in_channels(p.c / p.groups),
        out_channels(p.o / p.groups),
        taps(in_channels * p.kh * p.kw),
        pixels(p.out_h() * p.out_w()) {}

  const ConvParams& p;
  int64_t in_channels, out_channels;
  int64_t taps;    // values that one output value is made of
  int64_t pixels;  // output values per channel

  int64_t parts() const { return p.n * p.groups; }
  int64_t src_at(int64_t part) const { return part * in_channels * p.h * p.w; }
  int64_t dst_at(int64_t part) const { return part * out_channels * pixels; }
  int64_t weights_at(int64_t part) const { return part % p.groups * out_channels * taps; }

  /// The outputs x in [begin, end) of a line for which x * stride + shift lies inside the image.
  struct Inside {
    int64_t shift, begin, end;
  };
  Inside inside(int64_t tap) const {
    const int64_t shift = tap % p.kw * p.dilation[1] - p.pad[1], step = p.stride[1],
                  out_w = p.out_w();
    const int64_t begin = std::min(out_w, shift < 0 ? divide_up(-shift, step) : 0);
    const int64_t end = shift < p.w ? std::min(out_w, divide_up(p.w - shift, step)) : 0;
    return {shift, begin, std::max(begin, end)};
  }

  /// Calls visit(source row or -1, tap, output row) for every line of the unfolded matrix.
  template <class Visit>
  void for_each_line(Visit visit) const {
    for (int64_t tap = 0; tap < taps; ++tap) {
      const int64_t channel = tap / (p.kh * p.kw), ky = tap / p.kw % p.kh;
      for (int64_t y = 0; y < p.out_h(); ++y) {
        const int64_t from = y * p.stride[0] - p.pad[0] + ky * p.dilation[0];
        visit(from >= 0 && from < p.h ? channel * p.h + from : int64_t{-1}, tap, y);
      }
    }
  }

  /// columns[tap, pixel]
  void unfold(const double* src, double* columns) const {
    const int64_t out_w = p.out_w();
    for_each_line([&](int64_t row, int64_t tap, int64_t y) {
      double* const to = columns + tap * pixels + y * out_w;
      const auto [shift, begin, end] = inside(tap);
      if (row < 0) return static_cast<void>(std::fill_n(to, out_w, 0.0));
      const double* const from = src + row * p.w + shift;
      std::fill(to, to + begin, 0.0);
      if (p.stride[1] == 1) std::copy(from + begin, from + end, to + begin);
      else
        for (int64_t x = begin; x < end; ++x) to[x] = from[x * p.stride[1]];
      std::fill(to + end, to + out_w, 0.0);
    });
  }

  void fold(const double* columns, double* src) const {
    const int64_t out_w = p.out_w();
    std::fill_n(src, in_channels * p.h * p.w, 0.0);
    for_each_line([&](int64_t row, int64_t tap, int64_t y) {
      if (row < 0) return;
      const double* const from = columns + tap * pixels + y * out_w;
      const auto [shift, begin, end] = inside(tap);
      double* const to = src + row * p.w + shift;
      if (p.stride[1] == 1)
        for (int64_t x = begin; x < end; ++x) to[x] += from[x];
      else
        for (int64_t x = begin; x < end; ++x) to[x * p.stride[1]] += from[x];
    });
  }
};

double* columns_scratch(int64_t length) {
  static constinit thread_local base::PerThread<Scratch> own_scratch;
  Scratch& scratch = own_scratch.get();
  return scratch.doubles(length);
}

/// Values [begin, begin + length) of an operand that is not in memory.
const double* filled(const TileFn& fill, int64_t begin, int64_t length) {
  static constinit thread_local base::PerThread<Scratch> own_scratch;
  Scratch& scratch = own_scratch.get();
  double* const values = scratch.doubles(length + kTileMargin);
  fill({begin, 1, length, length, values});
  return values;
}

GemmArgs product(int64_t m, int64_t n, int64_t k) {
  return {.type = GemmType::f64, .m = m, .n = n, .k = k};
}

}  // namespace

void conv2d_f64(const ConvParams& p, const double* src, const double* weights, double* dst,
                const TileFn& done, const TileFn& fill) {
  const Unfolded u(p);
  base::parallel_for(u.parts(), 1, [&](int64_t part, int64_t) {
    double* const columns = columns_scratch(u.taps * u.pixels);
    u.unfold(fill ? filled(fill, u.src_at(part), u.in_channels * p.h * p.w) : src + u.src_at(part),
             columns);
    GemmArgs g = product(u.out_channels, u.pixels, u.taps);
    g.a = weights + u.weights_at(part), g.a_row = u.taps, g.a_col = 1;
    g.b = columns, g.b_row = u.pixels, g.b_col = 1;
    g.c = dst + u.dst_at(part), g.c_row = u.pixels;
    gemm(g);
    const int64_t length = u.out_channels * u.pixels;
    done({u.dst_at(part), 1, length, length});
  });
}

void conv2d_backward_data_f64(const ConvParams& p, const double* grad_dst, const double* weights,
                              double* grad_src, const TileFn& done, const TileFn& fill) {
  const Unfolded u(p);
  base::parallel_for(u.parts(), 1, [&](int64_t part, int64_t) {
    double* const columns = columns_scratch(u.taps * u.pixels);
    GemmArgs g = product(u.taps, u.pixels, u.out_channels);
    g.a = weights + u.weights_at(part), g.a_row = 1, g.a_col = u.taps;
    g.b =
        fill ? filled(fill, u.dst_at(part), u.out_channels * u.pixels) : grad_dst + u.dst_at(part);
    g.b_row = u.pixels, g.b_col = 1;
    g.c = columns, g.c_row = u.pixels;
    gemm(g);
    u.fold(columns, grad_src + u.src_at(part));
    const int64_t length = u.in_channels * p.h * p.w;
    done({u.src_at(part), 1, length, length});
  });
}

void conv2d_backward_weights_f64(const ConvParams& p, const double* src, const double* grad_dst,
                                 double* grad_weights) {
  const Unfolded u(p);
  const int64_t length = p.o * u.taps;
  const int64_t images = divide_up(p.n, 16), sums = divide_up(p.n, images);
  const auto partial = std::make_unique<double[]>(static_cast<size_t>(sums * length));
  base::parallel_for(sums * p.groups, 1, [&](int64_t index, int64_t) {
    const int64_t sum = index / p.groups, group = index % p.groups, one = u.out_channels * u.taps;
    double* const total = partial.get() + sum * length + group * one;
    double* const columns = columns_scratch(u.taps * u.pixels + one);
    double* const image_grad = columns + u.taps * u.pixels;
    for (int64_t image = sum * images; image < std::min(p.n, (sum + 1) * images); ++image) {
      const int64_t part = image * p.groups + group;
      u.unfold(src + u.src_at(part), columns);
      GemmArgs g = product(u.out_channels, u.taps, u.pixels);
      g.a = grad_dst + u.dst_at(part), g.a_row = u.pixels, g.a_col = 1;
      g.b = columns, g.b_row = 1, g.b_col = u.pixels;
      g.c = image_grad, g.c_row = u.taps;
      gemm(g);
      for (int64_t i = 0; i < one; ++i) total[i] += image_grad[i];
    }
  });
  add_parts(partial.get(), sums, length);
  std::copy_n(partial.get(), length, grad_weights);
}

}  // namespace grapnel::kernels
