/// Walking several strided tensors in step: broadcast, merge dimensions, cut into blocks.
#pragma once

#include <algorithm>

#include "grapnel/ops/op.h"

namespace grapnel::cpu {

/// How K operands move through one iteration space. Operand 0 is the output and has the full shape.
template <int K>
struct LoopNest {
  struct Operand {
    char* data;
    DType dtype;
    int64_t strides[kMaxRank];  ///< in elements; 0 where the operand is broadcast
    bool contiguous;            ///< element i of the space is element i of memory
    bool constant;              ///< one element for the whole space
  };
  int count = 0;
  Operand operands[K];
  int rank = 0;
  int64_t sizes[kMaxRank];
  int64_t numel = 0;

  explicit LoopNest(const Tensor& out) {
    rank = static_cast<int>(out.dim());
    numel = out.numel();
    for (int i = 0; i < rank; ++i) sizes[i] = out.impl().sizes[i];
    add(out);
  }

  /// Adds an operand whose shape broadcasts to the output's.
  void add(const Tensor& t) {
    const TensorImpl& impl = t.impl();
    Operand& o = operands[count++];
    o.data = impl.host();
    o.dtype = impl.dtype;
    const int missing = rank - impl.sizes.size();
    for (int i = 0; i < rank; ++i)
      o.strides[i] = i < missing || impl.sizes[i - missing] == 1 ? 0 : impl.strides[i - missing];
  }

  /// Merges dimensions that all operands walk evenly. Call after the last add.
  void merge() {
    int kept = 0;
    for (int i = 0; i < rank; ++i) {
      if (sizes[i] == 1) continue;
      bool joins = kept > 0;
      for (int k = 0; joins && k < count; ++k)
        joins = operands[k].strides[kept - 1] == operands[k].strides[i] * sizes[i];
      if (joins) {
        sizes[kept - 1] *= sizes[i];
        for (int k = 0; k < count; ++k) operands[k].strides[kept - 1] = operands[k].strides[i];
      } else {
        sizes[kept] = sizes[i];
        for (int k = 0; k < count; ++k) operands[k].strides[kept] = operands[k].strides[i];
        ++kept;
      }
    }
    rank = kept;
    for (int k = 0; k < count; ++k) {
      Operand& o = operands[k];
      o.contiguous = o.constant = true;
      int64_t expected = 1;
      for (int i = rank - 1; i >= 0; --i) {
        o.contiguous &= o.strides[i] == expected;
        o.constant &= o.strides[i] == 0;
        expected *= sizes[i];
      }
    }
  }

  int64_t row_length() const { return rank == 0 ? 1 : sizes[rank - 1]; }
  int64_t row_stride(int k) const { return rank == 0 ? 1 : operands[k].strides[rank - 1]; }

  /// Offset, in elements, of element `linear` of the space in operand k.
  int64_t offset(int k, int64_t linear) const {
    int64_t at = 0;
    for (int i = rank - 1; i >= 0; --i) {
      at += (linear % sizes[i]) * operands[k].strides[i];
      linear /= sizes[i];
    }
    return at;
  }

  /// Calls fn(linear, length) for the runs of [begin, end) that lie in one innermost row.
  template <class Fn>
  void for_rows(int64_t begin, int64_t end, Fn&& fn) const {
    const int64_t row = row_length();
    while (begin < end) {
      const int64_t length = std::min(end - begin, row - begin % row);
      fn(begin, length);
      begin += length;
    }
  }
};

}  // namespace grapnel::cpu
