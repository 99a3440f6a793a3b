#include "grapnel/ops/argument_check.h"

#include "grapnel/ops/loop_nest.h"
#include "grapnel/ops/record.h"

namespace grapnel {

namespace {

/// Row-major number of the first element for which `bad` holds, or -1.
template <class Bad>
int64_t find_first(const Tensor& t, Bad bad) {
  Tensor values = t;
  if (t.dtype() != kInt64 || !t.is_contiguous()) {
    values = Tensor(TensorImpl::empty(t.shape(), kInt64));
    copy_elements(values, t);
  }
  const int64_t* x = reinterpret_cast<const int64_t*>(values.impl().data());
  for (int64_t i = 0; i < values.numel(); ++i)
    if (bad(x[i])) return i;
  return -1;
}

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

/// The kinds of values that integers refuse.
enum class Refused : int64_t {
  floor_divide_by_zero,
  fmod_by_zero,
  remainder_by_zero,
  negative_exponent
};

std::string_view op_of_rule(Refused rule) {
  switch (rule) {
    case Refused::floor_divide_by_zero: return "floor_divide";
    case Refused::fmod_by_zero: return "fmod";
    case Refused::remainder_by_zero: return "remainder";
    case Refused::negative_exponent: return "pow";
  }
  return "";
}

void check_now(const Tensor& t, Refused rule) {
  if (rule == Refused::negative_exponent) {
    const int64_t negative = find_first(t, [](int64_t x) { return x < 0; });
    if (negative >= 0)
      fail("pow: the exponent is negative", place(t, negative),
           ", and integers have no fractions.\n", "Convert the base first: x.to(kFloat32).");
  } else {
    const int64_t zero = find_first(t, [](int64_t x) { return x == 0; });
    if (zero >= 0)
      fail(op_of_rule(rule), ": the divisor is 0", place(t, zero),
           ", and integers have no infinity.\n",
           "Replace zeros first, or divide floating-point tensors.");
  }
}

/// The same for values that are not there yet: done when the graph runs. A call without results is
/// never dropped.
struct CheckIntegers : Call<1> {
  static constexpr std::string_view name = "check_integers";
  struct Attrs {
    int64_t rule = 0;
    static void visit(auto& self, auto&& v) { v("rule", self.rule); }
  };
  static void infer(Inputs, const Attrs&, Specs&) {}
  static void run(Inputs inputs, const Attrs& attrs, std::span<Tensor>) {
    check_now(*inputs[0], static_cast<Refused>(attrs.rule));
  }
  static Samples samples() { return {}; }
};

void check_values(const Tensor& t, Refused rule) {
  if (!record::active() || !t.impl().storage->pending()) return check_now(t, rule);
  const Tensor* const inputs[] = {&t};
  const CheckIntegers::Attrs attrs{static_cast<int64_t>(rule)};
  record::append(op_of<CheckIntegers>, inputs, &attrs, {}, /*inplace=*/false);
}

bool is_integer_op(const Tensor& a, const Tensor& b) {
  const Tensor* inputs[] = {&a, &b};
  return !is_floating(result_type(inputs));
}

}  // namespace

void check_divisor(std::string_view op, const Tensor& a, const Tensor& b) {
  if (!is_integer_op(a, b)) return;
  for (const Refused rule :
       {Refused::floor_divide_by_zero, Refused::fmod_by_zero, Refused::remainder_by_zero})
    if (op_of_rule(rule) == op) check_values(b, rule);
}

void check_exponent(const Tensor& base, const Tensor& exponent) {
  if (is_integer_op(base, exponent)) check_values(exponent, Refused::negative_exponent);
}

void check_not_bool(std::string_view op, const Tensor& t, std::string_view advice) {
  check(t.dtype() != kBool, op, ": not defined for bool.\n", advice);
}

void check_no_floats(std::string_view op, const Tensor& a, const Tensor& b) {
  check(is_integer_op(a, b), op, ": needs integers or bools, got ", a.dtype(), " and ", b.dtype(),
        ".");
}

void check_mask(std::string_view op, const Tensor& mask) {
  check(mask.dtype() == kBool, op, ": the mask must be bool, got ", mask.dtype(),
        ".\nMake one with a comparison: mask != 0.");
}

}  // namespace grapnel
