#include "grapnel/compile/group_run.h"

#include <cstring>

#include "grapnel/base/thread_pool.h"
#include "grapnel/compile/blocks.h"
#include "grapnel/ops/define.h"
#include "grapnel/ops/kernels/reduce_kernel.h"

namespace grapnel::compile_detail {

using namespace capture;
using codegen::BlockProgram;
using kernels::kReduceChunk;

namespace {

/// Elements of work below which a second thread does not pay, for a program of one step.
constexpr int64_t kWork = 32768;
/// Columns that are reduced side by side.
constexpr int64_t kStrip = 256;

int64_t size_of(Compute c) { return static_cast<int64_t>(element_size(dtype_of(c))); }
int64_t padded(int64_t n) { return (n + codegen::kLanes - 1) / codegen::kLanes * codegen::kLanes; }

/// Buffers of one thread, reused from run to run.
char* scratch(size_t bytes) {
  static thread_local std::unique_ptr<char[]> memory;
  static thread_local size_t size = 0;
  if (size < bytes + 64) {
    memory.reset(new char[bytes + 64]);
    size = bytes + 64;
  }
  return reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(memory.get()) + 63) & ~uintptr_t{63});
}

/// What a reduction of the group works on.
struct Target {
  const kernels::ReduceKernels* kernels;
  Compute compute;
  int64_t size;
  Tensor out;
  std::vector<char> wide;  ///< results in compute type, unless `out` holds that type
  char* results;
};

class GroupRun {
 public:
  GroupRun(const Group& group, codegen::BlockFn kernel, Trace& trace, Memory& memory, RunCounts& counts)
      : g_(group), kernel_(kernel), t_(trace), numel_(trace.numel_of(trace.values[group.space])) {
    const BlockProgram& p = g_.program;
    for (size_t k = 0; k < g_.inputs.size(); ++k) {
      const Value& shape = t_.values[g_.inputs[k].shape];
      inputs_.emplace_back(memory.tensor(g_.inputs[k].value), Shape(t_.sizes_of(shape)), p.inputs[k]);
      counts.bytes_read += numel_ * inputs_.back().bytes_per_element();
    }
    for (const Group::Output& o : g_.outputs) {
      const Tensor t = memory.tensor(o.value);
      outputs_.emplace_back(t, t.shape(), p.type_of(o.reg));
      counts.bytes_written += numel_ * static_cast<int64_t>(t.element_size());
    }
    scalars_.resize(g_.numbers.size());
    for (size_t k = 0; k < g_.numbers.size(); ++k) {
      const Value& v = t_.values[g_.numbers[k]];
      kernels::table().load[static_cast<int>(v.dtype)][static_cast<int>(p.scalars[k])](&t_.numbers[v.slot], 0, &scalars_[k], 1);
    }
    for (const Group::Reduction& r : g_.reductions) add_target(r, memory);
  }

  void run() {
    const auto steps = static_cast<int64_t>(std::max<size_t>(1, g_.program.steps.size()));
    grain_ = std::max<int64_t>(kBlock, kWork / std::min<int64_t>(steps, 8));
    switch (g_.reduce) {
      case Group::Reduce::none:
        base::parallel_for((numel_ + kBlock - 1) / kBlock, std::max<int64_t>(1, grain_ / kBlock), [&](int64_t begin, int64_t end) {
          compute(begin * kBlock, std::min(numel_, end * kBlock), 0, nullptr);
        });
        break;
      case Group::Reduce::rows: by_rows(); break;
      case Group::Reduce::columns: by_columns(); break;
    }
    for (Target& target : targets_) {
      const int64_t outputs = target.out.numel();
      if (target.kernels->finish) target.kernels->finish(target.results, outputs, numel_ / outputs);
      if (!target.wide.empty()) Stream(target.out, target.out.shape(), target.compute).write(target.results, 0, outputs);
    }
  }

 private:
  void add_target(const Group::Reduction& r, Memory& memory) {
    const Instruction& c = t_.calls[r.call];
    Target target;
    target.compute = g_.program.type_of(r.reg);
    target.size = size_of(target.compute);
    target.kernels = &kernels::table().reduce[c.op->index][static_cast<int>(target.compute)];
    target.out = memory.tensor(t_.outputs_of(c)[0]);
    if (target.out.dtype() != dtype_of(target.compute)) target.wide.resize(static_cast<size_t>(target.out.numel() * target.size));
    target.results = target.wide.empty() ? target.out.impl().data() : target.wide.data();
    targets_.push_back(std::move(target));
    // The wide buffer moved with the target; its memory did not.
  }

  // Layout of a thread's scratch: blocks of inputs, blocks of outputs, then what the caller asks for.
  size_t block_bytes() const { return static_cast<size_t>(kBlock) * 8; }
  size_t staging_bytes() const { return (inputs_.size() + outputs_.size()) * block_bytes(); }

  /// Runs the program on elements [begin, end). `reduced[k]` receives the source of reduction k, element i at position i - origin.
  void compute(int64_t begin, int64_t end, int64_t origin, char* const* reduced) const {
    char* const buffers = scratch(staging_bytes() + extra_);
    SmallVector<const void*, 24> in(inputs_.size());
    SmallVector<void*, 24> out(outputs_.size() + targets_.size());
    const int64_t usual = std::min(kBlock, padded(end - begin));
    for (size_t k = 0; k < inputs_.size(); ++k)
      if (inputs_[k].constant()) {
        inputs_[k].fill(buffers + k * block_bytes(), usual);
        in[k] = buffers + k * block_bytes();
      }
    for (int64_t b = begin; b < end; b += kBlock) {
      const int64_t n = std::min(kBlock, end - b);
      const bool pad = kernel_ != nullptr;
      for (size_t k = 0; k < inputs_.size(); ++k)
        if (!inputs_[k].constant()) in[k] = inputs_[k].read(b, n, buffers + k * block_bytes(), pad);
      for (size_t k = 0; k < outputs_.size(); ++k) {
        out[k] = outputs_[k].target(b, n, pad);
        if (!out[k]) out[k] = buffers + (inputs_.size() + k) * block_bytes();
      }
      for (size_t k = 0; k < targets_.size(); ++k) out[outputs_.size() + k] = reduced[k] + (b - origin) * targets_[k].size;
      if (kernel_) kernel_(in.data(), out.data(), scalars_.data(), padded(n));
      else codegen::interpret(g_.program, in.data(), out.data(), scalars_.data(), n);
      for (size_t k = 0; k < outputs_.size(); ++k)
        if (out[k] == buffers + (inputs_.size() + k) * block_bytes()) outputs_[k].write(out[k], b, n);
    }
  }

  /// How many elements fall on one result.
  int64_t reduced_count() const { return numel_ / targets_[0].out.numel(); }

  /// Where a thread keeps the values to be reduced.
  void place_reduced(int64_t elements, SmallVector<char*, 4>& reduced) const {
    char* const base = scratch(staging_bytes() + extra_) + staging_bytes();
    for (size_t k = 0; k < targets_.size(); ++k) reduced.push_back(base + static_cast<int64_t>(k) * padded(elements) * 8);
  }

  void by_rows() {
    const int64_t row = reduced_count(), rows = numel_ / row;
    extra_ = targets_.size() * static_cast<size_t>(padded(kReduceChunk) + kBlock) * 8;
    if (row <= kReduceChunk) {
      const int64_t per_span = std::max<int64_t>(1, kReduceChunk / row), spans = (rows + per_span - 1) / per_span;
      base::parallel_for(spans, std::max<int64_t>(1, grain_ / (per_span * row)), [&](int64_t first, int64_t last) {
        SmallVector<char*, 4> reduced;
        place_reduced(kReduceChunk + kBlock, reduced);
        for (int64_t s = first; s < last; ++s) {
          const int64_t begin = s * per_span, end = std::min(rows, begin + per_span);
          compute(begin * row, end * row, begin * row, reduced.data());
          for (size_t k = 0; k < targets_.size(); ++k)
            for (int64_t r = begin; r < end; ++r)
              targets_[k].kernels->chunk(reduced[k] + (r - begin) * row * targets_[k].size, row, targets_[k].results + r * targets_[k].size);
        }
      });
      return;
    }
    const int64_t chunks = (row + kReduceChunk - 1) / kReduceChunk;
    std::vector<std::vector<char>> partial(targets_.size());
    for (size_t k = 0; k < targets_.size(); ++k) partial[k].resize(static_cast<size_t>(rows * chunks * targets_[k].size));
    base::parallel_for(rows * chunks, std::max<int64_t>(1, grain_ / kReduceChunk), [&](int64_t first, int64_t last) {
      SmallVector<char*, 4> reduced;
      place_reduced(kReduceChunk + kBlock, reduced);
      for (int64_t i = first; i < last; ++i) {
        const int64_t c = i % chunks, begin = i / chunks * row + c * kReduceChunk, n = std::min(kReduceChunk, row - c * kReduceChunk);
        compute(begin, begin + n, begin, reduced.data());
        for (size_t k = 0; k < targets_.size(); ++k) targets_[k].kernels->chunk(reduced[k], n, partial[k].data() + i * targets_[k].size);
      }
    });
    for (size_t k = 0; k < targets_.size(); ++k)
      for (int64_t r = 0; r < rows; ++r) {
        char* const first = partial[k].data() + r * chunks * targets_[k].size;
        kernels::fold_chunks(targets_[k].kernels->chunk, first, chunks, targets_[k].size);
        std::copy_n(first, targets_[k].size, targets_[k].results + r * targets_[k].size);
      }
  }

  /// Lane l of Note [Reduction tree] is here a row of values, one per column.
  void by_columns() {
    const int64_t rows = reduced_count(), width = numel_ / rows;
    const int64_t strips = (width + kStrip - 1) / kStrip, chunks = (rows + kReduceChunk - 1) / kReduceChunk;
    const int64_t lanes = std::min(rows, kernels::kReduceLanes);
    extra_ = targets_.size() * static_cast<size_t>(padded((lanes + 1) * kStrip)) * 8;
    base::parallel_for(strips, std::max<int64_t>(1, grain_ / (rows * std::min(kStrip, width))), [&](int64_t first, int64_t last) {
      SmallVector<char*, 4> lane, row_of(targets_.size());
      place_reduced((lanes + 1) * kStrip, lane);
      std::vector<std::vector<char>> partial(targets_.size());
      for (int64_t s = first; s < last; ++s) {
        const int64_t column = s * kStrip, n = std::min(kStrip, width - column);
        for (size_t k = 0; k < targets_.size(); ++k) partial[k].resize(static_cast<size_t>(chunks * n * targets_[k].size));
        for (int64_t c = 0; c < chunks; ++c) {
          const int64_t start = c * kReduceChunk, count = std::min(kReduceChunk, rows - start);
          for (int64_t r = 0; r < count; ++r) {
            // The first rows become the lanes; later ones are computed beside them and combined.
            const bool fresh = r < kernels::kReduceLanes;
            for (size_t k = 0; k < targets_.size(); ++k) row_of[k] = lane[k] + (fresh ? r : lanes) * kStrip * targets_[k].size;
            const int64_t begin = (start + r) * width + column;
            compute(begin, begin + n, begin, row_of.data());
            if (!fresh)
              for (size_t k = 0; k < targets_.size(); ++k)
                targets_[k].kernels->combine(lane[k] + r % kernels::kReduceLanes * kStrip * targets_[k].size, row_of[k], n);
          }
          for (size_t k = 0; k < targets_.size(); ++k) {
            fold_lanes(targets_[k], lane[k], std::min(count, kernels::kReduceLanes), n);
            std::copy_n(lane[k], n * targets_[k].size, partial[k].data() + c * n * targets_[k].size);
          }
        }
        for (size_t k = 0; k < targets_.size(); ++k) finish_columns(targets_[k], partial[k].data(), chunks, n, column);
      }
    });
  }

  static void fold_lanes(const Target& target, char* lane, int64_t used, int64_t n) {
    for (int64_t half = kernels::kReduceLanes / 2; half > 0; half /= 2)
      for (int64_t l = 0; l < half && l + half < used; ++l)
        target.kernels->combine(lane + l * kStrip * target.size, lane + (l + half) * kStrip * target.size, n);
  }
  static void finish_columns(const Target& target, const char* partial, int64_t chunks, int64_t n, int64_t column) {
    if (chunks == 1) {
      std::copy_n(partial, n * target.size, target.results + column * target.size);
      return;
    }
    std::vector<char> one(static_cast<size_t>(chunks * target.size));
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t c = 0; c < chunks; ++c) std::copy_n(partial + (c * n + i) * target.size, target.size, one.data() + c * target.size);
      kernels::fold_chunks(target.kernels->chunk, one.data(), chunks, target.size);
      std::copy_n(one.data(), target.size, target.results + (column + i) * target.size);
    }
  }

  const Group& g_;
  const codegen::BlockFn kernel_;
  const Trace& t_;
  const int64_t numel_;
  int64_t grain_ = kWork;
  size_t extra_ = 0;
  SmallVector<Stream, 8> inputs_, outputs_;
  std::vector<uint64_t> scalars_;
  SmallVector<Target, 2> targets_;
};

}  // namespace

void run_group(const Group& group, codegen::BlockFn kernel, Trace& trace, Memory& memory, RunCounts& counts) {
  if (trace.numel_of(trace.values[group.space]) == 0) {
    for (const uint32_t call : group.calls) run_call(trace, trace.calls[call], memory);
    return;
  }
  GroupRun(group, kernel, trace, memory, counts).run();
}

}  // namespace grapnel::compile_detail
