#include "grapnel/ops/kernels/gemm_kernel_impl.h"

namespace grapnel::kernels {

template void gemm_kernel<float, IsaAvx512>(const GemmBlock<float>&, float*);
template void gemm_kernel<double, IsaAvx512>(const GemmBlock<double>&, double*);
template void transpose_kernel<float, IsaAvx512>(int64_t, int64_t, const float*, int64_t, float*,
                                                 int64_t);

}  // namespace grapnel::kernels
