/// Our own matrix product for one thread, compiled once per instruction set (gemm_kernel_impl.h
/// says how it works).
#pragma once

#include <cstdint>

#include "grapnel/math/scalar.h"

namespace grapnel::kernels {

/// c[m, n] = a[m, k] * b[k, n], or added to c; strides in elements; c has unit stride along n.
template <class T>
struct GemmBlock {
  int64_t m, n, k;
  const T* a;
  int64_t a_row, a_col;
  const T* b;
  int64_t b_row, b_col;
  T* c;
  int64_t c_row;
  bool add = false;
};

/// The scratch memory that gemm_kernel wants, in elements, aligned to 64 bytes.
template <class T>
inline constexpr int64_t gemm_scratch = int64_t{1} << (sizeof(T) == 8 ? 18 : 19);

template <class T, class Isa>
void gemm_kernel(const GemmBlock<T>& block, T* scratch);

/// to[j, i] = from[i, j] for i < rows, j < cols; lines of both are contiguous.
template <class T, class Isa>
void transpose_kernel(int64_t rows, int64_t cols, const T* from, int64_t from_row, T* to,
                      int64_t to_row);

/// Both, for one instruction set.
template <class T>
struct GemmKernels {
  void (*product)(const GemmBlock<T>& block, T* scratch);
  void (*transpose)(int64_t rows, int64_t cols, const T* from, int64_t from_row, T* to,
                    int64_t to_row);  ///< f32 only
};

}  // namespace grapnel::kernels
