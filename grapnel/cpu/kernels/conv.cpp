#include "grapnel/cpu/kernels/conv.h"

#include <algorithm>

#include "grapnel/cpu/kernels/conv_cut.h"
#include "grapnel/cpu/kernels/conv_impl.h"

namespace grapnel::kernels {
namespace {

bool nothing_to_sum(const ConvParams& p) {
  return p.n <= 0 || p.c <= 0 || p.o <= 0 || p.kh <= 0 || p.kw <= 0 || p.out_h() <= 0 ||
         p.out_w() <= 0;
}

/// With nothing to multiply every sum is empty: fills the output with zeros and says so.
bool nothing_to_do(const ConvParams& p, void* output, int64_t length, const TileFn& done = {}) {
  if (!nothing_to_sum(p)) return false;
  if (length <= 0) return true;
  if (p.type == ConvType::f32) std::fill_n(static_cast<float*>(output), length, 0.0f);
  else std::fill_n(static_cast<double*>(output), length, 0.0);
  done({0, 1, length, length});
  return true;
}

const float* f32(const void* x) { return static_cast<const float*>(x); }
float* f32(void* x) { return static_cast<float*>(x); }
const double* f64(const void* x) { return static_cast<const double*>(x); }
double* f64(void* x) { return static_cast<double*>(x); }

}  // namespace

void conv2d(const ConvParams& p, const void* src, const void* weights, void* dst, TileFn done,
            TileFn fill) {
  if (nothing_to_do(p, dst, p.n * p.o * p.out_h() * p.out_w(), done)) return;
  if (p.type == ConvType::f32) conv2d_f32(p, f32(src), f32(weights), f32(dst), done, fill);
  else conv2d_f64(p, f64(src), f64(weights), f64(dst), done, fill);
}

void conv2d_backward_data(const ConvParams& p, const void* grad_dst, const void* weights,
                          void* grad_src, TileFn done, TileFn fill) {
  if (nothing_to_do(p, grad_src, p.n * p.c * p.h * p.w, done)) return;
  if (p.type == ConvType::f32)
    conv2d_backward_data_f32(p, f32(grad_dst), f32(weights), f32(grad_src), done, fill);
  else conv2d_backward_data_f64(p, f64(grad_dst), f64(weights), f64(grad_src), done, fill);
}

bool comes_in_images(const ConvParams& p, bool forward) {
  if (p.n < 2 || nothing_to_sum(p)) return false;
  const Cut cut(forward ? Pass::forward : Pass::backward_data, p);
  const Tile images = cut.input(0);
  if (p.type == ConvType::f64) return p.groups == 1 && images.cols <= kLargestFill;
  return cut.channel_runs == 1 && cut.image_runs > 1 && images.rows * images.cols <= kLargestFill;
}

void conv2d_backward_weights(const ConvParams& p, const void* src, const void* grad_dst,
                             void* grad_weights) {
  if (nothing_to_do(p, grad_weights, p.o * (p.c / p.groups) * p.kh * p.kw)) return;
  if (p.type == ConvType::f32)
    conv2d_backward_weights_f32(p, f32(src), f32(grad_dst), f32(grad_weights));
  else conv2d_backward_weights_f64(p, f64(src), f64(grad_dst), f64(grad_weights));
}

}  // namespace grapnel::kernels
