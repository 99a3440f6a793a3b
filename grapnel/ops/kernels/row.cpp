#include "grapnel/ops/kernels/row.h"

#include "grapnel/base/cpu.h"
#include "grapnel/base/error.h"

namespace grapnel::kernels {

// In the order of Compute: f32, f64.
extern const RowKernels row_kernels_baseline[2];
#ifdef GRAPNEL_X86_KERNELS
extern const RowKernels row_kernels_avx2[2];
extern const RowKernels row_kernels_avx512[2];
#endif

const RowKernels& row_kernels(Compute compute) {
  const int type = static_cast<int>(compute);
  GRAPNEL_ASSERT(type < 2, "row kernels are for floating-point types");
#ifdef GRAPNEL_X86_KERNELS
  switch (base::cpu_isa()) {
    case base::Isa::avx512: return row_kernels_avx512[type];
    case base::Isa::avx2: return row_kernels_avx2[type];
    case base::Isa::baseline: break;
  }
#endif
  return row_kernels_baseline[type];
}

}  // namespace grapnel::kernels
