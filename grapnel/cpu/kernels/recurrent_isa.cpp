#include "grapnel/cpu/kernels/isa_here.h"
#include "grapnel/cpu/kernels/recurrent_kernel.h"
#include "grapnel/cpu/kernels/table.h"

namespace grapnel::kernels {
template <>
const RecurrentKernels parts_of<IsaHere>::recurrent[] = {RecurrentKernel<float, IsaHere>::make(),
                                                         RecurrentKernel<double, IsaHere>::make()};
}
