#include "grapnel/cpu/kernels/gemm_kernel_impl.h"
#include "grapnel/cpu/kernels/isa_here.h"

namespace grapnel::kernels {

template void gemm_kernel<float, IsaHere>(const GemmBlock<float>&, float*);
template void gemm_kernel<double, IsaHere>(const GemmBlock<double>&, double*);
template void transpose_kernel<float, IsaHere>(int64_t, int64_t, const float*, int64_t, float*,
                                               int64_t);

}  // namespace grapnel::kernels
