#include "grapnel/ops/kernels/gemm_kernel_impl.h"

namespace grapnel::kernels {

template void gemm_kernel<float, IsaAvx2>(const GemmBlock<float>&, float*);
template void gemm_kernel<double, IsaAvx2>(const GemmBlock<double>&, double*);
template void transpose_kernel<float, IsaAvx2>(int64_t, int64_t, const float*, int64_t, float*,
                                               int64_t);

}  // namespace grapnel::kernels
