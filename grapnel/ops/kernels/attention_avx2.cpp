#include "grapnel/ops/kernels/attention_kernel.h"

namespace grapnel::kernels {
extern const AttentionKernels attention_kernels_avx2[2];
const AttentionKernels attention_kernels_avx2[2] = {AttentionKernel<float, IsaAvx2>::make(),
                                                    AttentionKernel<double, IsaAvx2>::make()};
}  // namespace grapnel::kernels
