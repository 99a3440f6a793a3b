/// GroupRun: one group of a plan, bound to the memory and sizes of one trace.
#pragma once

#include "grapnel/codegen/jit.h"
#include "grapnel/compile/cpu/blocks.h"
#include "grapnel/compile/executable.h"
#include "grapnel/compile/memory.h"
#include "grapnel/compile/plan.h"
#include "grapnel/cpu/kernels/reduce_kernel.h"
#include "grapnel/cpu/kernels/tile.h"

namespace grapnel::compiler {

/// How the elements of a group or sweep fall into rows and spans.
struct Cut {
  int64_t elements = 0, rows = 0;
  int64_t row = 1;        ///< elements per row
  int64_t span = 0;       ///< elements per span, at most
  bool in_parts = false;  ///< rows are longer than spans: their results are put together at the end
};

/// What there is of a group's machine code.
struct BlockCode {
  codegen::BlockFn kernel = nullptr;  ///< null: the program is interpreted
  /// The same with results stored past the caches; null: do not.
  std::shared_ptr<const codegen::Kernel> streaming = nullptr;
  /// The same with reductions inside the kernel; null: they work on what it stored.
  std::shared_ptr<const codegen::Kernel> reducing = nullptr;
};

/// A group and its code.
struct GroupCode {
  const Group* group = nullptr;
  BlockCode code = {};
};

/// Rows as a reduction sees them, without spans; without a reduction, elements are rows.
Cut rows_of(const capture::Trace& trace, capture::ValueId space, uint32_t reduction);
/// For a group that runs on its own.
Cut cut_of(const Group& group, const capture::Trace& trace);

class GroupRun {
 public:
  /// Where a slot is: in memory, or local.
  using PlaceOf = Place (*)(void* context, capture::SlotId slot);

  /// `area`: where its scratch memory begins, in bytes.
  GroupRun(const GroupCode& group, const capture::Trace& trace, const Cut& cut, size_t area,
           PlaceOf place_of, void* context, RunCounts& counts);

  /// Scratch memory of a thread, the bytes before `area` included.
  size_t scratch_bytes() const;
  int64_t steps() const { return static_cast<int64_t>(g_.program.steps.size()); }

  /// Computes elements [begin, end) of the group's own sequence.
  void run(int64_t begin, int64_t end, const Span& span) const;
  /// Computes the elements of a tile, for groups that reduce nothing.
  void run(const kernels::Tile& tile, const Span& span) const;
  /// The end of reductions whose rows were computed in parts.
  void finish() const;
  /// Everything at once, for reductions of columns. `grain`: elements that are worth a thread.
  void run_columns(int64_t grain) const;

 private:
  /// What a reduction of the group works on.
  struct Target {
    const kernels::ReduceKernels* kernels;
    Compute compute;
    int64_t size;
    Stream out;
    std::vector<char> identity;       ///< in all lanes, where the kernel reduces
    mutable std::vector<char> parts;  ///< results of chunks, in row order
  };
  using Pointers = SmallVector<char*, 4>;
  /// Columns that are reduced side by side.
  static constexpr int64_t kStrip = 256;

  /// Whether the program reads an input in its narrow type.
  bool is_narrow(size_t input) const {
    return g_.program.stored_as(input) != dtype_of(g_.program.inputs[input]);
  }
  void set_identity(Target& target) const;
  void find_rows();
  size_t staging_bytes() const;
  int64_t reduced_elements() const;
  /// Memory for what is reduced, per target; `second`: that of results.
  Pointers reduced_blocks(const Span& span, bool second = false) const;
  /// Where the program reads and writes one block.
  struct Blocks {
    SmallVector<const void*, 24> in;
    SmallVector<codegen::Walk, 24> walks;
    SmallVector<void*, 24> out;
  };
  Blocks blocks(int64_t longest, const Span& span) const;
  /// What becomes of values to reduce: they are stored, or combined with the lanes by the kernel,
  /// where every row may have lanes of its own.
  enum class Reduced : uint8_t { stored, in_lanes, in_lanes_of_rows };
  void compute_block(Blocks& blocks, int64_t begin, int64_t n, const Span& span,
                     Reduced how = Reduced::stored) const;
  /// The same for whole rows, if all streams fall into rows.
  void compute_rows(Blocks& blocks, int64_t begin, int64_t end, char* const* reduced,
                    const Span& span, Reduced how) const;
  void compute(int64_t begin, int64_t end, char* const* reduced, const Span& span,
               Reduced how = Reduced::stored) const;
  /// Runs the streaming kernel from `begin` on, as far as it goes, and returns where it stopped.
  int64_t stream(int64_t begin, int64_t end, const Span& span) const;
  void reduce_rows(int64_t begin, int64_t end, const Span& span) const;
  /// Whether rows or chunks of so many elements are reduced to their lanes by the kernel, many of
  /// them in one go.
  bool has_lanes_of_rows(int64_t length) const {
    return reducing_ && !rows_.empty() && row_ == length;
  }
  void set_lanes(const Pointers& lanes, int64_t rows) const;
  /// Reduces the chunks of a piece of a row, one by one; the results of target k go to `results[k]`
  /// and behind it.
  void reduce_chunks(int64_t begin, int64_t end, Pointers results, const Span& span) const;
  /// Computes the lanes of one chunk.
  void reduce_in_lanes(int64_t begin, int64_t end, const Pointers& lanes, const Span& span) const;
  void reduce_part(int64_t begin, int64_t end, const Span& span) const;
  void reduce_long_row(int64_t begin, const Span& span) const;
  void store(const Target& target, char* results, int64_t first, int64_t count,
             const Span& span) const;
  void finish_columns(const Target& target, const char* partial, int64_t chunks, int64_t n,
                      int64_t column, const Span& span) const;

  const Group& g_;
  const codegen::BlockFn kernel_, streaming_, reducing_;
  const Cut cut_;
  const size_t area_;
  SmallVector<Stream, 8> inputs_, outputs_;
  /// Blocks end where a row of this many elements does: a row of weights or one value per row then
  /// needs no copying. Where all is dense, chunks of a long row are such rows.
  static constexpr int64_t kNoRows = INT64_MAX;
  int64_t row_ = kNoRows;
  bool dense_ = true;  ///< nothing is copied, so blocks may be of any length
  /// How inputs, then outputs, fall into rows; empty if some do not, or rows are longer than
  /// blocks.
  SmallVector<Stream::Rows, 8> rows_;
  std::vector<uint64_t> scalars_;
  std::vector<Target> targets_;
};

/// Elements that are worth a thread, for a program of so many steps.
int64_t grain_for(int64_t steps);

/// Buffers of this thread, reused from run to run.
char* thread_scratch(size_t bytes);

}  // namespace grapnel::compiler
