#include "grapnel/ops/kernels/row_kernel.h"

namespace grapnel::kernels {
extern const RowKernels row_kernels_avx2[2];
const RowKernels row_kernels_avx2[2] = {RowKernel<float, IsaAvx2>::make(),
                                        RowKernel<double, IsaAvx2>::make()};
}  // namespace grapnel::kernels
