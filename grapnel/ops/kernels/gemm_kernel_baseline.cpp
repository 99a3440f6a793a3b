#include "grapnel/ops/kernels/gemm_kernel_impl.h"

namespace grapnel::kernels {

template void gemm_kernel<float, IsaBaseline>(const GemmBlock<float>&, float*);
template void gemm_kernel<double, IsaBaseline>(const GemmBlock<double>&, double*);
template void transpose_kernel<float, IsaBaseline>(int64_t, int64_t, const float*, int64_t, float*,
                                                   int64_t);

}  // namespace grapnel::kernels
