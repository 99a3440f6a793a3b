/// Fills a KernelTable for one instruction set. Included by table_isa.cpp only.
#pragma once

#include "grapnel/cpu/kernels/convert_kernel.h"
#include "grapnel/cpu/kernels/reduce_kernel.h"
#include "grapnel/cpu/kernels/table.h"
#include "grapnel/ops/defs/reduction.h"
#include "grapnel/ops/pointwise_list.h"

namespace grapnel::kernels {

/// Whether a formula exists for a compute type: floating formulas are never run on integers.
template <class D, class T>
inline constexpr bool has_kernel = !std::is_integral_v<T> || D::type_rule != TypeRule::floating;

template <class Isa, class List>
struct PointwiseTable;
template <class Isa, class... D>
struct PointwiseTable<Isa, OpList<D...>> {
  template <class Def, class T>
  static constexpr PointwiseFn entry() {
    if constexpr (has_kernel<Def, T>) return &pointwise_kernel<Def, T, Isa>;
    else return nullptr;
  }
  static constexpr PointwiseFn rows[sizeof...(D)][kComputeTypes] = {
      {entry<D, float>(), entry<D, double>(), entry<D, int64_t>()}...};
};

template <class Isa, class List>
struct ReductionTable;
template <class Isa, class... D>
struct ReductionTable<Isa, OpList<D...>> {
  static constexpr ReduceKernels rows[sizeof...(D)][kComputeTypes] = {
      {ReduceKernel<D, float, Isa>::make(), ReduceKernel<D, double, Isa>::make(),
       ReduceKernel<D, int64_t, Isa>::make()}...};
};

template <class Isa, class... Stored>
struct ConvertTable {
  static constexpr LoadFn load[sizeof...(Stored)][kComputeTypes] = {
      {&load_kernel<float, Stored, Isa>, &load_kernel<double, Stored, Isa>,
       &load_kernel<int64_t, Stored, Isa>}...};
  static constexpr StoreFn store[sizeof...(Stored)][kComputeTypes] = {
      {&store_kernel<float, Stored, Isa>, &store_kernel<double, Stored, Isa>,
       &store_kernel<int64_t, Stored, Isa>}...};
};

template <class Isa>
constexpr KernelTable make_table() {
  // In the order of DType.
  using Convert = ConvertTable<Isa, bool, uint8_t, int32_t, int64_t, Half, BFloat16, float, double>;
  return {.pointwise = PointwiseTable<Isa, PointwiseOps>::rows,
          .reduce = ReductionTable<Isa, ReductionOps>::rows,
          .load = Convert::load,
          .store = Convert::store,
          .row = parts_of<Isa>::row,
          .attention = parts_of<Isa>::attention,
          .recurrent = parts_of<Isa>::recurrent,
          .gemm_f32 = {&gemm_kernel<float, Isa>, &transpose_kernel<float, Isa>},
          .gemm_f64 = {&gemm_kernel<double, Isa>, nullptr},
          .random_f32 = &random_kernel<float, Isa>,
          .random_f64 = &random_kernel<double, Isa>};
}

}  // namespace grapnel::kernels
