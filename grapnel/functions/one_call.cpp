#include "grapnel/functions/one_call.h"

#include "grapnel/ops/op_site.h"
#include "grapnel/ops/op_table.h"

namespace grapnel {

#define GRAPNEL_DEFINE(name, Def) \
  Tensor name(const Tensor& x) {  \
    GRAPNEL_CALL_SITE;            \
    return apply<Def>(x);         \
  }
GRAPNEL_UNARY_FUNCTIONS(GRAPNEL_DEFINE)
#undef GRAPNEL_DEFINE

#define GRAPNEL_DEFINE(name, Def, parameters, arguments) \
  Tensor name parameters {                               \
    GRAPNEL_CALL_SITE;                                   \
    return apply<Def> arguments;                         \
  }
GRAPNEL_FUNCTIONS(GRAPNEL_DEFINE)
#undef GRAPNEL_DEFINE

}  // namespace grapnel
