#include "grapnel/cpu/kernels/attention_kernel.h"
#include "grapnel/cpu/kernels/isa_here.h"
#include "grapnel/cpu/kernels/table.h"

namespace grapnel::kernels {
template <>
const AttentionKernels parts_of<IsaHere>::attention[] = {AttentionKernel<float, IsaHere>::make(),
                                                         AttentionKernel<double, IsaHere>::make()};
}
