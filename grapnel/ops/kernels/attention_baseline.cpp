#include "grapnel/ops/kernels/attention_kernel.h"

namespace grapnel::kernels {
extern const AttentionKernels attention_kernels_baseline[2];
const AttentionKernels attention_kernels_baseline[2] = {
    AttentionKernel<float, IsaBaseline>::make(), AttentionKernel<double, IsaBaseline>::make()};
}  // namespace grapnel::kernels
