#include "grapnel/optim/update.h"

#include <algorithm>
#include <utility>

#include "grapnel/functions/functions.h"
#include "grapnel/ops/evaluator.h"

namespace grapnel::optim {

namespace {

// Five arrays of this many floats stay in a second-level cache of 1 MB.
constexpr int64_t kBlock = 1 << 15;

/// Whether the elements lie in the same order everywhere, so that they can be cut into blocks.
/// Other updates run as a whole, where a tensor that does not fit is reported as ever.
bool joins(const Update& update) {
  const Tensor& param = update.tensors[0];
  for (size_t i = 0; i < update.tensors.size(); ++i) {
    const Tensor& t = update.tensors[i];
    if (t.defined() && (t.shape() != param.shape() || (i != kUpdateGrad && !t.is_contiguous())))
      return false;
  }
  return true;
}

/// Whether an update would write what another one touches. Parameters may be parts of one storage,
/// so addresses are compared.
bool overlap(const std::vector<Update>& updates) {
  struct Range {
    const char *begin, *end;
    bool written;
  };
  std::vector<Range> ranges;
  for (const Update& update : updates)
    for (size_t i = 0; i < update.tensors.size(); ++i)
      if (const Tensor& t = update.tensors[i]; t.defined()) {
        const char* begin = t.impl().address();
        ranges.push_back({begin, begin + t.nbytes(), i != kUpdateGrad});
      }
  std::ranges::sort(ranges, {}, &Range::begin);
  const char *end = nullptr, *written_end = nullptr;
  for (const Range& range : ranges) {
    if (range.begin < (range.written ? end : written_end)) return true;
    end = std::max(end, range.end);
    if (range.written) written_end = std::max(written_end, range.end);
  }
  return false;
}

/// Elements of one update.
struct Block {
  const Update* update;
  int64_t begin, count;
};

/// Elements [begin, begin + count) in memory, without shape and history. Views made by ops would
/// cost more than the update of a small parameter.
Tensor part_of(const Tensor& t, int64_t begin, int64_t count) {
  const TensorImpl& whole = t.impl();
  return Tensor(TensorImpl::create(whole.storage, whole.dtype, {count}, {1}, whole.offset + begin));
}

void run_block(const Block& block) {
  const auto& [tensors, fn] = *block.update;
  std::vector<Tensor> parts(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].defined()) parts[i] = part_of(tensors[i], block.begin, block.count);
  fn(parts);
}

// Note [Updates on pool threads]
// Updates call ops on threads of the pool, which have the modes of the caller (Note [One context])
// and its rounding. That is safe, and gives the same bits, because
//   - no two of them touch the same memory, else they do not run together;
//   - their tensors have no history, and no recorder is open;
//   - what is allocated on first use has been by then, since addresses were looked at; reference
//     counts, version counters and the allocator are made for several threads;
//   - an op inside a piece stays on its thread, and every element is computed by itself, so it does
//     not matter where blocks end.
void run_together(const std::vector<Update>& updates, Evaluator::ShareOut share_out) {
  std::vector<Block> blocks;
  std::vector<size_t> ends;  // of the blocks of each piece; small parameters share one
  int64_t elements = 0;
  for (const Update& update : updates) {
    const int64_t n = update.tensors[0].numel();
    for (int64_t begin = 0; begin < n; begin += kBlock) {
      const int64_t count = std::min(kBlock, n - begin);
      if (elements > 0 && elements + count > kBlock) ends.push_back(blocks.size()), elements = 0;
      blocks.push_back({&update, begin, count});
      elements += count;
    }
  }
  if (elements > 0) ends.push_back(blocks.size());

  share_out(static_cast<int64_t>(ends.size()), [&](int64_t begin, int64_t end) {
    for (auto piece = static_cast<size_t>(begin); piece < static_cast<size_t>(end); ++piece)
      for (size_t b = piece == 0 ? 0 : ends[piece - 1]; b < ends[piece]; ++b) run_block(blocks[b]);
  });
}

}  // namespace

void UpdatePass::add(Update update) {
  if (!update.fn) return;
  // Whoever takes whole tensors takes them in their order, and at once.
  if (!evaluator(update.tensors[0].device()).share_out() || !joins(update)) {
    run();
    return update.fn(update.tensors);
  }
  update.tensors[kUpdateGrad] = update.tensors[kUpdateGrad].contiguous();
  updates_.push_back(std::move(update));
}

void UpdatePass::run() {
  const std::vector<Update> updates = std::exchange(updates_, {});
  const Evaluator::ShareOut share_out = evaluator(kCPU).share_out();
  if (share_out && !overlap(updates)) return run_together(updates, share_out);
  for (const Update& update : updates) update.fn(update.tensors);
}

}  // namespace grapnel::optim
