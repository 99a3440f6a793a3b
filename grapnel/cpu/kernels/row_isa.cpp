#include "grapnel/cpu/kernels/isa_here.h"
#include "grapnel/cpu/kernels/row_kernel.h"
#include "grapnel/cpu/kernels/table.h"

namespace grapnel::kernels {
template <>
const RowKernels parts_of<IsaHere>::row[] = {RowKernel<float, IsaHere>::make(),
                                             RowKernel<double, IsaHere>::make()};
}
