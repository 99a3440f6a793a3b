#include "grapnel/cpu/kernels/table.h"

namespace grapnel::kernels {

const KernelTable& table() { return table(base::cpu_isa()); }

const KernelTable& table([[maybe_unused]] base::Isa isa) {
#ifdef GRAPNEL_X86_KERNELS
  switch (isa) {
    case base::Isa::avx512: return table_of<IsaAvx512>::value;
    case base::Isa::avx2: return table_of<IsaAvx2>::value;
    case base::Isa::baseline: break;
  }
#endif
  return table_of<IsaBaseline>::value;
}

}  // namespace grapnel::kernels
