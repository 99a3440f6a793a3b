#include "grapnel/ops/kernels/table.h"

#include "grapnel/base/cpu.h"

namespace grapnel::kernels {

const KernelTable& table() {
#ifdef GRAPNEL_X86_KERNELS
  switch (base::cpu_isa()) {
    case base::Isa::avx512: return table_avx512;
    case base::Isa::avx2: return table_avx2;
    case base::Isa::baseline: break;
  }
#endif
  return table_baseline;
}

}  // namespace grapnel::kernels
