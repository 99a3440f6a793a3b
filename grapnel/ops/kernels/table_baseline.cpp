#include "grapnel/ops/kernels/fill_table.h"

namespace grapnel::kernels {
const KernelTable table_baseline = make_table<IsaBaseline>();
}
