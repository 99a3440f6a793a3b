/// What the two ways to convolve share. Start reading at conv.h.
#pragma once

#include <algorithm>
#include <cstdint>

#include "grapnel/base/thread_pool.h"
#include "grapnel/cpu/kernels/conv.h"

namespace grapnel::kernels {

void conv2d_f32(const ConvParams& p, const float* src, const float* weights, float* dst,
                const TileFn& done, const TileFn& fill);
void conv2d_backward_data_f32(const ConvParams& p, const float* grad_dst, const float* weights,
                              float* grad_src, const TileFn& done, const TileFn& fill);
void conv2d_backward_weights_f32(const ConvParams& p, const float* src, const float* grad_dst,
                                 float* grad_weights);

void conv2d_f64(const ConvParams& p, const double* src, const double* weights, double* dst,
                const TileFn& done, const TileFn& fill);
void conv2d_backward_data_f64(const ConvParams& p, const double* grad_dst, const double* weights,
                              double* grad_src, const TileFn& done, const TileFn& fill);
void conv2d_backward_weights_f64(const ConvParams& p, const double* src, const double* grad_dst,
                                 double* grad_weights);

inline int64_t divide_up(int64_t x, int64_t y) { return (x + y - 1) / y; }

/// parts[0][i] becomes the sum of parts[0 .. count)[i], added as a balanced tree whose shape
/// depends on count alone.
template <class T>
void add_parts(T* parts, int64_t count, int64_t length) {
  base::parallel_for(length, 16384, [&](int64_t begin, int64_t end) {
    for (int64_t step = 1; step < count; step *= 2) {
      for (int64_t part = 0; part + step < count; part += 2 * step) {
        T* const to = parts + part * length;
        const T* const from = to + step * length;
        for (int64_t i = begin; i < end; ++i) to[i] += from[i];
      }
    }
  });
}

}  // namespace grapnel::kernels
