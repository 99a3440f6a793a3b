#include "grapnel/cpu/kernels/conv.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "grapnel/base/thread_pool.h"

namespace {

using namespace grapnel::kernels;

template <class T>
struct Arrays {
  std::vector<T> src, weights, dst;
};

template <class T>
std::vector<T> random_values(int64_t count, unsigned seed) {
  std::vector<T> values(static_cast<size_t>(count));
  std::mt19937 random(seed);
  for (T& x : values) x = static_cast<T>(std::uniform_real_distribution<double>(-1, 1)(random));
  return values;
}

template <class T>
Arrays<T> random_arrays(const ConvParams& p) {
  return {random_values<T>(p.n * p.c * p.h * p.w, 1),
          random_values<T>(p.o * (p.c / p.groups) * p.kh * p.kw, 2),
          random_values<T>(p.n * p.o * p.out_h() * p.out_w(), 3)};
}

/// Calls visit(src index, weights index, dst index) for every product that a convolution is the sum
/// of.
template <class Visit>
void for_each_product(const ConvParams& p, Visit visit) {
  const int64_t cg = p.c / p.groups, og = p.o / p.groups;
  for (int64_t n = 0; n < p.n; ++n)
    for (int64_t o = 0; o < p.o; ++o)
      for (int64_t y = 0; y < p.out_h(); ++y)
        for (int64_t x = 0; x < p.out_w(); ++x)
          for (int64_t c = 0; c < cg; ++c)
            for (int64_t ky = 0; ky < p.kh; ++ky)
              for (int64_t kx = 0; kx < p.kw; ++kx) {
                const int64_t sy = y * p.stride[0] - p.pad[0] + ky * p.dilation[0];
                const int64_t sx = x * p.stride[1] - p.pad[1] + kx * p.dilation[1];
                if (sy < 0 || sy >= p.h || sx < 0 || sx >= p.w) continue;
                visit(static_cast<size_t>(((n * p.c + o / og * cg + c) * p.h + sy) * p.w + sx),
                      static_cast<size_t>(((o * cg + c) * p.kh + ky) * p.kw + kx),
                      static_cast<size_t>(((n * p.o + o) * p.out_h() + y) * p.out_w() + x));
              }
}

/// dst, grad_src and grad_weights.
template <class T>
Arrays<T> solve(const ConvParams& p, const Arrays<T>& in) {
  // NaNs show whatever is read before, or not at all, written.
  constexpr T nan = std::numeric_limits<T>::quiet_NaN();
  Arrays<T> out{std::vector<T>(in.src.size(), nan), std::vector<T>(in.weights.size(), nan),
                std::vector<T>(in.dst.size(), nan)};
  conv2d(p, in.src.data(), in.weights.data(), out.dst.data());
  conv2d_backward_data(p, in.dst.data(), in.weights.data(), out.src.data());
  conv2d_backward_weights(p, in.src.data(), in.dst.data(), out.weights.data());
  return out;
}

template <class T>
double worst(const std::vector<T>& got, const std::vector<double>& sum,
             const std::vector<double>& size) {
  double result = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double error = std::abs(static_cast<double>(got[i]) - sum[i]) /
                         (std::numeric_limits<T>::epsilon() * (size[i] + 1e-30));
    result = std::isnan(error) ? INFINITY : std::max(result, error);
  }
  return result;
}

/// The largest error in units of (sum of magnitudes) x epsilon.
template <class T>
double error(const ConvParams& p) {
  const Arrays<T> in = random_arrays<T>(p), got = solve(p, in);
  const auto zeros = [&] {
    return Arrays<double>{std::vector<double>(in.src.size()),
                          std::vector<double>(in.weights.size()),
                          std::vector<double>(in.dst.size())};
  };
  Arrays<double> sum = zeros(), size = zeros();
  const auto add = [](double x, double y, double& total, double& magnitude) {
    total += x * y;
    magnitude += std::abs(x * y);
  };
  for_each_product(p, [&](size_t s, size_t w, size_t d) {
    add(in.src[s], in.weights[w], sum.dst[d], size.dst[d]);
    add(in.dst[d], in.weights[w], sum.src[s], size.src[s]);
    add(in.src[s], in.dst[d], sum.weights[w], size.weights[w]);
  });
  return std::max({worst(got.dst, sum.dst, size.dst), worst(got.src, sum.src, size.src),
                   worst(got.weights, sum.weights, size.weights)});
}

std::vector<ConvParams> some_convolutions() {
  return {
      {.n = 1, .c = 1, .h = 1, .w = 1, .o = 1, .kh = 1, .kw = 1},
      {.n = 2, .c = 3, .h = 8, .w = 9, .o = 5, .kh = 3, .kw = 3},
      {.n = 2, .c = 3, .h = 8, .w = 9, .o = 16, .kh = 3, .kw = 3, .pad = {1, 1}},
      {.n = 3,
       .c = 16,
       .h = 11,
       .w = 7,
       .o = 32,
       .kh = 3,
       .kw = 2,
       .stride = {2, 1},
       .pad = {1, 0}},
      {.n = 1,
       .c = 8,
       .h = 14,
       .w = 14,
       .o = 12,
       .kh = 5,
       .kw = 5,
       .stride = {2, 2},
       .pad = {2, 2}},
      {.n = 2,
       .c = 4,
       .h = 12,
       .w = 13,
       .o = 6,
       .kh = 3,
       .kw = 3,
       .pad = {2, 2},
       .dilation = {2, 3}},
      {.n = 2, .c = 8, .h = 9, .w = 9, .o = 12, .kh = 3, .kw = 3, .pad = {1, 1}, .groups = 2},
      {.n = 2, .c = 6, .h = 9, .w = 9, .o = 6, .kh = 3, .kw = 3, .pad = {1, 1}, .groups = 6},
      {.n = 2,
       .c = 4,
       .h = 9,
       .w = 9,
       .o = 8,
       .kh = 3,
       .kw = 3,
       .stride = {3, 3},
       .dilation = {2, 2},
       .groups = 4},
      {.n = 5, .c = 20, .h = 6, .w = 6, .o = 33, .kh = 1, .kw = 1},
      {.n = 3, .c = 2, .h = 7, .w = 40, .o = 3, .kh = 7, .kw = 1, .pad = {3, 0}},
      {.n = 2, .c = 3, .h = 4, .w = 4, .o = 4, .kh = 3, .kw = 3, .pad = {4, 4}},
      // an odd last run of images
      {.n = 37, .c = 16, .h = 14, .w = 14, .o = 32, .kh = 3, .kw = 3, .pad = {1, 1}},
      // an odd last run of channels
      {.n = 1, .c = 100, .h = 14, .w = 14, .o = 90, .kh = 3, .kw = 3, .pad = {1, 1}},
      // runs of groups
      {.n = 1, .c = 64, .h = 24, .w = 24, .o = 64, .kh = 3, .kw = 3, .groups = 4},
      // more weights than pixels
      {.n = 3, .c = 96, .h = 2, .w = 2, .o = 100, .kh = 2, .kw = 2},
  };
}

template <class T>
bool same_bits(const std::vector<T>& x, const std::vector<T>& y) {
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(T)) == 0;
}

template <class T>
void check_same_bits(ConvParams p) {
  p.type = std::is_same_v<T, float> ? ConvType::f32 : ConvType::f64;
  const int before = grapnel::get_num_threads();
  const Arrays<T> in = random_arrays<T>(p);
  grapnel::set_num_threads(1);
  const Arrays<T> expected = solve(p, in);
  for (int threads : {1, 2, 2, 3}) {
    grapnel::set_num_threads(threads);
    const Arrays<T> got = solve(p, in);
    CHECK(same_bits(got.dst, expected.dst));
    CHECK(same_bits(got.src, expected.src));
    CHECK(same_bits(got.weights, expected.weights));
  }
  grapnel::set_num_threads(before);
}

}  // namespace

TEST_CASE("a convolution and its gradients are the sums that define them") {
  for (ConvParams p : some_convolutions()) {
    CAPTURE(p.n);
    CAPTURE(p.c);
    CAPTURE(p.h);
    CAPTURE(p.o);
    CAPTURE(p.groups);
    p.type = ConvType::f32;
    CHECK(error<float>(p) < 20);
    p.type = ConvType::f64;
    CHECK(error<double>(p) < 20);
  }
}

TEST_CASE("convolutions give the same bits for every number of threads and on every run") {
  for (const ConvParams& p : some_convolutions()) {
    check_same_bits<float>(p);
    check_same_bits<double>(p);
  }
}

TEST_CASE("a convolution without input channels, images or outputs is zero or empty") {
  for (ConvType type : {ConvType::f32, ConvType::f64}) {
    std::vector<double> out(64, -1.0);
    ConvParams p{.type = type, .n = 1, .c = 0, .h = 4, .w = 4, .o = 2, .kh = 3, .kw = 3};
    conv2d(p, nullptr, nullptr, out.data());
    CHECK(out[0] == 0.0);
    CHECK(out[63] == -1.0);
    p.n = 0, p.c = 2;
    out.assign(64, -1.0);
    conv2d(p, nullptr, nullptr, out.data());
    CHECK(out[0] == -1.0);
    conv2d_backward_weights(p, nullptr, nullptr, out.data());
    CHECK(out[0] == 0.0);
    CHECK(out[63] == -1.0);
  }
}
