#include "grapnel/cpu/kernels/gemm.h"

#include <algorithm>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include "grapnel/base/cpu.h"
#include "grapnel/base/error.h"
#include "grapnel/base/hold_signals.h"
#include "grapnel/base/thread_pool.h"
#include "grapnel/cpu/kernels/gemm_kernel.h"
#include "grapnel/cpu/kernels/onednn.h"
#include "grapnel/cpu/kernels/table.h"

namespace grapnel::kernels {

namespace {

// ---- One tile, one thread ----

template <class T>
void own_gemm(const GemmBlock<T>& g) {
  static constinit thread_local base::PerThread<Scratch> own_scratch;
  Scratch& scratch = own_scratch.get();
  T* const memory = static_cast<T*>(scratch.get(static_cast<size_t>(gemm_scratch<T>) * sizeof(T)));
  table().gemm<T>().product(g, memory);
}

/// Below this many multiplications oneDNN's own overhead (0.3 us) outweighs its better kernel.
constexpr int64_t small_product = 20 * 20 * 20;

/// Whole tiles of our AVX-512 kernel also beat oneDNN, which packs its operands first, while the
/// product is small: 64 cubed ran at 112 GFLOP/s against 99 on one Zen 4 core. With tiles cut at
/// the edge, or with AVX2, ours was up to a third slower.
bool own_is_faster(const GemmBlock<float>& g) {
  const int64_t work = g.m * g.n * g.k;
  if (work <= small_product) return true;
  return work <= 64 * 64 * 64 && base::cpu_isa() == base::Isa::avx512 && g.m % 8 == 0 &&
         g.n % 16 == 0 && g.n <= 96;
}

void gemm_tile(GemmBlock<float> g) {
  if (own_is_faster(g)) return own_gemm(g);
  const OneThread guard;
  // oneDNN packs a transposed b slowly, and there are only m rows to make up for it: on one Zen 4
  // core 64 x 512 x 512 ran at 89 GFLOP/s as it was and at 102 with b turned round first.
  bool b_transposed = g.b_col != 1;
  if (b_transposed && g.m > 1 && g.m <= 256) {
    static constinit thread_local base::PerThread<Scratch> own_scratch;
    Scratch& scratch = own_scratch.get();
    float* const turned = scratch.floats(g.n * g.k);
    table().gemm<float>().transpose(g.n, g.k, g.b, g.b_col, turned, g.n);
    g.b = turned;
    g.b_row = g.n;
    b_transposed = false;
  }
  const bool a_transposed = g.a_col != 1;
  // oneDNN's generated code points the stack register into a buffer on the heap, where a signal
  // handler would write its frame.
  const base::HoldSignals hold;
  const dnnl_status_t status = dnnl_sgemm(
      a_transposed ? 'T' : 'N', b_transposed ? 'T' : 'N', g.m, g.n, g.k, 1.0f, g.a,
      a_transposed ? g.a_col : g.a_row, g.b, b_transposed ? g.b_col : g.b_row, 0.0f, g.c, g.c_row);
  if (status == dnnl_out_of_memory) throw std::bad_alloc();
  GRAPNEL_ASSERT(status == dnnl_success, "dnnl_sgemm returned ", status, " for ", g.m, " x ", g.k,
                 " times ", g.k, " x ", g.n);
}

void gemm_tile(const GemmBlock<double>& g) { own_gemm(g); }

void gemm_tile(const GemmBlock<int64_t>& g) {
  for (int64_t i = 0; i < g.m; ++i) {
    // Unsigned, because overflow wraps.
    auto* c = reinterpret_cast<uint64_t*>(g.c + i * g.c_row);
    std::fill_n(c, g.n, uint64_t{0});
    for (int64_t p = 0; p < g.k; ++p) {
      const auto a = static_cast<uint64_t>(g.a[i * g.a_row + p * g.a_col]);
      const int64_t* b = g.b + p * g.b_row;
      for (int64_t j = 0; j < g.n; ++j) c[j] += a * static_cast<uint64_t>(b[j * g.b_col]);
    }
  }
}

// ---- The cut into tiles: a function of the sizes alone ----

struct Tiles {
  int64_t m, n;  // of one tile; those at the edges may be smaller
};

int64_t divide_up(int64_t x, int64_t y) { return (x + y - 1) / y; }

/// At most 512 x 512; smaller, to give more threads something to do, while that keeps a tile worth
/// a thread's while. Whole registers except at the edge.
Tiles cut(int64_t m, int64_t n, int64_t k) {
  constexpr int64_t enough_tiles = 8, least_work = int64_t{1} << 20;
  constexpr int64_t whole_m = 8, whole_n = 16;
  const auto part = [](int64_t size, int64_t parts, int64_t whole) {
    return parts == 1 ? size : divide_up(divide_up(size, parts), whole) * whole;
  };
  int64_t m_parts = divide_up(m, 512), n_parts = divide_up(n, 512);
  Tiles t{part(m, m_parts, whole_m), part(n, n_parts, whole_n)};
  while (m_parts * n_parts < enough_tiles && t.m * t.n * k >= 2 * least_work) {
    // Wide tiles were a little faster than tall ones of the same area (107 against 105 GFLOP/s).
    if (t.m >= 128 && 2 * t.m > t.n) t.m = part(m, m_parts *= 2, whole_m);
    else if (t.n >= 256) t.n = part(n, n_parts *= 2, whole_n);
    else break;
  }
  return t;
}

// ---- Operands that no kernel reads in place ----

template <class T>
struct Operand {
  const T* data;
  int64_t row, col, batch;
  std::unique_ptr<T[]> copy = nullptr;
};

/// Strides of dimensions with one element mean nothing; let them say what a dense matrix would.
template <class T>
void tidy(int64_t rows, int64_t cols, Operand<T>& x) {
  if (cols == 1) x.col = x.row == 1 ? std::max<int64_t>(rows, 1) : 1;
  if (rows == 1) x.row = x.col == 1 ? std::max<int64_t>(cols, 1) : 1;
}

/// True if one stride is 1 and lines do not overlap, which is what oneDNN asks for.
template <class T>
bool has_lines(int64_t rows, int64_t cols, const Operand<T>& x) {
  return (x.col == 1 && x.row >= cols) || (x.row == 1 && x.col >= rows);
}

template <class T>
void make_dense(int64_t rows, int64_t cols, int64_t batch, Operand<T>& x) {
  const int64_t items = x.batch == 0 ? 1 : batch;
  x.copy = std::make_unique_for_overwrite<T[]>(static_cast<size_t>(items * rows * cols));
  base::parallel_for(items * rows, std::max<int64_t>(1, 16384 / std::max<int64_t>(cols, 1)),
                     [&](int64_t begin, int64_t end) {
                       for (int64_t line = begin; line < end; ++line) {
                         const T* from = x.data + line / rows * x.batch + line % rows * x.row;
                         T* to = x.copy.get() + line * cols;
                         for (int64_t j = 0; j < cols; ++j) to[j] = from[j * x.col];
                       }
                     });
  x = {x.copy.get(), cols, 1, x.batch == 0 ? 0 : rows * cols, std::move(x.copy)};
}

/// Panels are rows of tiles. Whether there are enough to keep the threads busy, each with panels of
/// its own.
bool enough_panels(int64_t panels) { return panels >= 2 * get_num_threads(); }

/// One call of gemm.
template <class T>
struct Product {
  Product(const GemmArgs& args, const GemmSteps& the_steps)
      : g(args),
        steps(the_steps),
        a{static_cast<const T*>(g.a), g.a_row, g.a_col, g.a_batch},
        b{static_cast<const T*>(g.b), g.b_row, g.b_col, g.b_batch} {
    if constexpr (std::is_same_v<T, float>) {
      tidy(g.m, g.k, a);
      tidy(g.k, g.n, b);
      if (g.m * g.n * g.k > small_product) {
        if (!has_lines(g.m, g.k, a)) make_dense(g.m, g.k, g.batch, a);
        if (!has_lines(g.k, g.n, b)) make_dense(g.k, g.n, g.batch, b);
      }
    }
  }

  /// Which thread computes a tile, and when, changes no bit.
  void run() const {
    if (steps.fill || (steps.done && (across == 1 || enough_panels(g.batch * down))))
      return run_panels();
    if (g.batch * down * across == 1) tile(0, 0, a_rows(0));
    else
      share_out(g.batch * down * across, t.n, [&](int64_t begin, int64_t end) {
        for (int64_t index = begin; index < end; ++index)
          tile(index / across, index % across, a_rows(index / across));
      });
    tell(0, g.batch * down);
  }

  /// Small products of a batch are claimed several at a time. `n`: the columns of one piece.
  template <class Fn>
  void share_out(int64_t pieces, int64_t n, Fn&& fn) const {
    constexpr int64_t work_per_claim = int64_t{1} << 18;
    base::parallel_for(
        pieces, std::max<int64_t>(1, work_per_claim / std::max<int64_t>(1, t.m * n * g.k)), fn);
  }

  void run_panels() const {
    share_out(g.batch * down, g.n, [&](int64_t begin, int64_t end) {
      for (int64_t panel = begin; panel < end; ++panel) {
        const T* const rows = steps.fill ? filled(panel) : a_rows(panel);
        for (int64_t j = 0; j < across; ++j) tile(panel, j, rows);
      }
      tell(begin, end);
    });
  }

  int64_t first_row(int64_t panel) const { return panel % down * t.m; }
  int64_t row_count(int64_t panel) const { return std::min(t.m, g.m - first_row(panel)); }
  const T* a_rows(int64_t panel) const {
    return a.data + panel / down * a.batch + first_row(panel) * a.row;
  }

  /// Rows of a that are not in memory.
  const T* filled(int64_t panel) const {
    static constinit thread_local base::PerThread<Scratch> own_scratch;
    Scratch& scratch = own_scratch.get();
    const int64_t rows = row_count(panel);
    T* const memory =
        static_cast<T*>(scratch.get(static_cast<size_t>(rows * g.k + kTileMargin) * sizeof(T)));
    steps.fill({panel / down * g.a_batch + first_row(panel) * g.k, rows, g.k, g.k, memory});
    return memory;
  }

  void tile(int64_t panel, int64_t column, const T* rows_of_a) const {
    const int64_t item = panel / down, i = first_row(panel), j = column * t.n;
    Tile place{item * g.c_batch + i * g.c_row + j, row_count(panel), std::min(t.n, g.n - j),
               g.c_row};
    T* c;
    int64_t c_row;
    if (g.c) {
      c = static_cast<T*>(g.c) + place.begin;
      c_row = g.c_row;
    } else {
      static constinit thread_local base::PerThread<Scratch> own_scratch;
      Scratch& scratch = own_scratch.get();
      c = static_cast<T*>(scratch.get(static_cast<size_t>(place.rows * place.cols) * sizeof(T)));
      c_row = place.cols;
      place.local = c;
    }
    gemm_tile(GemmBlock<T>{place.rows, place.cols, g.k, rows_of_a, a.row, a.col,
                           b.data + item * b.batch + j * b.col, b.row, b.col, c, c_row});
    if (!g.c) steps.take(place);
  }

  /// Panels [begin, end) are finished: all at once, if they lie behind each other.
  void tell(int64_t begin, int64_t end) const {
    if (!steps.done) return;
    const auto start = [&](int64_t panel) {
      return panel / down * g.c_batch + first_row(panel) * g.c_row;
    };
    if (g.c_row == g.n && (g.batch == 1 || g.c_batch == g.m * g.n)) {
      const int64_t rows = (start(end - 1) - start(begin)) / g.n + row_count(end - 1);
      return steps.done({start(begin), rows, g.n, g.n});
    }
    for (int64_t panel = begin; panel < end; ++panel)
      steps.done({start(panel), row_count(panel), g.n, g.c_row});
  }

  const GemmArgs& g;
  const GemmSteps& steps;
  Operand<T> a, b;
  const Tiles t = cut(g.m, g.n, g.k);
  const int64_t across = divide_up(g.n, t.n), down = divide_up(g.m, t.m);
};

}  // namespace

void gemm(const GemmArgs& args, const GemmSteps& steps) {
  if (args.m == 0 || args.n == 0 || args.batch == 0) return;
  switch (args.type) {
    case GemmType::f32: return Product<float>(args, steps).run();
    case GemmType::f64: return Product<double>(args, steps).run();
    case GemmType::i64: return Product<int64_t>(args, steps).run();
  }
}

bool a_comes_in_rows(const GemmArgs& args) {
  const Tiles t = cut(args.m, args.n, args.k);
  const int64_t panels = args.batch * divide_up(args.m, t.m);
  return panels > 1 && t.m * args.k <= kLargestFill && (t.n >= args.n || enough_panels(panels));
}

}  // namespace grapnel::kernels
