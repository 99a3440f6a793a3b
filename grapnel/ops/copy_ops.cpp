/// What may be copied over what.
#include "grapnel/ops/defs/copy.h"

namespace grapnel {

void Copy::infer(Inputs in, const Attrs&, Specs& out) {
  const Shape &to = in[0]->shape(), &from = in[1]->shape();
  bool fits = from.size() <= to.size();
  for (int i = 1; fits && i <= from.size(); ++i)
    fits = from[from.size() - i] == 1 || from[from.size() - i] == to[to.size() - i];
  check(fits, "copy_: a source of shape ", from, " does not broadcast to the target's shape ", to,
        ".");
  out.push_back({to, in[0]->dtype()});
}

}  // namespace grapnel
