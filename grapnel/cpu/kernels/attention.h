/// Attention of one head on one thread, for the instruction set of this processor.
#pragma once

#include <cstdint>

#include "grapnel/tensor/dtype.h"

namespace grapnel::kernels {

/// Rows of `row` elements from one to the next; the elements of a row lie side by side.
struct AttentionRows {
  void* data = nullptr;
  int64_t row = 0;
};

/// All rows are of the compute type. Queries are numbered from `first_query`, which is what a
/// causal head counts from.
struct AttentionArgs {
  int64_t queries, keys, features, value_features;
  double scale;
  bool causal;
  int64_t first_query = 0;
  AttentionRows q = {}, k = {}, v = {};
  AttentionRows out = {};                           ///< forward
  AttentionRows g = {}, dq = {}, dk = {}, dv = {};  ///< backward
};

/// out = softmax(scale * q @ k.T) @ v. For F32 and F64; there is at least one key.
void attention(Compute compute, const AttentionArgs& args);
/// With w the softmax and d = g @ v.T: s = scale * w * (d - sum(w * d)), dq = s @ k, dk = s.T @ q,
/// dv = w.T @ g
void attention_backward(Compute compute, const AttentionArgs& args);

/// The same for one instruction set, with `scratch_bytes` of memory aligned to 64.
struct AttentionKernels {
  void (*forward)(const AttentionArgs&, void* scratch);
  void (*backward)(const AttentionArgs&, void* scratch);
  int64_t (*scratch_bytes)(const AttentionArgs&);
};

}  // namespace grapnel::kernels
