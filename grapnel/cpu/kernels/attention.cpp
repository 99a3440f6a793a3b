#include "grapnel/cpu/kernels/attention.h"

#include "grapnel/base/error.h"
#include "grapnel/cpu/kernels/onednn.h"
#include "grapnel/cpu/kernels/table.h"

namespace grapnel::kernels {

namespace {

const AttentionKernels& kernels_for(Compute compute) {
  const int type = static_cast<int>(compute);
  GRAPNEL_ASSERT(type < 2, "attention kernels are for floating-point types");
  return table().attention[type];
}

void* scratch(int64_t bytes) {
  static constinit thread_local base::PerThread<Scratch> own_memory;
  Scratch& memory = own_memory.get();
  return memory.get(static_cast<size_t>(bytes));
}

}  // namespace

void attention(Compute compute, const AttentionArgs& args) {
  const AttentionKernels& kernels = kernels_for(compute);
  kernels.forward(args, scratch(kernels.scratch_bytes(args)));
}

void attention_backward(Compute compute, const AttentionArgs& args) {
  const AttentionKernels& kernels = kernels_for(compute);
  kernels.backward(args, scratch(kernels.scratch_bytes(args)));
}

}  // namespace grapnel::kernels
