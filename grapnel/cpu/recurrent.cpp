/// Recurrent layers on the CPU: step by step, the product of all rows first, then the cell. Shape
/// letters: T time, N batch, H features of a state.
#include "grapnel/ops/defs/recurrent.h"

#include <algorithm>
#include <cstring>

#include "grapnel/base/thread_pool.h"
#include "grapnel/cpu/dense.h"
#include "grapnel/cpu/kernels/gemm.h"
#include "grapnel/cpu/kernels/recurrent.h"
#include "grapnel/cpu/kernels/table.h"
#include "grapnel/cpu/raw.h"
#include "grapnel/ops/op_table.h"

namespace grapnel::cpu {

namespace {

/// Values of all gates below which a second thread does not pay.
constexpr int64_t kWork = 4096;

/// Memory of rows of one length, in the compute type.
struct Rows {
  Tensor tensor;
  char* data = nullptr;
  int64_t bytes = 0;  ///< of one row

  Rows() = default;
  Rows(Tensor t, int64_t columns) : tensor(std::move(t)) {
    data = tensor.impl().host();
    bytes = columns * static_cast<int64_t>(tensor.element_size());
  }
  static Rows fresh(const Shape& shape, DType type) {
    return {Tensor(TensorImpl::empty(shape, type, kCPU)), shape[shape.size() - 1]};
  }
  static Rows of(const Tensor& t, DType type) {
    return t.defined() ? Rows(dense(t, type), t.size(-1)) : Rows();
  }
  char* row(int64_t r) const { return data ? data + r * bytes : nullptr; }
};

/// What all steps of a sequence have in common.
struct Sequence {
  Sequence(const Shape& states, const RecurrentAttrs& attrs, DType type)
      : a(attrs),
        cell(static_cast<RecurrentCell>(attrs.cell)),
        wide(dtype_of(compute_type(type))),
        time(states[0]),
        batch(states[1]),
        n(states[2]),
        columns(gates_of(cell) * n),
        kernels(kernels::table().recurrent[static_cast<int>(compute_type(wide))]) {}

  int64_t place(int64_t step) const { return a.reverse ? time - 1 - step : step; }
  /// Row `r` of the batch in that step.
  int64_t row(int64_t step, int64_t r) const { return place(step) * batch + r; }

  /// to = from @ by, `by` dense.
  void multiply(const void* from, int64_t k, const Rows& by, int64_t width, void* to) const {
    kernels::gemm({.type = wide == kFloat32 ? kernels::GemmType::f32 : kernels::GemmType::f64,
                   .m = batch,
                   .n = width,
                   .k = k,
                   .a = from,
                   .a_row = k,
                   .a_col = 1,
                   .b = by.data,
                   .b_row = width,
                   .b_col = 1,
                   .c = to,
                   .c_row = width});
  }
  /// Shares out the rows of a step: fn(first, count).
  template <class Fn>
  void for_rows(const Fn& fn) const {
    base::parallel_for(batch, std::max<int64_t>(1, kWork / columns),
                       [&](int64_t begin, int64_t end) { fn(begin, end - begin); });
  }

  const RecurrentAttrs& a;
  RecurrentCell cell;
  DType wide;
  int64_t time, batch, n, columns;
  const kernels::RecurrentKernels& kernels;
};

}  // namespace

template <>
void run<Recurrent>(Inputs in, const Recurrent::Attrs& attrs, std::span<Tensor> out) {
  if (out[0].numel() == 0) return;
  const Sequence s(out[0].shape(), attrs, out[0].dtype());
  const Rows x = Rows::of(*in[0], s.wide), first = Rows::of(*in[1], s.wide),
             bias = Rows::of(*in[4], s.wide), weight = Rows::of(in[3]->t(), s.wide);
  const Rows y(result_buffer(out[0], s.wide), s.n), p = Rows::fresh({s.batch, s.columns}, s.wide);
  const Rows kept = attrs.keep ? Rows(out[1], kept_of(s.cell) * s.n) : Rows();
  Rows c;
  if (s.cell == RecurrentCell::lstm) {
    c = Rows(result_buffer(out[2], s.wide), s.n);
    cpu::copy(c.tensor, *in[2]);
  }
  const auto kernel = s.kernels.forward[static_cast<int>(s.cell)];
  for (int64_t step = 0; step < s.time; ++step) {
    const char* const h = step == 0 ? first.data : y.row(s.row(step - 1, 0));
    s.multiply(h, s.n, weight, s.columns, p.data);
    s.for_rows([&](int64_t r, int64_t rows) {
      const int64_t at = s.row(step, r);
      kernel({.rows = rows,
              .n = s.n,
              .x = x.row(at),
              .p = p.row(r),
              .bias = bias.data,
              .h = h + r * first.bytes,
              .y = y.row(at),
              .c = c.row(r),
              .kept = kept.row(at)});
    });
  }
  store_result(out[0], y.tensor);
  if (s.cell == RecurrentCell::lstm) store_result(out[2], c.tensor);
}

template <>
void run<RecurrentBackward>(Inputs in, const RecurrentBackward::Attrs& attrs,
                            std::span<Tensor> out) {
  if (out[0].numel() == 0) return;
  const Sequence s(in[2]->shape(), attrs, out[0].dtype());
  const bool is_lstm = s.cell == RecurrentCell::lstm, is_gru = s.cell == RecurrentCell::gru;
  const Rows gy = Rows::of(*in[0], s.wide), y = Rows::of(*in[2], s.wide),
             kept = Rows::of(*in[3], s.wide), first = Rows::of(*in[4], s.wide),
             first_c = Rows::of(*in[5], s.wide), weight = Rows::of(*in[6], s.wide);
  const Rows gx(result_buffer(out[0], s.wide), s.columns),
      product(result_buffer(out[1], s.wide), s.n);
  const auto states = static_cast<size_t>(s.batch * product.bytes);
  std::memset(product.data, 0, states);
  Rows gc, gp = gx, direct;
  if (is_lstm) {
    gc = Rows(result_buffer(out[2], s.wide), s.n);
    cpu::copy(gc.tensor, *in[1]);
  }
  if (is_gru) {
    gp = Rows(result_buffer(out[2], s.wide), s.columns);
    direct = Rows::fresh({s.batch, s.n}, s.wide);
    std::memset(direct.data, 0, states);
  }
  const auto kernel = s.kernels.backward[static_cast<int>(s.cell)];
  const int64_t cells = kept_of(s.cell) * s.n;
  for (int64_t step = s.time - 1; step >= 0; --step) {
    const auto before = [&](int64_t r) {
      return step == 0 ? first.row(r) : y.row(s.row(step - 1, r));
    };
    const auto cell_before = [&](int64_t r) -> const char* {
      if (!is_lstm) return nullptr;
      return step == 0 ? first_c.row(r) : kept.row(s.row(step - 1, r)) + 4 * first.bytes;
    };
    s.for_rows([&](int64_t r, int64_t rows) {
      const int64_t at = s.row(step, r);
      kernel({.rows = rows,
              .n = s.n,
              .gy = gy.row(at),
              .product = product.row(r),
              .y = y.row(at),
              .h = before(r),
              .kept = kept.row(at),
              .c = cell_before(r),
              .c_row = step == 0 ? s.n : cells,
              .direct = direct.row(r),
              .gc = gc.row(r),
              .gx = gx.row(at),
              .gp = gp.row(at)});
    });
    s.multiply(gp.row(s.row(step, 0)), s.columns, weight, s.n, product.data);
  }
  if (is_gru) {
    Tensor sum = product.tensor;
    compute<Add>(sum, direct.tensor, sum);
  }
  store_result(out[0], gx.tensor);
  store_result(out[1], product.tensor);
  if (is_lstm) store_result(out[2], gc.tensor);
  if (is_gru) store_result(out[2], gp.tensor);
}

}  // namespace grapnel::cpu
