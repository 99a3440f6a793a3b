#include "grapnel/ops/attr_check.h"

#include "grapnel/base/error_kinds.h"
#include "grapnel/ops/defs/calls.h"
#include "grapnel/ops/evaluator.h"
#include "grapnel/ops/op_table.h"

namespace grapnel {

namespace {

/// " at [1, 2]", or nothing for a plain number.
std::string place(const Tensor& t, int64_t linear) {
  if (t.dim() == 0) return "";
  Shape at = t.shape();
  for (int i = at.size() - 1; i >= 0; --i) {
    at[i] = linear % t.shape()[i];
    linear /= t.shape()[i];
  }
  return str(" at ", at);
}

std::string_view op_of_rule(Refused rule) {
  switch (rule) {
    case Refused::floor_divide_by_zero: return "floor_divide";
    case Refused::fmod_by_zero: return "fmod";
    case Refused::remainder_by_zero: return "remainder";
    case Refused::negative_exponent: return "pow";
  }
  return "";
}

void check_values(const Tensor& t, Refused rule) {
  const Tensor* const inputs[] = {&t};
  const CheckIntegers::Attrs attrs{static_cast<int64_t>(rule)};
  // Values that are there are looked at now, even if a recorder is open.
  if (!t.impl().storage->pending())
    evaluator_of(t.device()).run(op_of<CheckIntegers>, inputs, &attrs, {});
  else apply_all(op_of<CheckIntegers>, inputs, &attrs);
}

}  // namespace

void CheckIntegers::infer(Inputs, const Attrs& a, Specs&) {
  check(a.rule >= 0 && a.rule <= static_cast<int64_t>(Refused::negative_exponent), name, ": rule ",
        a.rule, " is none.");
}

void refuse_value(const Tensor& t, Refused rule, int64_t number) {
  if (rule == Refused::negative_exponent)
    fail("pow: the exponent is negative", place(t, number), ", and integers have no fractions.\n",
         "Convert the base first: x.to(kFloat32).");
  fail(op_of_rule(rule), ": the divisor is 0", place(t, number),
       ", and integers have no infinity.\n",
       "Replace zeros first, or divide floating-point tensors.");
}

void check_integers(const Tensor& a, const Tensor& b, Refused rule) {
  const Tensor* const both[] = {&a, &b};
  if (!is_floating(result_type(both))) check_values(b, rule);
}

void refuse_bool(std::string_view op, Inputs inputs, std::string_view advice) {
  for (const Tensor* t : inputs)
    check_as<TypeError>(t->dtype() != kBool, op, ": not defined for bool.\n", advice);
}

void refuse_floats(std::string_view op, Inputs inputs) {
  check_as<TypeError>(!is_floating(result_type(inputs)), op, ": needs integers or bools, got ",
                      inputs[0]->dtype(), " and ", inputs[1]->dtype(), ".");
}

void check_mask(std::string_view op, const Tensor& mask) {
  check_as<TypeError>(mask.dtype() == kBool, op, ": the mask must be bool, got ", mask.dtype(),
                      ".\nMake one with a comparison: mask != 0.");
}

}  // namespace grapnel
