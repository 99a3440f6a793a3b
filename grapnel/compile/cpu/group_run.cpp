#include "grapnel/compile/cpu/group_run.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "grapnel/base/per_thread.h"

namespace grapnel::compiler {

using namespace capture;
using codegen::BlockProgram;
using kernels::kReduceChunk;
using kernels::kReduceLanes;

namespace {

/// Elements of work below which a second thread does not pay, for a program of one step.
constexpr int64_t kWork = 32768;
/// Rows that are shorter cost more to go through one by one than what is copied otherwise.
constexpr int64_t kShortestRow = 128;
constexpr size_t kBlockBytes = static_cast<size_t>(kBlock) * 8;

int64_t size_of(Compute c) { return static_cast<int64_t>(element_size(dtype_of(c))); }

}  // namespace

int64_t grain_for(int64_t steps) {
  // Whole blocks, so that pieces end where blocks do.
  return kWork / std::clamp<int64_t>(steps, 1, 8) / kBlock * kBlock;
}

Cut rows_of(const Trace& trace, ValueId space, uint32_t reduction) {
  Cut cut;
  cut.elements = cut.rows = trace.numel_of(trace.values[space]);
  if (reduction != kNone)
    cut.rows = trace.numel_of(trace.values[trace.outputs_of(trace.calls[reduction])[0]]);
  if (cut.elements > 0) cut.row = cut.elements / cut.rows;
  return cut;
}

Cut cut_of(const Group& group, const Trace& trace) {
  Cut cut =
      rows_of(trace, group.space, group.reductions.empty() ? kNone : group.reductions[0].call);
  cut.in_parts = group.reduce == Group::Reduce::rows && cut.row > kReduceChunk;
  cut.span = group.reduce == Group::Reduce::none
                 ? grain_for(static_cast<int64_t>(group.program.steps.size()))
             : cut.in_parts ? kReduceChunk
                            : std::max<int64_t>(1, kReduceChunk / cut.row) * cut.row;
  return cut;
}

char* thread_scratch(size_t bytes) {
  struct Own {
    std::unique_ptr<char[]> memory;
    size_t size = 0;
  };
  static constinit thread_local base::PerThread<Own> thread_own;
  Own& own = thread_own.get();
  if (own.size < bytes + 64) {
    own.memory.reset(new char[bytes + 64]);
    own.size = bytes + 64;
  }
  return reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(own.memory.get()) + 63) &
                                 ~uintptr_t{63});
}

GroupRun::GroupRun(const GroupCode& group, const Trace& trace, const Cut& cut, size_t area,
                   PlaceOf place_of, void* context, RunCounts& counts)
    : g_(*group.group),
      kernel_(group.code.kernel),
      streaming_(group.code.streaming ? group.code.streaming->fn() : nullptr),
      reducing_(group.code.reducing ? group.code.reducing->fn() : nullptr),
      cut_(cut),
      area_(area) {
  const BlockProgram& p = g_.program;
  const int64_t elements = trace.numel_of(trace.values[g_.space]);
  auto place = [&](ValueId id) { return place_of(context, trace.values[id].slot); };
  for (size_t k = 0; k < g_.inputs.size(); ++k) {
    inputs_.emplace_back(trace, g_.inputs[k].value, g_.inputs[k].shape, p.inputs[k],
                         place(g_.inputs[k].value), g_.inputs[k].trailing, is_narrow(k));
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
         {},
         {}});
    if (reducing_) set_identity(targets_.back());
    if (cut_.in_parts)
      targets_.back().parts.resize(static_cast<size_t>(
          cut_.rows * ((cut_.row + kReduceChunk - 1) / kReduceChunk) * targets_.back().size));
  }
  find_rows();
}

void GroupRun::set_identity(Target& target) const {
  uint64_t one = 0;  // is what reducing nothing gives
  target.kernels->chunk(nullptr, 0, &one);
  target.identity.resize(static_cast<size_t>(kReduceLanes * target.size));
  for (int64_t l = 0; l < kReduceLanes; ++l)
    std::memcpy(target.identity.data() + l * target.size, &one, static_cast<size_t>(target.size));
}

void GroupRun::find_rows() {
  dense_ = kernel_ != nullptr;
  if (!kernel_) return;
  for (const auto* streams : {&inputs_, &outputs_})
    for (const Stream& s : *streams) {
      if (const int64_t length = s.run_length(); length > 0) row_ = std::min(row_, length);
      dense_ &= s.is_dense() || (s.constant() && streams == &inputs_);
    }
  if (row_ % codegen::kLanes != 0 || row_ < kShortestRow) row_ = kNoRows;
  if (dense_ && cut_.row > kReduceChunk && (cut_.rows == 1 || cut_.row % kReduceChunk == 0))
    row_ = kReduceChunk;
  else if (row_ > kBlock) return;
  for (size_t k = 0; k < inputs_.size() + outputs_.size(); ++k) {
    const bool is_input = k < inputs_.size();
    const Stream::Rows rows =
        is_input ? inputs_[k].rows(row_) : outputs_[k - inputs_.size()].rows(row_);
    if (rows.kind == Stream::Rows::Kind::other ||
        (!is_input && rows.kind == Stream::Rows::Kind::one_value))
      return rows_.clear();
    rows_.push_back(rows);
  }
}

// Scratch memory of a group: blocks of inputs, blocks of outputs, values to reduce, and their
// results.
static_assert(codegen::kLanes == kReduceLanes, "kernels reduce in the lanes of the tree");

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

GroupRun::Pointers GroupRun::reduced_blocks(const Span& span, bool second) const {
  Pointers blocks;
  for (size_t k = 0; k < targets_.size(); ++k)
    blocks.push_back(span.scratch + area_ + staging_bytes() +
                     (second ? targets_.size() + k : k) * static_cast<size_t>(reduced_elements()) *
                         8);
  return blocks;
}

/// Blocks of up to `longest` elements; those of constants are filled.
GroupRun::Blocks GroupRun::blocks(int64_t longest, const Span& span) const {
  Blocks result{SmallVector<const void*, 24>(inputs_.size()),
                SmallVector<codegen::Walk, 24>(inputs_.size(), codegen::Walk::along),
                SmallVector<void*, 24>(outputs_.size() + targets_.size())};
  char* const buffers = span.scratch + area_;
  for (size_t k = 0; k < inputs_.size(); ++k) {
    if (!inputs_[k].constant()) continue;
    char* const buffer = buffers + k * kBlockBytes;
    result.in[k] = buffer;
    if (kernel_) inputs_[k].read(0, longest, buffer, result.walks[k], span);
    else inputs_[k].fill(0, buffer, std::min(kBlock, longest), span);
  }
  return result;
}

/// Runs the program on one block. What is reduced goes where `blocks` says.
void GroupRun::compute_block(Blocks& blocks, int64_t begin, int64_t n, const Span& span,
                             Reduced how) const {
  char* const buffers = span.scratch + area_;
  const bool pad = kernel_ != nullptr;
  for (size_t k = 0; k < inputs_.size(); ++k) {
    if (inputs_[k].constant()) continue;
    char* const buffer = buffers + k * kBlockBytes;
    blocks.in[k] = pad ? inputs_[k].read(begin, n, buffer, blocks.walks[k], span)
                       : inputs_[k].read(begin, n, buffer, false, span);
  }
  for (size_t k = 0; k < outputs_.size(); ++k) {
    blocks.out[k] = outputs_[k].target(begin, n, pad, span);
    if (!blocks.out[k]) blocks.out[k] = buffers + (inputs_.size() + k) * kBlockBytes;
  }
  if (const codegen::BlockFn kernel = how == Reduced::stored ? kernel_ : reducing_)
    kernel(blocks.in.data(), blocks.walks.data(), blocks.out.data(), scalars_.data(), padded(n));
  else codegen::interpret(g_.program, blocks.in.data(), blocks.out.data(), scalars_.data(), n);
  for (size_t k = 0; k < outputs_.size(); ++k)
    if (blocks.out[k] == buffers + (inputs_.size() + k) * kBlockBytes)
      outputs_[k].write(blocks.out[k], begin, n, span);
}

void GroupRun::compute_rows(Blocks& blocks, int64_t begin, int64_t end, char* const* reduced,
                            const Span& span, Reduced how) const {
  using Kind = Stream::Rows::Kind;
  struct Single {
    const Stream* stream;
    const char* value;
    int64_t pitch;
    char* buffer;
  };
  SmallVector<Single, 8> singles;
  SmallVector<int64_t, 24> in_steps(inputs_.size()), out_steps(blocks.out.size());
  const int64_t first = begin / row_;
  for (size_t k = 0; k < inputs_.size(); ++k) {
    const Stream& s = inputs_[k];
    if (s.constant()) continue;
    char* const start = s.row(rows_[k], first, span);
    if (rows_[k].kind == Kind::values) {
      blocks.in[k] = start;
      in_steps[k] = rows_[k].pitch;
    } else {
      char* const buffer = span.scratch + area_ + k * kBlockBytes;
      blocks.in[k] = buffer;
      blocks.walks[k] = codegen::Walk::stay;
      singles.push_back({&s, start, rows_[k].pitch, buffer});
    }
  }
  for (size_t k = 0; k < outputs_.size(); ++k) {
    const Stream::Rows& rows = rows_[inputs_.size() + k];
    blocks.out[k] = outputs_[k].row(rows, first, span);
    out_steps[k] = rows.pitch;
  }
  for (size_t k = 0; k < targets_.size(); ++k) {
    blocks.out[outputs_.size() + k] = reduced[k];
    const int64_t step = how == Reduced::stored     ? row_
                         : how == Reduced::in_lanes ? 0
                                                    : kReduceLanes;
    out_steps[outputs_.size() + k] = step * targets_[k].size;
  }
  const codegen::BlockFn kernel = how == Reduced::stored ? kernel_ : reducing_;
  for (int64_t b = begin; b < end; b += row_) {
    for (Single& s : singles) {
      s.stream->repeat(s.value, s.buffer, codegen::kLanes);
      s.value += s.pitch;
    }
    kernel(blocks.in.data(), blocks.walks.data(), blocks.out.data(), scalars_.data(), row_);
    for (size_t k = 0; k < in_steps.size(); ++k)
      blocks.in[k] = static_cast<const char*>(blocks.in[k]) + in_steps[k];
    for (size_t k = 0; k < out_steps.size(); ++k)
      blocks.out[k] = static_cast<char*>(blocks.out[k]) + out_steps[k];
  }
}

/// Runs the program on elements [begin, end). `reduced[k]` receives the source of reduction k,
/// element `begin` first, or holds its lanes.
void GroupRun::compute(int64_t begin, int64_t end, char* const* reduced, const Span& span,
                       Reduced how) const {
  Blocks at = blocks(end - begin, span);
  if (!rows_.empty() && begin % row_ == 0 && end % row_ == 0)
    return compute_rows(at, begin, end, reduced, span, how);
  int64_t row_end = begin - begin % row_ + row_;
  for (int64_t b = begin, n; b < end; b += n) {
    if (b == row_end) row_end += row_;
    n = std::min(end - b, row_end - b);
    if (n > kBlock) n = dense_ ? n / codegen::kLanes * codegen::kLanes : kBlock;
    for (size_t k = 0; k < targets_.size(); ++k)
      at.out[outputs_.size() + k] =
          reduced[k] + (how == Reduced::in_lanes ? 0 : (b - begin) * targets_[k].size);
    compute_block(at, b, n, span, how);
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
  const SmallVector<codegen::Walk, 24> walks(in.size(), codegen::Walk::along);
  streaming_(in.data(), walks.data(), out.data(), scalars_.data(), n);
  return begin + n;
}

void GroupRun::run(int64_t begin, int64_t end, const Span& span) const {
  if (targets_.empty()) compute(streaming_ ? stream(begin, end, span) : begin, end, nullptr, span);
  else if (cut_.in_parts) reduce_part(begin, end, span);
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
    as_it_is &= static_cast<size_t>(r.reg) < inputs_.size() &&  // not a number
                !is_narrow(static_cast<size_t>(r.reg));
  int64_t length = cut_.row;
  if (!as_it_is && has_lanes_of_rows(cut_.row)) {
    length = kReduceLanes;
    set_lanes(reduced, rows);
    compute(begin, end, reduced.data(), span, Reduced::in_lanes_of_rows);
  } else if (!as_it_is) {
    compute(begin, end, reduced.data(), span);
  }
  for (size_t k = 0; k < targets_.size(); ++k) {
    const Target& t = targets_[k];
    const char* source = reduced[k];
    if (as_it_is)
      source = static_cast<const char*>(inputs_[static_cast<size_t>(g_.reductions[k].reg)].read(
          begin, end - begin, reduced[k], false, span));
    char* const results =
        reduced[0] + static_cast<int64_t>(targets_.size() + k) * reduced_elements() * 8;
    for (int64_t r = 0; r < rows; ++r)
      t.kernels->chunk(source + r * length * t.size, length, results + r * t.size);
    store(t, results, begin / cut_.row, rows, span);
  }
}

void GroupRun::set_lanes(const Pointers& lanes, int64_t rows) const {
  for (size_t k = 0; k < targets_.size(); ++k)
    for (int64_t r = 0; r < rows; ++r)
      std::copy(targets_[k].identity.begin(), targets_[k].identity.end(),
                lanes[k] + r * kReduceLanes * targets_[k].size);
}

void GroupRun::reduce_chunks(int64_t begin, int64_t end, Pointers results, const Span& span) const {
  constexpr int64_t kMostAtOnce = kReduceChunk / kReduceLanes;  // for whose lanes there is room
  const Pointers reduced = reduced_blocks(span);
  for (int64_t chunks; begin < end; begin += chunks * kReduceChunk) {
    const int64_t whole = std::min((end - begin) / kReduceChunk, kMostAtOnce);
    const bool at_once = whole > 0 && has_lanes_of_rows(kReduceChunk);
    chunks = at_once ? whole : 1;
    const int64_t stop = std::min(end, begin + chunks * kReduceChunk);
    int64_t length = kReduceLanes;
    if (at_once) {
      set_lanes(reduced, chunks);
      compute(begin, stop, reduced.data(), span, Reduced::in_lanes_of_rows);
    } else if (reducing_ && (row_ == kNoRows || begin % kReduceLanes == 0)) {
      // Blocks end where lanes do.
      reduce_in_lanes(begin, stop, reduced, span);
    } else {
      compute(begin, stop, reduced.data(), span);
      length = stop - begin;
    }
    for (size_t k = 0; k < targets_.size(); ++k)
      for (int64_t c = 0; c < chunks; ++c, results[k] += targets_[k].size)
        targets_[k].kernels->chunk(reduced[k] + c * length * targets_[k].size, length, results[k]);
  }
}

void GroupRun::reduce_in_lanes(int64_t begin, int64_t end, const Pointers& lanes,
                               const Span& span) const {
  set_lanes(lanes, 1);
  const int64_t whole = begin + (end - begin) / kReduceLanes * kReduceLanes;
  compute(begin, whole, lanes.data(), span, Reduced::in_lanes);
  if (whole == end) return;
  const Pointers rest = reduced_blocks(span, true);
  compute(whole, end, rest.data(), span);
  for (size_t k = 0; k < targets_.size(); ++k)
    targets_[k].kernels->combine(lanes[k], rest[k], end - whole);
}

void GroupRun::reduce_part(int64_t begin, int64_t end, const Span& span) const {
  const int64_t chunks = (cut_.row + kReduceChunk - 1) / kReduceChunk;
  Pointers results;
  for (const Target& t : targets_)
    results.push_back(t.parts.data() +
                      (begin / cut_.row * chunks + begin % cut_.row / kReduceChunk) * t.size);
  reduce_chunks(begin, end, results, span);
}

void GroupRun::reduce_long_row(int64_t begin, const Span& span) const {
  const int64_t chunks = (cut_.row + kReduceChunk - 1) / kReduceChunk;
  SmallVector<SmallVector<uint64_t, 16>, 2> parts(
      targets_.size(), SmallVector<uint64_t, 16>(static_cast<size_t>(chunks)));
  Pointers results;
  for (auto& of_target : parts) results.push_back(reinterpret_cast<char*>(of_target.data()));
  reduce_chunks(begin, begin + cut_.row, results, span);
  for (size_t k = 0; k < targets_.size(); ++k) {
    kernels::fold_chunks(targets_[k].kernels->chunk, results[k], chunks, targets_[k].size);
    store(targets_[k], results[k], begin / cut_.row, 1, span);
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

}  // namespace grapnel::compiler
