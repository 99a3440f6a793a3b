/// Matrix products on raw memory: what eager ops and compiled graphs both call.
///
/// The bits of a result depend on the sizes and strides alone: c is cut into tiles by a fixed rule,
/// each tile is computed by one thread, and threads only share out the tiles.
#pragma once

#include "grapnel/cpu/kernels/tile.h"

namespace grapnel::kernels {

enum class GemmType { f32, f64, i64 };

/// c[i, j] = sum over p of a[i, p] * b[p, j], for each item of the batch. Strides count elements; a
/// and b may lie in memory in any way, transposed or with stride 0; c has unit stride along n and
/// overlaps neither. With k = 0, c becomes zero. Integers wrap around.
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

/// What else happens on the way. Each of them changes who computes a tile and when, never what is
/// computed.
struct GemmSteps {
  /// Where args.c is null there is no whole: tiles are computed in memory of their threads and
  /// given to this.
  TileFn take = {};
  /// Hears of rows of c that are finished: of some while they are in the cache if threads can have
  /// rows of their own, else of all of them at the end.
  TileFn done = {};
  /// a is not in memory: it is a batch of dense matrices, and this computes some rows of it before
  /// they are used. Once each, if a_comes_in_rows.
  TileFn fill = {};
};

/// May use the pool; inside a piece of a parallel_for it stays on the thread. f32 is oneDNN's,
/// except for small products; f64 is ours.
void gemm(const GemmArgs& args, const GemmSteps& steps = {});

/// Whether rows of a can be computed once each, on as many threads as the product has use for.
bool a_comes_in_rows(const GemmArgs& args);

}  // namespace grapnel::kernels
