#include "grapnel/cpu/kernels/fill_table.h"
#include "grapnel/cpu/kernels/isa_here.h"

namespace grapnel::kernels {
template <>
const KernelTable table_of<IsaHere>::value = make_table<IsaHere>();
}
