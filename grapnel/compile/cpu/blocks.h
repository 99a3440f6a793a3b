/// Feeding a block program: operands of any layout and type become contiguous blocks of compute
/// type, and results go back.
#pragma once

#include "grapnel/capture/trace.h"
#include "grapnel/codegen/block_program.h"
#include "grapnel/cpu/kernels/table.h"

namespace grapnel::compiler {

/// Elements per block: a few dozen blocks fit in the first-level cache.
inline constexpr int64_t kBlock = 1024;

inline int64_t padded(int64_t n) {
  return (n + codegen::kLanes - 1) / codegen::kLanes * codegen::kLanes;
}

/// The span of a sweep that a thread is working on.
struct Span {
  char* scratch = nullptr;  ///< memory of the thread
  int64_t begin = 0;        ///< number of the first element
  int64_t first_row = 0;
  char* local = nullptr;  ///< where local slots are, if not in the scratch memory
};

/// Where the values of an operand are.
struct Place {
  char* data = nullptr;  ///< in memory; or, when null,
  size_t local = 0;      ///< so many bytes into the scratch memory of a span, padded to whole lanes
  bool per_row = false;  ///< local: one element per row
};

/// One operand as a sequence of elements in row-major order of its (broadcast) shape.
class Stream {
 public:
  /// Value `id` of the trace, which lies in `place`, with `trailing` more dimensions of size 1,
  /// broadcast to the shape of value `shape`, read or written as `compute`; as it is stored, if
  /// `as_stored` is set.
  Stream(const capture::Trace& trace, capture::ValueId id, capture::ValueId shape, Compute compute,
         const Place& place, int32_t trailing = 0, bool as_stored = false);

  bool constant() const { return constant_; }
  /// Whether any whole lanes of it lie in memory as kernels want them.
  bool is_dense() const { return native_ && contiguous_; }
  bool is_local() const { return !place_.data; }
  /// How many elements follow each other, or are one and the same, before something else happens;
  /// 0 if every element has to be fetched on its own.
  int64_t run_length() const;

  /// How the stream falls into rows of equal length.
  struct Rows {
    enum class Kind : uint8_t { values, one_value, other };
    Kind kind = Kind::other;  ///< each a block as it is, one value throughout, or neither
    int64_t pitch = 0;        ///< bytes from row to row, unless they are neither
  };
  Rows rows(int64_t length) const;
  char* row(const Rows& rows, int64_t number, const Span& span) const {
    return base(span) + number * rows.pitch;
  }
  /// One value, repeated n times.
  void repeat(const char* value, void* buffer, int64_t n) const { load_(value, 0, buffer, n); }
  /// Elements [begin, begin + n) as a block: in place if they lie like one, else copied to
  /// `buffer`. Padded to a multiple of kLanes when `pad` is set, which always copies an incomplete
  /// block.
  const void* read(int64_t begin, int64_t n, void* buffer, bool pad, const Span& span) const;
  /// The same, padded, for a kernel: n equal elements are copied kLanes times only, and `walk` says
  /// so.
  const void* read(int64_t begin, int64_t n, void* buffer, codegen::Walk& walk,
                   const Span& span) const;
  /// Where a kernel may read or write [begin, begin + n) directly, or null.
  void* target(int64_t begin, int64_t n, bool pad, const Span& span) const;
  /// Stores a block that was computed in a buffer.
  void write(const void* block, int64_t begin, int64_t n, const Span& span) const;
  /// Element `begin`, repeated n times.
  void fill(int64_t begin, void* buffer, int64_t n, const Span& span) const {
    repeat(base(span) + offset(begin) * stored_size_, buffer, n);
  }
  /// That are moved from or to memory.
  int64_t bytes_per_element() const { return constant_ || is_local() ? 0 : stored_size_; }

 private:
  int64_t offset(int64_t linear) const;
  /// Whether [begin, begin + n) does not leave the innermost dimension.
  bool in_one_row(int64_t begin, int64_t n) const {
    return rank_ == 1 || sizes_[rank_ - 1] - begin % sizes_[rank_ - 1] >= n;
  }
  /// Where element 0 is, or would be.
  char* base(const Span& span) const {
    if (place_.data) return place_.data;
    char* const locals = span.local ? span.local : span.scratch;
    return locals + place_.local - (place_.per_row ? span.first_row : span.begin) * stored_size_;
  }
  /// The block itself if it lies in memory as kernels want it.
  char* direct(int64_t begin, int64_t n, bool pad, const Span& span) const;
  template <class Fn>
  void for_rows(int64_t begin, int64_t n, const Span& span, Fn&& fn) const;

  Place place_;
  DType dtype_;
  int64_t stored_size_, size_;
  int rank_ = 0;
  int64_t sizes_[kMaxRank], strides_[kMaxRank];
  bool native_, contiguous_, constant_;
  kernels::LoadFn load_;
  kernels::StoreFn store_;
};

}  // namespace grapnel::compiler
