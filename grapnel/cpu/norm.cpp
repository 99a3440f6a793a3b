/// Layer norm on the CPU: rows are shared out among threads.
#include "grapnel/ops/defs/norm.h"

#include <algorithm>
#include <memory>

#include "grapnel/base/thread_pool.h"
#include "grapnel/cpu/dense.h"
#include "grapnel/cpu/kernels/row.h"
#include "grapnel/cpu/kernels/table.h"
#include "grapnel/cpu/run.h"

namespace grapnel::cpu {

namespace {

constexpr int64_t kWork = 16384;

/// Where the values of an operand lie, `size` bytes each; null for an absent one.
struct Memory {
  Tensor tensor;
  char* data = nullptr;
  explicit Memory(Tensor t) : tensor(std::move(t)) {
    if (tensor.defined()) data = tensor.impl().host();
  }
  static Memory of(const Tensor& t, DType wide) {
    return Memory(t.defined() ? dense(t, wide) : Tensor());
  }
  char* row(int64_t r, int64_t stride) const { return data ? data + r * stride : nullptr; }
};

/// Cuts `rows` rows of n elements into pieces; fn(begin, count, scratch).
template <class Fn>
void for_row_pieces(int64_t rows, int64_t n, int64_t size, const Fn& fn) {
  base::parallel_for(rows, std::max<int64_t>(1, kWork / n), [&](int64_t begin, int64_t end) {
    const auto scratch =
        std::make_unique_for_overwrite<char[]>(static_cast<size_t>(kernels::row_scratch(n) * size));
    fn(begin, end - begin, scratch.get());
  });
}

}  // namespace

template <>
void run<LayerNorm>(Inputs in, const LayerNorm::Attrs& attrs, std::span<Tensor> out) {
  const int64_t rows = out[1].numel();
  if (out[0].numel() == 0) return;
  const int64_t n = out[0].numel() / rows;
  const DType wide = out[1].dtype();
  const auto size = static_cast<int64_t>(element_size(wide));
  const Memory x = Memory::of(*in[0], wide), weight = Memory::of(*in[1], wide),
               bias = Memory::of(*in[2], wide);
  const Memory y(result_buffer(out[0], wide)), mean(out[1]), rstd(out[2]);
  const auto kernel = kernels::table().row[static_cast<int>(compute_type(wide))].layer_norm;
  for_row_pieces(rows, n, size, [&](int64_t r, int64_t count, char* scratch) {
    kernel({count, n, x.row(r, n * size), weight.data, bias.data, attrs.eps, y.row(r, n * size),
            mean.row(r, size), rstd.row(r, size), scratch});
  });
  store_result(out[0], y.tensor);
}

template <>
void run<LayerNormBackward>(Inputs in, const LayerNormBackward::Attrs&, std::span<Tensor> out) {
  const int64_t rows = in[2]->numel();
  if (out[0].numel() == 0) return;
  const int64_t n = out[0].numel() / rows;
  const DType wide = dtype_of(compute_type(in[0]->dtype()));
  const auto size = static_cast<int64_t>(element_size(wide));
  const Memory g = Memory::of(*in[0], wide), x = Memory::of(*in[1], wide),
               mean = Memory::of(*in[2], wide), rstd = Memory::of(*in[3], wide);
  const Memory weight = Memory::of(*in[4], wide), gx(result_buffer(out[0], wide));
  const Memory product(out.size() > 1 ? result_buffer(out[1], wide) : Tensor());
  const auto kernel =
      kernels::table().row[static_cast<int>(compute_type(wide))].layer_norm_backward;
  for_row_pieces(rows, n, size, [&](int64_t r, int64_t count, char* scratch) {
    kernel({count, n, g.row(r, n * size), x.row(r, n * size), mean.row(r, size), rstd.row(r, size),
            weight.data, gx.row(r, n * size), product.row(r, n * size), scratch});
  });
  store_result(out[0], gx.tensor);
  if (out.size() > 1) store_result(out[1], product.tensor);
}

}  // namespace grapnel::cpu
