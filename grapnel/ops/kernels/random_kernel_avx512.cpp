#include "grapnel/ops/kernels/random_kernel_impl.h"

namespace grapnel::kernels {

template void random_kernel<float, IsaAvx512>(const RandomCall&, int64_t, int64_t, float*);
template void random_kernel<double, IsaAvx512>(const RandomCall&, int64_t, int64_t, double*);

}  // namespace grapnel::kernels
