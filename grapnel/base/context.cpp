#include "grapnel/base/context.h"

namespace grapnel {

constinit thread_local Context this_context [[gnu::tls_model("initial-exec")]];

}  // namespace grapnel
