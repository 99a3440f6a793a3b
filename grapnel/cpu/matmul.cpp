/// Matrix products: operands become batches of matrices for cpu/kernels/gemm.h, and narrow results are
/// rounded tile by tile. Start reading at multiply.
#include "grapnel/ops/defs/matmul.h"

#include <algorithm>

#include "grapnel/cpu/dense.h"
#include "grapnel/cpu/kernels/gemm.h"
#include "grapnel/cpu/kernels/table.h"
#include "grapnel/cpu/raw.h"
#include "grapnel/cpu/run.h"
#include "grapnel/cpu/tiled.h"
#include "grapnel/ops/op_table.h"

namespace grapnel::cpu {

namespace {

/// An operand as matrices in a batch. A vector is one row on the left and one column on the right.
struct Matrices {
  int64_t rows = 1, cols = 1, row_stride = 0, col_stride = 0;
  int batch_rank = 0;

  static Matrices left(const Tensor& t) {
    return t.dim() == 1 ? vector(1, t.size(0), 0, t.stride(0)) : of(t);
  }
  static Matrices right(const Tensor& t) {
    return t.dim() == 1 ? vector(t.size(0), 1, t.stride(0), 0) : of(t);
  }

 private:
  static Matrices vector(int64_t rows, int64_t cols, int64_t row_stride, int64_t col_stride) {
    return {rows, cols, row_stride, col_stride, 0};
  }
  static Matrices of(const Tensor& t) {
    return {t.size(-2), t.size(-1), t.stride(-2), t.stride(-1), static_cast<int>(t.dim()) - 2};
  }
};

/// The batch dimensions of three operands, merged where all of them walk evenly.
struct Batches {
  int rank = 0;
  int64_t sizes[kMaxRank], strides[3][kMaxRank];

  void add(int64_t size, int64_t a, int64_t b, int64_t c) {
    if (size == 1) return;
    const int last = rank - 1;
    if (rank > 0 && strides[0][last] == a * size && strides[1][last] == b * size &&
        strides[2][last] == c * size) {
      sizes[last] *= size;
    } else {
      sizes[rank++] = size;
    }
    strides[0][rank - 1] = a;
    strides[1][rank - 1] = b;
    strides[2][rank - 1] = c;
  }
};

/// Stride of operand `t` along dimension i of a batch with `rank` dimensions.
int64_t batch_stride(const Tensor& t, int own_rank, int i, int rank) {
  const int own = i - (rank - own_rank);
  return own < 0 || t.shape()[own] == 1 ? 0 : t.impl().strides[own];
}

/// c = a @ b; a and b of one compute type, c dense. Where c has another type its memory stays as it
/// is, and steps.take gets the tiles. With steps.fill a has no memory. `rows_are_used_once`:
/// answers that, and computes nothing.
void multiply(const Tensor& a, const Tensor& b, const Tensor& c, Compute compute,
              const kernels::GemmSteps& steps, bool* rows_are_used_once = nullptr) {
  const Matrices left = Matrices::left(a), right = Matrices::right(b);
  const auto size = static_cast<int64_t>(element_size(a.dtype()));
  kernels::GemmArgs args;
  args.type = compute == Compute::F32   ? kernels::GemmType::f32
              : compute == Compute::F64 ? kernels::GemmType::f64
                                        : kernels::GemmType::i64;
  args.m = left.rows;
  args.n = right.cols;
  args.k = left.cols;
  args.a_row = left.row_stride;
  args.a_col = left.col_stride;
  args.b_row = right.row_stride;
  args.b_col = right.col_stride;
  args.c_row = args.n;

  Batches batches;
  const int rank = std::max(left.batch_rank, right.batch_rank);
  int64_t item = args.m * args.n;
  for (int i = 0; i < rank; ++i) {
    int64_t stride = item;
    for (int j = i + 1; j < rank; ++j) stride *= c.shape()[j];
    batches.add(c.shape()[i], batch_stride(a, left.batch_rank, i, rank),
                batch_stride(b, right.batch_rank, i, rank), stride);
  }
  // A batch against one matrix is one tall matrix, if its rows lie evenly.
  if (batches.rank > 0) {
    const int last = batches.rank - 1;
    if (batches.strides[1][last] == 0 && batches.strides[0][last] == args.m * args.a_row &&
        batches.strides[2][last] == item) {
      args.m *= batches.sizes[last];
      --batches.rank;
    }
  }
  bool repeats = false;  // the same matrix again and again
  for (int i = 0; i < batches.rank; ++i) repeats |= batches.strides[0][i] == 0;
  int64_t outer = 1;
  if (batches.rank > 0) {
    const int last = --batches.rank;
    args.batch = batches.sizes[last];
    args.a_batch = batches.strides[0][last];
    args.b_batch = batches.strides[1][last];
    args.c_batch = batches.strides[2][last];
    for (int i = 0; i < last; ++i) outer *= batches.sizes[i];
  }
  if (rows_are_used_once) {
    *rows_are_used_once = !repeats && kernels::a_comes_in_rows(args);
    return;
  }
  for (int64_t o = 0; o < outer; ++o) {
    int64_t at[3] = {};
    for (int64_t i = batches.rank - 1, rest = o; i >= 0; rest /= batches.sizes[i], --i)
      for (int k = 0; k < 3; ++k) at[k] += rest % batches.sizes[i] * batches.strides[k][i];
    args.a = steps.fill ? nullptr : a.impl().host() + at[0] * size;
    args.b = b.impl().host() + at[1] * size;
    args.c = c.dtype() == a.dtype() ? c.impl().host() + at[2] * size : nullptr;
    const auto moved = [](const kernels::TileFn& fn, int64_t by) {
      return [&fn, by](kernels::Tile tile) {
        tile.begin += by;
        fn(tile);
      };
    };
    const auto take = moved(steps.take, at[2]), done = moved(steps.done, at[2]),
               fill = moved(steps.fill, at[0]);
    kernels::GemmSteps here;
    if (steps.take) here.take = take;
    if (steps.done) here.done = done;
    if (steps.fill) here.fill = fill;
    kernels::gemm(args, here);
  }
}

/// What a looks like as `dtype`.
Tensor without_memory(const Tensor& a, DType dtype) {
  return Tensor(
      TensorImpl::create(Storage::create_lazy(0, kCPU), dtype, a.shape(), a.impl().strides));
}

/// a @ b, rounded once to the type of `out`.
void run_matmul(const Tensor& a, const Tensor& b, const Tensor& out, kernels::TileFn done = {},
                kernels::TileFn fill = {}) {
  if (out.numel() == 0) return;
  const Compute compute = compute_type(out.dtype());
  const DType wide = dtype_of(compute);
  const Tensor left = fill ? without_memory(a, wide) : converted(a, wide),
               right = converted(b, wide);
  if (!out.is_contiguous()) {
    const Tensor dense_out(TensorImpl::empty(out.shape(), wide, kCPU));
    multiply(left, right, dense_out, compute, {});
    return cpu::copy(out, dense_out);
  }
  if (out.dtype() == wide) return multiply(left, right, out, compute, {.done = done, .fill = fill});
  // Narrow results are rounded tile by tile, so that the wide ones are never in memory as a whole.
  const auto store =
      kernels::table().store[static_cast<int>(out.dtype())][static_cast<int>(compute)];
  const auto from_size = static_cast<int64_t>(element_size(wide)),
             to_size = static_cast<int64_t>(element_size(out.dtype()));
  const auto round = [&](const kernels::Tile& tile) {
    for (int64_t i = 0; i < tile.rows; ++i)
      store(static_cast<const char*>(tile.local) + i * tile.cols * from_size,
            out.impl().host() + (tile.begin + i * tile.pitch) * to_size, 1, tile.cols);
  };
  multiply(left, right, out, compute, {.take = round, .done = done, .fill = fill});
}

bool matmul_in_pieces(const Tensor& a, const Tensor& b, const Tensor& out) {
  bool once = false;
  multiply(a, b, out, compute_type(out.dtype()), {}, &once);
  return once;
}

/// The tiles of an op whose factors are the inputs `first` and the one behind it.
template <int first>
constexpr Tiles product_of_inputs{
    .product =
        [](Inputs in, const void*, const Tensor& out, kernels::TileFn done, kernels::TileFn fill) {
          run_matmul(*in[first], *in[first + 1], out, done, fill);
        },
    .in_pieces =
        [](Inputs in, const void*, const Tensor& out) {
          return matmul_in_pieces(*in[first], *in[first + 1], out);
        }};

}  // namespace

template <>
Tiles tiles<MatMul>() {
  return product_of_inputs<0>;
}
template <>
Tiles tiles<Addmm>() {
  return product_of_inputs<1>;
}

template <>
void run<MatMul>(Inputs in, const MatMul::Attrs&, std::span<Tensor> out) {
  run_matmul(*in[0], *in[1], out[0]);
}

namespace {

Tensor number_like(const Tensor& t, double value) {
  return wrap_number(is_floating(t.dtype()) ? Scalar(value) : Scalar(static_cast<int64_t>(value)));
}

}  // namespace

template <>
void run<Addmm>(Inputs in, const Addmm::Attrs& attrs, std::span<Tensor> out) {
  Tensor x = *in[0];
  run_matmul(*in[1], *in[2], out[0]);
  if (attrs.beta == 0) {
    if (attrs.alpha != 1) compute<Mul>(out[0], out[0], number_like(out[0], attrs.alpha));
    return;
  }
  if (attrs.beta != 1) {
    Tensor scaled(TensorImpl::empty(x.shape(), x.dtype(), kCPU));
    compute<Mul>(scaled, x, number_like(x, attrs.beta));
    x = scaled;
  }
  if (attrs.alpha == 1) compute<Add>(out[0], x, out[0]);
  else compute<AddScaled>(out[0], x, out[0], number_like(out[0], attrs.alpha));
}

}  // namespace grapnel::cpu
