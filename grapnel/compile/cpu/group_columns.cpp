/// Groups that reduce columns: all rows of a strip of columns pass by, one after the other.
#include <algorithm>

#include "grapnel/base/thread_pool.h"
#include "grapnel/compile/cpu/group_run.h"

namespace grapnel::compiler {

using kernels::kReduceChunk;
using kernels::kReduceLanes;

namespace {

/// Lane l of Note [Reduction tree] is here a row of values, one per column; `bytes`: from lane to
/// lane.
void fold_lanes(const kernels::ReduceKernels& kernels, int64_t bytes, char* lane, int64_t used,
                int64_t n) {
  for (int64_t half = kReduceLanes / 2; half > 0; half /= 2)
    for (int64_t l = 0; l < half && l + half < used; ++l)
      kernels.combine(lane + l * bytes, lane + (l + half) * bytes, n);
}

}  // namespace

void GroupRun::finish_columns(const Target& t, const char* partial, int64_t chunks, int64_t n,
                              int64_t column, const Span& span) const {
  std::vector<char> results(static_cast<size_t>(n * t.size)),
      one(static_cast<size_t>(chunks * t.size));
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t c = 0; c < chunks; ++c)
      std::copy_n(partial + (c * n + i) * t.size, t.size, one.data() + c * t.size);
    kernels::fold_chunks(t.kernels->chunk, one.data(), chunks, t.size);
    std::copy_n(one.data(), t.size, results.data() + i * t.size);
  }
  store(t, results.data(), column, n, span);
}

void GroupRun::run_columns(int64_t grain) const {
  const int64_t rows = cut_.row, width = cut_.elements / rows;  // a "row" of this cut is one column
  const int64_t strips = (width + kStrip - 1) / kStrip,
                chunks = (rows + kReduceChunk - 1) / kReduceChunk;
  const int64_t lanes = std::min(rows, kReduceLanes);
  base::parallel_for(
      strips, std::max<int64_t>(1, grain / (rows * std::min(kStrip, width))),
      [&](int64_t first, int64_t last) {
        const Span span{thread_scratch(scratch_bytes()), 0, 0};
        const Pointers lane = reduced_blocks(span);
        Pointers row_of(targets_.size());
        std::vector<std::vector<char>> partial(targets_.size());
        for (int64_t s = first; s < last; ++s) {
          const int64_t column = s * kStrip, n = std::min(kStrip, width - column);
          for (size_t k = 0; k < targets_.size(); ++k)
            partial[k].resize(static_cast<size_t>(chunks * n * targets_[k].size));
          for (int64_t c = 0; c < chunks; ++c) {
            const int64_t start = c * kReduceChunk, count = std::min(kReduceChunk, rows - start);
            for (int64_t r = 0; r < count; ++r) {
              // The first rows become the lanes; later ones are computed beside them and combined.
              const bool fresh = r < kReduceLanes;
              for (size_t k = 0; k < targets_.size(); ++k)
                row_of[k] = lane[k] + (fresh ? r : lanes) * kStrip * targets_[k].size;
              const int64_t begin = (start + r) * width + column;
              compute(begin, begin + n, row_of.data(), span);
              if (!fresh)
                for (size_t k = 0; k < targets_.size(); ++k)
                  targets_[k].kernels->combine(
                      lane[k] + r % kReduceLanes * kStrip * targets_[k].size, row_of[k], n);
            }
            for (size_t k = 0; k < targets_.size(); ++k) {
              fold_lanes(*targets_[k].kernels, kStrip * targets_[k].size, lane[k],
                         std::min(count, kReduceLanes), n);
              std::copy_n(lane[k], n * targets_[k].size,
                          partial[k].data() + c * n * targets_[k].size);
            }
          }
          for (size_t k = 0; k < targets_.size(); ++k) {
            if (chunks == 1) store(targets_[k], partial[k].data(), column, n, span);
            else finish_columns(targets_[k], partial[k].data(), chunks, n, column, span);
          }
        }
      });
}

}  // namespace grapnel::compiler
