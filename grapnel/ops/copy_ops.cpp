/// What may be copied over what, and where to.
#include "grapnel/ops/defs/copy.h"

namespace grapnel {

Device ToDeviceAttrs::device() const {
  const bool good = type == 0 ? index == 0 : type == 1 && index >= 0 && index < kMostDevices;
  check(good, "to_device: there is no device of type ", type, " with number ", index, ".");
  return {static_cast<DeviceType>(type), static_cast<int>(index)};
}

void Copy::infer(Inputs in, const Attrs&, Specs& out) {
  const Shape &to = in[0]->shape(), &from = in[1]->shape();
  bool fits = from.size() <= to.size();
  for (int i = 1; fits && i <= from.size(); ++i)
    fits = from[from.size() - i] == 1 || from[from.size() - i] == to[to.size() - i];
  check(fits, "copy_: a source of shape ", from, " does not broadcast to the target's shape ", to,
        ".");
  out.push_back({to, in[0]->dtype(), in[0]->device()});
}

}  // namespace grapnel
