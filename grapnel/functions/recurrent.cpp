#include "grapnel/functions/recurrent.h"

#include "grapnel/ops/autocast.h"
#include "grapnel/ops/defs/recurrent.h"
#include "grapnel/ops/op_site.h"
#include "grapnel/ops/op_table.h"
#include "grapnel/ops/tape.h"

namespace grapnel {

RecurrentStates recurrent(RecurrentCell cell, const Tensor& x, const Tensor& h, const Tensor& c,
                          const Tensor& weight, const Tensor& bias, bool reverse) {
  GRAPNEL_CALL_SITE;
  const auto alike = [&](const Tensor& t) {
    return t.defined() && Autocast::is_enabled() ? t.to(x.dtype()) : t;
  };
  const Tensor operands[] = {x, alike(h), alike(c), alike(weight), alike(bias)};
  bool tracked = false;
  for (const Tensor& t : operands) tracked |= t.defined() && tape::tracks(t);
  const RecurrentAttrs attrs{.cell = static_cast<int64_t>(cell),
                             .reverse = reverse,
                             .keep = tracked && GradMode::is_enabled()};
  const Outputs out = apply_all<Recurrent>(attrs, operands[0], operands[1], operands[2],
                                           operands[3], operands[4]);
  return {out[0], cell == RecurrentCell::lstm ? out[2] : Tensor()};
}

}  // namespace grapnel
