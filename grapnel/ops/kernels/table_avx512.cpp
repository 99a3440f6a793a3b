#include "grapnel/ops/kernels/fill_table.h"

namespace grapnel::kernels {
const KernelTable table_avx512 = make_table<IsaAvx512>();
}
