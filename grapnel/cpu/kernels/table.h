/// The kernels of one instruction set, gathered in one table; `table()` is the best one this
/// processor can run.
///
/// Sources named *_isa.cpp fill them from the same templates, compiled once per instruction set, so
/// all of them give the same bits. Nothing else asks which instruction set there is.
#pragma once

#include <cstdint>

#include "grapnel/base/cpu.h"
#include "grapnel/cpu/kernels/attention.h"
#include "grapnel/cpu/kernels/gemm_kernel.h"
#include "grapnel/cpu/kernels/pointwise_kernel.h"
#include "grapnel/cpu/kernels/random_kernel.h"
#include "grapnel/cpu/kernels/recurrent.h"
#include "grapnel/cpu/kernels/row.h"

namespace grapnel::kernels {

inline constexpr int kComputeTypes = 3;

/// Reduces one chunk of n <= kReduceChunk contiguous values.
using ReduceChunkFn = void (*)(const void* in, int64_t n, void* out);
/// Reduces rows <= kReduceChunk rows of `columns` contiguous values each to one row.
using ReduceColumnsFn = void (*)(const void* in, int64_t rows, int64_t row_stride, int64_t columns,
                                 void* out);
/// Last step of a reduction on n results of `count` values each.
using ReduceFinishFn = void (*)(void* values, int64_t n, int64_t count);

/// Combines n values of `in` into as many of `lanes`.
using ReduceCombineFn = void (*)(void* lanes, const void* in, int64_t n);

struct ReduceKernels {
  ReduceChunkFn chunk = nullptr;
  ReduceColumnsFn columns = nullptr;
  ReduceCombineFn combine = nullptr;
  ReduceFinishFn finish = nullptr;
};

struct KernelTable {
  const PointwiseFn (*pointwise)[kComputeTypes];  ///< [Op::index][Compute]
  const ReduceKernels (*reduce)[kComputeTypes];   ///< [Op::index][Compute]
  const LoadFn (*load)[kComputeTypes];            ///< [DType][Compute]
  const StoreFn (*store)[kComputeTypes];          ///< [DType][Compute]
  const RowKernels* row;                          ///< [Compute], floating types
  const AttentionKernels* attention;              ///< [Compute], floating types
  const RecurrentKernels* recurrent;              ///< [Compute], floating types
  GemmKernels<float> gemm_f32;
  GemmKernels<double> gemm_f64;
  RandomFn<float> random_f32;
  RandomFn<double> random_f64;

  template <class T>
  const GemmKernels<T>& gemm() const {
    if constexpr (sizeof(T) == sizeof(float)) return gemm_f32;
    else return gemm_f64;
  }
  template <class T>
  RandomFn<T> random() const {
    if constexpr (sizeof(T) == sizeof(float)) return random_f32;
    else return random_f64;
  }
};

/// The table of one instruction set, and parts of it that are made in files of their own.
template <class Isa>
struct table_of {
  static const KernelTable value;
};
template <class Isa>
struct parts_of {
  static const RowKernels row[2];
  static const AttentionKernels attention[2];
  static const RecurrentKernels recurrent[2];
};

const KernelTable& table();
/// That of one instruction set, which the processor must have.
const KernelTable& table(base::Isa isa);

}  // namespace grapnel::kernels
