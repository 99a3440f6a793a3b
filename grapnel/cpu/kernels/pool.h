/// Two-dimensional pooling on raw memory, one plane after another.
#pragma once

#include <cstdint>

namespace grapnel::kernels {

// Pairs are {vertical, horizontal}. Planes are the images of a batch, one per channel; all arrays
// are dense.
struct PoolParams {
  int64_t planes = 0;
  int64_t in[2] = {}, out[2] = {};
  int64_t kernel[2] = {1, 1}, stride[2] = {1, 1}, pad[2] = {0, 0}, dilation[2] = {1, 1};
  bool count_include_pad = true;  ///< averages divide by the whole window, padding included
};

/// The largest value of each window and its place in the plane; the first of equals, but the last
/// NaN if there is one.
template <class T>
void max_pool(const PoolParams& p, const T* x, T* y, int64_t* index);
/// Adds each gradient to the place its maximum came from.
template <class T>
void max_pool_backward(const PoolParams& p, const T* g, const int64_t* index, T* gx);
template <class T>
void avg_pool(const PoolParams& p, const T* x, T* y);
template <class T>
void avg_pool_backward(const PoolParams& p, const T* g, T* gx);

}  // namespace grapnel::kernels
