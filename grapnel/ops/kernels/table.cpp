#include "grapnel/ops/kernels/table.h"

namespace grapnel::kernels {

const KernelTable& table() { return table(base::cpu_isa()); }

const KernelTable& table([[maybe_unused]] base::Isa isa) {
#ifdef GRAPNEL_X86_KERNELS
  switch (isa) {
    case base::Isa::avx512: return table_avx512;
    case base::Isa::avx2: return table_avx2;
    case base::Isa::baseline: break;
  }
#endif
  return table_baseline;
}

}  // namespace grapnel::kernels
