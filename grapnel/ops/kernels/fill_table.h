/// Fills a KernelTable for one instruction set. Included by table_*.cpp only.
#pragma once

#include "grapnel/ops/kernels/convert_kernel.h"
#include "grapnel/ops/kernels/reduce_kernel.h"
#include "grapnel/ops/kernels/table.h"
#include "grapnel/ops/pointwise_list.h"
#include "grapnel/ops/reduction_list.h"

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
  return {PointwiseTable<Isa, PointwiseOps>::rows, ReductionTable<Isa, ReductionOps>::rows,
          Convert::load, Convert::store};
}

}  // namespace grapnel::kernels
