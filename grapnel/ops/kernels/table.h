/// The kernels of one instruction set, gathered in one table; `table()` is the best one this
/// processor can run.
///
/// Tables are filled in table_baseline.cpp, table_avx2.cpp and table_avx512.cpp from the same
/// templates, so all of them give the same bits.
#pragma once

#include <cstdint>

#include "grapnel/base/cpu.h"
#include "grapnel/ops/kernels/pointwise_kernel.h"

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
};

extern const KernelTable table_baseline;
#ifdef GRAPNEL_X86_KERNELS
extern const KernelTable table_avx2;
extern const KernelTable table_avx512;
#endif

const KernelTable& table();
/// That of one instruction set, which the processor must have.
const KernelTable& table(base::Isa isa);

}  // namespace grapnel::kernels
