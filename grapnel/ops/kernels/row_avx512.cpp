#include "grapnel/ops/kernels/row_kernel.h"

namespace grapnel::kernels {
extern const RowKernels row_kernels_avx512[2];
const RowKernels row_kernels_avx512[2] = {RowKernel<float, IsaAvx512>::make(),
                                          RowKernel<double, IsaAvx512>::make()};
}  // namespace grapnel::kernels
