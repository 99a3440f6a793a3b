/// How our own matrix product works: blocked, packed, with a micro-kernel that keeps its tile of c
/// in registers.
///
/// Every element of c is one chain of fused multiply-adds in ascending order of k (with a separate
/// multiply and add where the processor has no fma). The bits therefore depend neither on blocking
/// nor on how a and b lie in memory. The one exception are products with a single row or column,
/// whose dot products run in several lanes.
///
/// Only gemm_kernel_<isa>.cpp include this file. Everything in it is a template on the tag of the
/// instruction set, so that the linker cannot replace code for one set by code for another.
#pragma once

#include <cstdint>

#include "grapnel/cpu/kernels/gemm_kernel.h"
#include "grapnel/cpu/kernels/simd_impl.h"

namespace grapnel::kernels {

template <class T, class Isa>
class OwnGemm {
  using S = Simd<T, Isa>;
  using V = typename S::V;
  static constexpr int64_t lanes = sizeof(V) / sizeof(T);
  static constexpr int rows = S::rows;
  static constexpr int64_t width = S::vectors * lanes;

  // A block of a (block_m x block_k) stays in the second-level cache while panels of b (block_k x
  // width) pass through the first.
  static constexpr int64_t block_k = 256;
  static constexpr int64_t block_m = 96 / rows * rows;
  static constexpr int64_t a_scratch = block_m * block_k;
  static constexpr int64_t block_n = (gemm_scratch<T> - a_scratch) / block_k / width * width;
  static_assert(block_n >= width);

  static GRAPNEL_INLINE int64_t least(int64_t x, int64_t y) { return x < y ? x : y; }
  static GRAPNEL_INLINE V load(const T* p) {
    V v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
  }
  static GRAPNEL_INLINE void store(T* p, V v) { __builtin_memcpy(p, &v, sizeof v); }
  static GRAPNEL_INLINE V broadcast(T x) { return x - V{}; }

  /// Rows [0, m) of a as panels of `rows` rows, k-major, padded with zeros.
  static void pack_a(int64_t m, int64_t k, const T* a, int64_t a_row, int64_t a_col, T* out) {
    for (int64_t i = 0; i < m; i += rows, out += rows * k) {
      const int64_t used = least(rows, m - i);
      if (a_row == 1 && used == rows) {
        for (int64_t p = 0; p < k; ++p) {
          for (int64_t r = 0; r < rows; ++r) out[p * rows + r] = a[i + p * a_col + r];
        }
        continue;
      }
      for (int64_t r = 0; r < used; ++r) {
        const T* from = a + (i + r) * a_row;
        for (int64_t p = 0; p < k; ++p) out[p * rows + r] = from[p * a_col];
      }
      for (int64_t r = used; r < rows; ++r) {
        for (int64_t p = 0; p < k; ++p) out[p * rows + r] = T(0);
      }
    }
  }

  /// Columns [0, n) of b as one panel of `panel` columns, k-major, padded with zeros.
  static void pack_panel(int64_t n, int64_t k, const T* b, int64_t b_row, int64_t b_col,
                         int64_t panel, T* out) {
    if (b_col == 1) {
      for (int64_t p = 0; p < k; ++p) {
        for (int64_t j = 0; j < n; ++j) out[p * panel + j] = b[p * b_row + j];
        for (int64_t j = n; j < panel; ++j) out[p * panel + j] = T(0);
      }
      return;
    }
    if (b_row == 1) {
      Transpose<T, Isa>::run(n, k, b, b_col, out, panel);
    } else {
      for (int64_t p = 0; p < k; ++p) {
        for (int64_t j = 0; j < n; ++j) out[p * panel + j] = b[p * b_row + j * b_col];
      }
    }
    if (n < panel) {
      for (int64_t p = 0; p < k; ++p) {
        for (int64_t j = n; j < panel; ++j) out[p * panel + j] = T(0);
      }
    }
  }

  /// Rows of a as the micro-kernel reads them: packed, or where they are if `row` says how far
  /// apart.
  struct Rows {
    const T* data;
    int64_t row;
  };
  static constexpr int64_t packed = 0;

  /// c[rows, NV vectors] (+)= a * b, where b has NV * lanes contiguous columns.
  template <int NV, bool Packed>
  static GRAPNEL_INLINE void multiply(int64_t k, Rows from, const T* b, int64_t b_row,
                                      V (&acc)[rows][NV]) {
    const T* a = from.data;
    for (int64_t p = 0; p < k; ++p, a += Packed ? rows : 1, b += b_row) {
      V bv[NV];
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) bv[v] = load(b + v * lanes);
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r) {
        const V av = broadcast(a[Packed ? r : r * from.row]);
#pragma GCC unroll 4
        for (int v = 0; v < NV; ++v) acc[r][v] = S::fma(av, bv[v], acc[r][v]);
      }
    }
  }

  /// One tile of c, m x n of which are real.
  template <int NV, bool Packed>
  static void tile(int64_t m, int64_t n, int64_t k, Rows a, const T* b, int64_t b_row, T* c,
                   int64_t c_row, bool first) {
    V acc[rows][NV];
    if (m == rows && n == NV * lanes) {
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
        for (int v = 0; v < NV; ++v) acc[r][v] = first ? V{} : load(c + r * c_row + v * lanes);
      }
      multiply<NV, Packed>(k, a, b, b_row, acc);
#pragma GCC unroll 8
      for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
        for (int v = 0; v < NV; ++v) store(c + r * c_row + v * lanes, acc[r][v]);
      }
      return;
    }
    T edge[rows][NV * lanes];
    if (!first) {
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t j = 0; j < NV * lanes; ++j)
          edge[r][j] = r < m && j < n ? c[r * c_row + j] : T(0);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) acc[r][v] = first ? V{} : load(edge[r] + v * lanes);
    }
    multiply<NV, Packed>(k, a, b, b_row, acc);
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) store(edge[r] + v * lanes, acc[r][v]);
    }
    for (int64_t r = 0; r < m; ++r) {
      for (int64_t j = 0; j < n; ++j) c[r * c_row + j] = edge[r][j];
    }
  }

  template <bool Packed>
  static void tile(int64_t m, int64_t n, int64_t k, Rows a, const T* b, int64_t b_row, T* c,
                   int64_t c_row, bool first) {
    if (n > 2 * lanes) tile<3, Packed>(m, n, k, a, b, b_row, c, c_row, first);
    else if (n > lanes) tile<2, Packed>(m, n, k, a, b, b_row, c, c_row, first);
    else tile<1, Packed>(m, n, k, a, b, b_row, c, c_row, first);
  }

  /// All tiles of one panel of b, at most `width` columns.
  static void panel(int64_t m, int64_t n, int64_t k, Rows a, const T* b, int64_t b_row, T* c,
                    int64_t c_row, bool first) {
    for (int64_t i = 0; i < m; i += rows, c += rows * c_row) {
      const int64_t used = least(rows, m - i);
      if (a.row == packed)
        tile<true>(used, n, k, {a.data + i * k, packed}, b, b_row, c, c_row, first);
      else tile<false>(used, n, k, {a.data + i * a.row, a.row}, b, b_row, c, c_row, first);
    }
  }

  /// y[i] = sum over p of matrix[i, p] * x[p], with x contiguous.
  struct MatVec {
    int64_t m, k;
    const T* matrix;
    int64_t row, col;
    const T* x;
    T* y;
    int64_t y_step;
  };

  static GRAPNEL_INLINE T sum_lanes(V v) {
    T lane[lanes];
    store(lane, v);
    for (int64_t width_left = lanes / 2; width_left > 0; width_left /= 2) {
      for (int64_t i = 0; i < width_left; ++i) lane[i] += lane[i + width_left];
    }
    return lane[0];
  }

  /// Rows are contiguous: dot products, four rows at a time.
  template <int R>
  static GRAPNEL_INLINE void dots(const MatVec& g, int64_t i) {
    V acc[R][2] = {};
    const T* from = g.matrix + i * g.row;
    int64_t p = 0;
    for (; p + 2 * lanes <= g.k; p += 2 * lanes) {
      const V x0 = load(g.x + p), x1 = load(g.x + p + lanes);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        acc[r][0] = S::fma(load(from + r * g.row + p), x0, acc[r][0]);
        acc[r][1] = S::fma(load(from + r * g.row + p + lanes), x1, acc[r][1]);
      }
    }
    for (int r = 0; r < R; ++r) {
      T sum = sum_lanes(acc[r][0] + acc[r][1]);
      for (int64_t q = p; q < g.k; ++q) sum += from[r * g.row + q] * g.x[q];
      g.y[(i + r) * g.y_step] = sum;
    }
  }

  /// Columns are contiguous: C registers of y are kept while the columns pass.
  template <int C>
  static GRAPNEL_INLINE void sums(const MatVec& g, int64_t i) {
    V acc[C] = {};
    const T* from = g.matrix + i;
    for (int64_t p = 0; p < g.k; ++p, from += g.col) {
      const V x = broadcast(g.x[p]);
#pragma GCC unroll 8
      for (int v = 0; v < C; ++v) acc[v] = S::fma(x, load(from + v * lanes), acc[v]);
    }
    T out[C * lanes];
    for (int v = 0; v < C; ++v) store(out + v * lanes, acc[v]);
    for (int64_t j = 0; j < C * lanes; ++j) g.y[(i + j) * g.y_step] = out[j];
  }

  /// False if neither rows nor columns are contiguous.
  static bool multiply_vector(MatVec g, int64_t x_step, T* scratch) {
    if (g.k > gemm_scratch<T> || (g.col != 1 && g.row != 1)) return false;
    if (x_step != 1) {
      for (int64_t p = 0; p < g.k; ++p) scratch[p] = g.x[p * x_step];
      g.x = scratch;
    }
    int64_t i = 0;
    if (g.col == 1) {
      for (; i + 4 <= g.m; i += 4) dots<4>(g, i);
      for (; i < g.m; ++i) dots<1>(g, i);
      return true;
    }
    for (; i + 8 * lanes <= g.m; i += 8 * lanes) sums<8>(g, i);
    for (; i + lanes <= g.m; i += lanes) sums<1>(g, i);
    for (; i < g.m; ++i) {
      T sum = T(0);
      for (int64_t p = 0; p < g.k; ++p) sum += g.matrix[i + p * g.col] * g.x[p];
      g.y[i * g.y_step] = sum;
    }
    return true;
  }

 public:
  static void run(const GemmBlock<T>& g, T* scratch) {
    if (g.m == 1 && !g.add &&
        multiply_vector({g.n, g.k, g.b, g.b_col, g.b_row, g.a, g.c, 1}, g.a_col, scratch))
      return;
    if (g.n == 1 && !g.add &&
        multiply_vector({g.m, g.k, g.a, g.a_row, g.a_col, g.b, g.c, g.c_row}, g.b_row, scratch))
      return;

    T* const packed_a = scratch;
    T* const packed_b = scratch + a_scratch;
    // Packing b pays when many tiles read it; a panel that is cut or lies across memory is always
    // packed.
    const bool pack_b = g.b_col != 1 || g.m > 16 * rows;
    for (int64_t j0 = 0; j0 < g.n; j0 += block_n) {
      const int64_t nb = least(block_n, g.n - j0);
      int64_t p0 = 0;
      do {
        const int64_t kb = least(block_k, g.k - p0);
        for (int64_t i0 = 0; i0 < g.m; i0 += block_m) {
          const int64_t mb = least(block_m, g.m - i0);
          // So does packing a: few panels of b read it, and whole tiles can read it where it is.
          Rows a{g.a + i0 * g.a_row + p0 * g.a_col, g.a_row};
          if (g.a_col != 1 || g.a_row == packed || mb % rows != 0 || nb > 2 * width) {
            pack_a(mb, kb, a.data, g.a_row, g.a_col, packed_a);
            a = {packed_a, packed};
          }
          for (int64_t j = 0, used; j < nb; j += used) {
            // Two middling panels at the end are faster than a full and a narrow one.
            const int64_t left = nb - j;
            used = left > width && left <= width + lanes ? 2 * lanes : least(width, left);
            const T* b = g.b + p0 * g.b_row + (j0 + j) * g.b_col;
            int64_t b_row = g.b_row;
            if (pack_b || used % lanes != 0) {
              b_row = (used + lanes - 1) / lanes * lanes;
              T* const to = packed_b + j * kb;
              if (i0 == 0) pack_panel(used, kb, b, g.b_row, g.b_col, b_row, to);
              b = to;
            }
            panel(mb, used, kb, a, b, b_row, g.c + i0 * g.c_row + j0 + j, g.c_row,
                  p0 == 0 && !g.add);
          }
        }
        p0 += kb;
      } while (p0 < g.k);
    }
  }
};

template <class T, class Isa>
void gemm_kernel(const GemmBlock<T>& block, T* scratch) {
  OwnGemm<T, Isa>::run(block, scratch);
}

template <class T, class Isa>
void transpose_kernel(int64_t rows, int64_t cols, const T* from, int64_t from_row, T* to,
                      int64_t to_row) {
  Transpose<T, Isa>::run(rows, cols, from, from_row, to, to_row);
}

}  // namespace grapnel::kernels
