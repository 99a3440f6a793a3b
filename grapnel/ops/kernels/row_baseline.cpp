#include "grapnel/ops/kernels/row_kernel.h"

namespace grapnel::kernels {
extern const RowKernels row_kernels_baseline[2];
const RowKernels row_kernels_baseline[2] = {RowKernel<float, IsaBaseline>::make(),
                                            RowKernel<double, IsaBaseline>::make()};
}  // namespace grapnel::kernels
