#include "grapnel/ops/autocast.h"

namespace grapnel {

Autocast::Autocast(DType dtype) : before_(Autocast::dtype()) {
  check(dtype == kBFloat16 || dtype == kFloat16 || dtype == kFloat32,
        "Autocast: products can be computed in bf16 or f16 (or f32, which casts nothing), not in ",
        dtype, ".");
  this_context.modes.autocast = dtype;
}

}  // namespace grapnel
