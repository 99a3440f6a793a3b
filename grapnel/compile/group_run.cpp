#include "grapnel/compile/group_run.h"

#include <algorithm>
#include <memory>

#include "grapnel/base/thread_pool.h"

namespace grapnel::compile_detail {

using namespace capture;
using codegen::BlockProgram;
using kernels::kReduceChunk;
using kernels::kReduceLanes;

namespace {

/// Elements of work below which a second thread does not pay, for a program of one step.
constexpr int64_t kWork = 32768;
/// Columns that are reduced side by side.
constexpr int64_t kStrip = 256;
constexpr size_t kBlockBytes = static_cast<size_t>(kBlock) * 8;

int64_t size_of(Compute c) { return static_cast<int64_t>(element_size(dtype_of(c))); }

}  // namespace

int64_t grain_for(int64_t steps) {
  // Whole blocks, so that pieces end where blocks do.
  return kWork / std::clamp<int64_t>(steps, 1, 8) / kBlock * kBlock;
}

char* thread_scratch(size_t bytes) {
  static thread_local std::unique_ptr<char[]> memory;
  static thread_local size_t size = 0;
  if (size < bytes + 64) {
    memory.reset(new char[bytes + 64]);
    size = bytes + 64;
  }
  return reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(memory.get()) + 63) & ~uintptr_t{63});
}

GroupRun::GroupRun(const Group& group, const BlockCode& code, const Trace& trace, const Cut& cut,
                   size_t area, PlaceOf place_of, void* context, RunCounts& counts)
    : g_(group),
      kernel_(code.kernel),
      streaming_(code.streaming ? code.streaming->fn() : nullptr),
      cut_(cut),
      area_(area) {
  const BlockProgram& p = g_.program;
  const int64_t elements = trace.numel_of(trace.values[g_.space]);
  auto place = [&](ValueId id) { return place_of(context, trace.values[id].slot); };
  for (size_t k = 0; k < g_.inputs.size(); ++k) {
    inputs_.emplace_back(trace, g_.inputs[k].value, g_.inputs[k].shape, p.inputs[k],
                         place(g_.inputs[k].value), g_.inputs[k].trailing);
    // Tiles of a product are still in the cache.
    if (k > 0 || !g_.product) counts.bytes_read += elements * inputs_.back().bytes_per_element();
  }
  for (const Group::Output& o : g_.outputs) {
    outputs_.emplace_back(trace, o.value, o.value, p.type_of(o.reg), place(o.value));
    counts.bytes_written += elements * outputs_.back().bytes_per_element();
  }
  scalars_.resize(g_.numbers.size());
  for (size_t k = 0; k < g_.numbers.size(); ++k) {
    const Value& v = trace.values[g_.numbers[k]];
    kernels::table().load[static_cast<int>(v.dtype)][static_cast<int>(p.scalars[k])](
        &trace.numbers[v.slot], 0, &scalars_[k], 1);
  }
  for (const Group::Reduction& r : g_.reductions) {
    const Compute compute = p.type_of(r.reg);
    const ValueId out = trace.outputs_of(trace.calls[r.call])[0];
    targets_.push_back(
        {&kernels::table().reduce[trace.calls[r.call].op->index][static_cast<int>(compute)],
         compute,
         size_of(compute),
         Stream(trace, out, out, compute, place(out)),
         {}});
    if (cut_.in_parts)
      targets_.back().parts.resize(static_cast<size_t>(
          cut_.rows * ((cut_.row + kReduceChunk - 1) / kReduceChunk) * targets_.back().size));
  }
}

// Scratch memory of a group: blocks of inputs, blocks of outputs, values to reduce, and their
// results.
size_t GroupRun::staging_bytes() const { return (inputs_.size() + outputs_.size()) * kBlockBytes; }

int64_t GroupRun::reduced_elements() const {
  if (g_.reduce == Group::Reduce::columns)
    return padded((std::min(cut_.row, kReduceLanes) + 1) * kStrip);
  return padded(std::min(cut_.span, kReduceChunk));
}

size_t GroupRun::scratch_bytes() const {
  return area_ + staging_bytes() +
         targets_.size() * static_cast<size_t>(2 * reduced_elements()) * 8;
}

GroupRun::Pointers GroupRun::reduced_blocks(const Span& span) const {
  Pointers blocks;
  for (size_t k = 0; k < targets_.size(); ++k)
    blocks.push_back(span.scratch + area_ + staging_bytes() +
                     k * static_cast<size_t>(reduced_elements()) * 8);
  return blocks;
}

/// Blocks of up to `longest` elements; those of constants are filled.
GroupRun::Blocks GroupRun::blocks(int64_t longest, const Span& span) const {
  Blocks result{SmallVector<const void*, 24>(inputs_.size()),
                SmallVector<void*, 24>(outputs_.size() + targets_.size())};
  char* const buffers = span.scratch + area_;
  for (size_t k = 0; k < inputs_.size(); ++k)
    if (inputs_[k].constant()) {
      inputs_[k].fill(buffers + k * kBlockBytes, std::min(kBlock, padded(longest)), span);
      result.in[k] = buffers + k * kBlockBytes;
    }
  return result;
}

/// Runs the program on one block. What is reduced goes where `blocks` says.
void GroupRun::compute_block(Blocks& blocks, int64_t begin, int64_t n, const Span& span) const {
  char* const buffers = span.scratch + area_;
  const bool pad = kernel_ != nullptr;
  for (size_t k = 0; k < inputs_.size(); ++k)
    if (!inputs_[k].constant())
      blocks.in[k] = inputs_[k].read(begin, n, buffers + k * kBlockBytes, pad, span);
  for (size_t k = 0; k < outputs_.size(); ++k) {
    blocks.out[k] = outputs_[k].target(begin, n, pad, span);
    if (!blocks.out[k]) blocks.out[k] = buffers + (inputs_.size() + k) * kBlockBytes;
  }
  if (kernel_) kernel_(blocks.in.data(), blocks.out.data(), scalars_.data(), padded(n));
  else codegen::interpret(g_.program, blocks.in.data(), blocks.out.data(), scalars_.data(), n);
  for (size_t k = 0; k < outputs_.size(); ++k)
    if (blocks.out[k] == buffers + (inputs_.size() + k) * kBlockBytes)
      outputs_[k].write(blocks.out[k], begin, n, span);
}

/// Runs the program on elements [begin, end). `reduced[k]` receives the source of reduction k,
/// element `begin` first.
void GroupRun::compute(int64_t begin, int64_t end, char* const* reduced, const Span& span) const {
  Blocks at = blocks(end - begin, span);
  for (int64_t b = begin; b < end; b += kBlock) {
    for (size_t k = 0; k < targets_.size(); ++k)
      at.out[outputs_.size() + k] = reduced[k] + (b - begin) * targets_[k].size;
    compute_block(at, b, std::min(kBlock, end - b), span);
  }
}

void GroupRun::run(const kernels::Tile& tile, const Span& span) const {
  Blocks at = blocks(tile.cols, span);
  for (int64_t row = 0; row < tile.rows; ++row) {
    const int64_t begin = tile.begin + row * tile.pitch;
    for (int64_t done = 0; done < tile.cols; done += kBlock)
      compute_block(at, begin + done, std::min(kBlock, tile.cols - done), span);
  }
}

int64_t GroupRun::stream(int64_t begin, int64_t end, const Span& span) const {
  // Whole spans at once: the fence at the end of the kernel waits for memory. So only what lies in
  // memory as kernels want it is streamed.
  const int64_t n = (end - begin) / codegen::kLanes * codegen::kLanes;
  if (n == 0) return begin;
  SmallVector<const void*, 24> in;
  SmallVector<void*, 24> out;
  for (const Stream& s : inputs_) {
    in.push_back(s.constant() ? nullptr : s.target(begin, n, true, span));
    if (!in.back()) return begin;
  }
  for (const Stream& s : outputs_) {
    out.push_back(s.is_local() ? nullptr : s.target(begin, n, true, span));
    if (!out.back() || reinterpret_cast<uintptr_t>(out.back()) % codegen::kStreamAlignment != 0)
      return begin;
    // What was just read is in the cache, and a store past it would have to throw it out first.
    if (std::find(in.begin(), in.end(), out.back()) != in.end()) return begin;
  }
  streaming_(in.data(), out.data(), scalars_.data(), n);
  return begin + n;
}

void GroupRun::run(int64_t begin, int64_t end, const Span& span) const {
  if (targets_.empty()) compute(streaming_ ? stream(begin, end, span) : begin, end, nullptr, span);
  else if (cut_.in_parts) reduce_chunk(begin, end, span);
  else if (cut_.row <= kReduceChunk) reduce_rows(begin, end, span);
  else
    for (int64_t b = begin; b < end; b += cut_.row) reduce_long_row(b, span);
}

/// Results of rows that are complete.
void GroupRun::store(const Target& target, char* results, int64_t first, int64_t count,
                     const Span& span) const {
  if (target.kernels->finish) target.kernels->finish(results, count, cut_.row);
  target.out.write(results, first, count, span);
}

void GroupRun::reduce_rows(int64_t begin, int64_t end, const Span& span) const {
  const Pointers reduced = reduced_blocks(span);
  const int64_t rows = (end - begin) / cut_.row;
  // A group that only reduces what lies in memory needs no copy of it.
  bool as_it_is = g_.program.steps.empty() && outputs_.empty();
  for (const Group::Reduction& r : g_.reductions)
    as_it_is &= static_cast<size_t>(r.reg) < inputs_.size();  // not a number
  if (!as_it_is) compute(begin, end, reduced.data(), span);
  for (size_t k = 0; k < targets_.size(); ++k) {
    const Target& t = targets_[k];
    const char* source = reduced[k];
    if (as_it_is)
      source = static_cast<const char*>(inputs_[static_cast<size_t>(g_.reductions[k].reg)].read(
          begin, end - begin, reduced[k], false, span));
    char* const results =
        reduced[0] + static_cast<int64_t>(targets_.size() + k) * reduced_elements() * 8;
    for (int64_t r = 0; r < rows; ++r)
      t.kernels->chunk(source + r * cut_.row * t.size, cut_.row, results + r * t.size);
    store(t, results, begin / cut_.row, rows, span);
  }
}

void GroupRun::reduce_chunk(int64_t begin, int64_t end, const Span& span) const {
  const Pointers reduced = reduced_blocks(span);
  compute(begin, end, reduced.data(), span);
  const int64_t chunks = (cut_.row + kReduceChunk - 1) / kReduceChunk;
  for (size_t k = 0; k < targets_.size(); ++k)
    targets_[k].kernels->chunk(
        reduced[k], end - begin,
        targets_[k].parts.data() +
            (begin / cut_.row * chunks + begin % cut_.row / kReduceChunk) * targets_[k].size);
}

void GroupRun::reduce_long_row(int64_t begin, const Span& span) const {
  const Pointers reduced = reduced_blocks(span);
  const int64_t chunks = (cut_.row + kReduceChunk - 1) / kReduceChunk;
  SmallVector<SmallVector<uint64_t, 16>, 2> parts(
      targets_.size(), SmallVector<uint64_t, 16>(static_cast<size_t>(chunks)));
  for (int64_t c = 0; c < chunks; ++c) {
    const int64_t n = std::min(kReduceChunk, cut_.row - c * kReduceChunk);
    compute(begin + c * kReduceChunk, begin + c * kReduceChunk + n, reduced.data(), span);
    for (size_t k = 0; k < targets_.size(); ++k)
      targets_[k].kernels->chunk(reduced[k], n,
                                 reinterpret_cast<char*>(parts[k].data()) + c * targets_[k].size);
  }
  for (size_t k = 0; k < targets_.size(); ++k) {
    char* const first = reinterpret_cast<char*>(parts[k].data());
    kernels::fold_chunks(targets_[k].kernels->chunk, first, chunks, targets_[k].size);
    store(targets_[k], first, begin / cut_.row, 1, span);
  }
}

void GroupRun::finish() const {
  if (!cut_.in_parts) return;
  const int64_t chunks = (cut_.row + kReduceChunk - 1) / kReduceChunk;
  for (const Target& t : targets_)
    for (int64_t r = 0; r < cut_.rows; ++r) {
      char* const first = t.parts.data() + r * chunks * t.size;
      kernels::fold_chunks(t.kernels->chunk, first, chunks, t.size);
      store(t, first, r, 1, {});
    }
}

// --- columns ---

namespace {

/// Lane l of Note [Reduction tree] is here a row of values, one per column.
void fold_lanes(const kernels::ReduceKernels& kernels, int64_t size, char* lane, int64_t used,
                int64_t n) {
  for (int64_t half = kReduceLanes / 2; half > 0; half /= 2)
    for (int64_t l = 0; l < half && l + half < used; ++l)
      kernels.combine(lane + l * kStrip * size, lane + (l + half) * kStrip * size, n);
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
              fold_lanes(*targets_[k].kernels, targets_[k].size, lane[k],
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

}  // namespace grapnel::compile_detail
