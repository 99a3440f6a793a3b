/// Feeding a block program: operands of any layout and type become contiguous blocks of compute type, and results go back.
#pragma once

#include "grapnel/codegen/block_program.h"
#include "grapnel/ops/loop_nest.h"

namespace grapnel::compile_detail {

/// Elements per block: a few dozen blocks fit in the first-level cache.
inline constexpr int64_t kBlock = 1024;

/// One operand as a sequence of elements in row-major order of its (broadcast) shape.
class Stream {
 public:
  /// `t` broadcast to `sizes`, read or written as `compute`.
  Stream(const Tensor& t, const Shape& sizes, Compute compute);

  bool constant() const { return constant_; }
  /// Elements [begin, begin + n) as a block: in place if they lie like one, else copied to `buffer`. Padded to a multiple of kLanes when
  /// `pad` is set, which always copies an incomplete block.
  const void* read(int64_t begin, int64_t n, void* buffer, bool pad) const;
  /// Where a kernel may write [begin, begin + n) directly, or null.
  void* target(int64_t begin, int64_t n, bool pad) const;
  /// Stores a block that was computed in a buffer.
  void write(const void* block, int64_t begin, int64_t n) const;
  /// The one value of a constant stream, repeated n times.
  void fill(void* buffer, int64_t n) const;
  int64_t bytes_per_element() const { return constant_ ? 0 : stored_size_; }

 private:
  int64_t offset(int64_t linear) const;
  template <class Fn>
  void for_rows(int64_t begin, int64_t n, Fn&& fn) const;

  char* data_;
  DType dtype_;
  Compute compute_;
  int64_t stored_size_, size_;
  int rank_ = 0;
  int64_t sizes_[kMaxRank], strides_[kMaxRank];
  bool native_, contiguous_, constant_;
};

}  // namespace grapnel::compile_detail
