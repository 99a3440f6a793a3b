#include "grapnel/ops/kernels/attention.h"

#include "grapnel/base/cpu.h"
#include "grapnel/base/error.h"
#include "grapnel/ops/kernels/onednn.h"

namespace grapnel::kernels {

// In the order of Compute: f32, f64.
extern const AttentionKernels attention_kernels_baseline[2];
#ifdef GRAPNEL_X86_KERNELS
extern const AttentionKernels attention_kernels_avx2[2];
extern const AttentionKernels attention_kernels_avx512[2];
#endif

namespace {

const AttentionKernels& kernels_for(Compute compute) {
  const int type = static_cast<int>(compute);
  GRAPNEL_ASSERT(type < 2, "attention kernels are for floating-point types");
#ifdef GRAPNEL_X86_KERNELS
  switch (base::cpu_isa()) {
    case base::Isa::avx512: return attention_kernels_avx512[type];
    case base::Isa::avx2: return attention_kernels_avx2[type];
    case base::Isa::baseline: break;
  }
#endif
  return attention_kernels_baseline[type];
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
