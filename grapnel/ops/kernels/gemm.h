/// Matrix products on raw memory: what eager ops and compiled graphs both call.
///
/// The bits of a result depend on the sizes and strides alone: c is cut into tiles by a fixed rule, each tile
/// is computed by one thread, and threads only share out the tiles.
#pragma once

#include "grapnel/ops/kernels/tile.h"

namespace grapnel::kernels {

enum class GemmType { f32, f64, i64 };

/// c[i, j] = sum over p of a[i, p] * b[p, j], for each item of the batch. Strides count elements; a and b may
/// lie in memory in any way, transposed or with stride 0; c has unit stride along n and overlaps neither.
/// With k = 0, c becomes zero. Integers wrap around. Where c is null there is no whole: tiles are computed in
/// memory of their threads, for whoever takes them.
struct GemmArgs {
  GemmType type = GemmType::f32;
  int64_t m = 0, n = 0, k = 0;
  const void* a = nullptr;
  int64_t a_row = 0, a_col = 0;
  const void* b = nullptr;
  int64_t b_row = 0, b_col = 0;
  void* c = nullptr;
  int64_t c_row = 0;

  int64_t batch = 1;
  int64_t a_batch = 0, b_batch = 0, c_batch = 0;
};

/// May use the pool; inside a piece of a parallel_for it stays on the thread. f32 is oneDNN's, except for
/// small products; f64 is ours. `done` hears of every tile of c when it is finished.
///
/// With `fill`, a is not in memory: it is a batch of dense matrices, and fill(tile) computes some rows of it in
/// tile.local before they are used. A row is computed once if `a_comes_in_rows` says so for these sizes.
void gemm(const GemmArgs& args, TileFn done = {}, TileFn fill = {});

/// Whether rows of a can be computed once each, on as many threads as the product has use for.
bool a_comes_in_rows(const GemmArgs& args);

}  // namespace grapnel::kernels
