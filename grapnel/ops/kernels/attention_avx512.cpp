#include "grapnel/ops/kernels/attention_kernel.h"

namespace grapnel::kernels {
extern const AttentionKernels attention_kernels_avx512[2];
const AttentionKernels attention_kernels_avx512[2] = {AttentionKernel<float, IsaAvx512>::make(),
                                                      AttentionKernel<double, IsaAvx512>::make()};
}  // namespace grapnel::kernels
