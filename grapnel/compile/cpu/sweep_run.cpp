#include "grapnel/compile/cpu/sweep_run.h"

#include <algorithm>

#include "grapnel/base/thread_pool.h"

namespace grapnel::compiler {

using namespace capture;
using kernels::kReduceChunk;

namespace {

/// What the local slots of a span may take: they stay in the second-level cache, with room to
/// spare.
constexpr int64_t kLocalBytes = 96 << 10;
/// Longer rows are not worth keeping together: three of them no longer fit in the second-level
/// cache.
constexpr int64_t kLongestRow = 1 << 16;

/// Whether element i of the broadcast value is element i / row of its slot.
bool lies_along_rows(const Trace& trace, const Group::Input& in, const Cut& cut) {
  const Value& v = trace.values[in.value];
  if (trace.offset_of(v) != 0) return false;
  const IntArrayRef full = trace.sizes_of(trace.values[in.shape]), own = trace.sizes_of(v),
                    strides = trace.strides_of(v);
  const size_t missing = full.size() - own.size();
  // Walking from the last dimension: first broadcast ones, `row` elements in all, then dense ones.
  int64_t broadcast = 1, dense = 1;
  for (size_t i = full.size(); i-- > 0;) {
    if (full[i] == 1) continue;
    const int64_t stride = i < missing || own[i - missing] == 1 ? 0 : strides[i - missing];
    if (broadcast < cut.row) {
      if (stride != 0) return false;
      broadcast *= full[i];
    } else {
      if (stride != dense) return false;
      dense *= full[i];
    }
  }
  return broadcast == cut.row && dense == cut.rows;
}

class InMemory {
 public:
  explicit InMemory(Memory& memory) : memory_(memory) {}
  static Place place(void* self, SlotId slot) {
    return {static_cast<char*>(static_cast<InMemory*>(self)->memory_.storage(slot)->host()), 0,
            false};
  }

 private:
  Memory& memory_;
};

/// The places of a sweep: some slots are local.
class Places {
 public:
  Places(const Sweep& sweep, const Trace& trace, Memory& memory, const Cut& cut)
      : sweep_(sweep), memory_(memory) {
    const int64_t rows = cut.span / cut.row + 1;
    for (const Sweep::Local& l : sweep.locals) {
      offsets_.push_back(bytes_);
      const int64_t elements = padded(l.per_row ? rows : cut.span) + codegen::kLanes;
      bytes_ += static_cast<size_t>(elements) * element_of(trace, l.slot);
      bytes_ = (bytes_ + 63) & ~size_t{63};
    }
  }
  static size_t element_of(const Trace& trace, SlotId slot) {
    return element_size(trace.values[trace.slots[slot].first].dtype);
  }
  size_t bytes() const { return bytes_; }
  static Place place(void* self, SlotId slot) {
    Places& p = *static_cast<Places*>(self);
    for (size_t i = 0; i < p.sweep_.locals.size(); ++i)
      if (p.sweep_.locals[i].slot == slot)
        return {nullptr, p.offsets_[i], p.sweep_.locals[i].per_row};
    return {static_cast<char*>(p.memory_.storage(slot)->host()), 0, false};
  }

 private:
  const Sweep& sweep_;
  Memory& memory_;
  std::vector<size_t> offsets_;
  size_t bytes_ = 0;
};

/// How many elements a span has; 0 if there is no good answer.
int64_t span_of(const Sweep& sweep, const Trace& trace, const Cut& cut) {
  if (sweep.reduction == kNone) {
    int64_t bytes = 4;
    for (const Sweep::Local& l : sweep.locals)
      bytes += static_cast<int64_t>(Places::element_of(trace, l.slot));
    return std::clamp<int64_t>(kLocalBytes / bytes / codegen::kLanes * codegen::kLanes, 256, 4096);
  }
  if (cut.row <= kReduceChunk) return std::max<int64_t>(1, kReduceChunk / cut.row) * cut.row;
  if (!sweep.whole_rows) return kReduceChunk;
  return cut.row <= kLongestRow ? cut.row : 0;
}

/// Calls fn(begin, end) for the spans of a cut, on several threads. `at_once`: for as many
/// neighbours of one row as a thread has.
template <class Fn>
void for_spans(const Cut& cut, int64_t grain, bool at_once, Fn&& fn) {
  const int64_t per_row = (cut.row + cut.span - 1) / cut.span;
  const int64_t spans =
      cut.in_parts ? cut.rows * per_row : (cut.elements + cut.span - 1) / cut.span;
  base::parallel_for(
      spans, std::max<int64_t>(1, grain / cut.span), [&](int64_t first, int64_t last) {
        for (int64_t s = first, n; s < last; s += n) {
          n = at_once && cut.in_parts ? std::min(last - s, per_row - s % per_row) : 1;
          // A span that is a part of a row ends where the row does.
          const int64_t begin =
              cut.in_parts ? s / per_row * cut.row + s % per_row * cut.span : s * cut.span;
          const int64_t limit = cut.in_parts ? (s / per_row + 1) * cut.row : cut.elements;
          fn(begin, std::min(limit, begin + n * cut.span));
        }
      });
}

}  // namespace

void run_group(const GroupCode& part, Trace& trace, Memory& memory, RunCounts& counts) {
  const Group& group = *part.group;
  const Cut cut = cut_of(group, trace);
  if (cut.elements == 0) {
    for (const uint32_t call : group.calls) run_call(trace, trace.calls[call], memory);
    return;
  }
  const int64_t grain = grain_for(static_cast<int64_t>(group.program.steps.size()));
  InMemory places(memory);
  const GroupRun run(part, trace, cut, 0, &InMemory::place, &places, counts);
  if (group.reduce == Group::Reduce::columns) return run.run_columns(grain);
  for_spans(cut, grain, true, [&](int64_t begin, int64_t end) {
    run.run(begin, end, {thread_scratch(run.scratch_bytes()), begin, 0});
  });
  run.finish();
}

bool run_sweep(const Sweep& sweep, std::span<const GroupCode> parts, Trace& trace, Memory& memory,
               RunCounts& counts) {
  Cut cut = rows_of(trace, sweep.space, sweep.reduction);
  if (cut.elements == 0) return false;
  cut.span = span_of(sweep, trace, cut);
  if (cut.span == 0) return false;
  cut.in_parts = sweep.reduction != kNone && cut.span < cut.row;
  for (const Group::Input& in : sweep.along_rows)
    if (!lies_along_rows(trace, in, cut)) return false;

  Places places(sweep, trace, memory, cut);
  std::vector<GroupRun> runs;
  runs.reserve(parts.size());
  size_t scratch = 0;
  int64_t steps = 0;
  for (const GroupCode& part : parts) {
    runs.emplace_back(part, trace, cut, places.bytes(), &Places::place, &places, counts);
    scratch = std::max(scratch, runs.back().scratch_bytes());
    steps += runs.back().steps();
  }
  for_spans(cut, grain_for(steps), false, [&](int64_t begin, int64_t end) {
    const Span span{thread_scratch(scratch), begin, begin / cut.row};
    for (size_t k = 0; k < runs.size(); ++k) {
      if (sweep.parts[k].per_row) runs[k].run(begin / cut.row, end / cut.row, span);
      else runs[k].run(begin, end, span);
    }
  });
  for (const GroupRun& run : runs) run.finish();
  return true;
}

}  // namespace grapnel::compiler
