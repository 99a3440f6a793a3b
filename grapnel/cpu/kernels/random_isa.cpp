#include "grapnel/cpu/kernels/isa_here.h"
#include "grapnel/cpu/kernels/random_kernel_impl.h"

namespace grapnel::kernels {

template void random_kernel<float, IsaHere>(const RandomCall&, int64_t, int64_t, float*);
template void random_kernel<double, IsaHere>(const RandomCall&, int64_t, int64_t, double*);

}  // namespace grapnel::kernels
