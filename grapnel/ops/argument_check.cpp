#include "grapnel/ops/argument_check.h"

#include "grapnel/ops/loop_nest.h"

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

bool is_integer_op(const Tensor& a, const Tensor& b) {
  const Tensor* inputs[] = {&a, &b};
  return !is_floating(result_type(inputs));
}

}  // namespace

void check_divisor(std::string_view op, const Tensor& a, const Tensor& b) {
  if (!is_integer_op(a, b)) return;
  const int64_t zero = find_first(b, [](int64_t x) { return x == 0; });
  if (zero >= 0)
    fail(op, ": the divisor is 0", place(b, zero), ", and integers have no infinity.\n",
         "Replace zeros first, or divide floating-point tensors.");
}

void check_exponent(const Tensor& base, const Tensor& exponent) {
  if (!is_integer_op(base, exponent)) return;
  const int64_t negative = find_first(exponent, [](int64_t x) { return x < 0; });
  if (negative >= 0)
    fail("pow: the exponent is negative", place(exponent, negative), ", and integers have no fractions.\n",
         "Convert the base first: x.to(kFloat32).");
}

void check_not_bool(std::string_view op, const Tensor& t, std::string_view advice) {
  check(t.dtype() != kBool, op, ": not defined for bool.\n", advice);
}

void check_no_floats(std::string_view op, const Tensor& a, const Tensor& b) {
  check(is_integer_op(a, b), op, ": needs integers or bools, got ", a.dtype(), " and ", b.dtype(), ".");
}

void check_mask(std::string_view op, const Tensor& mask) {
  check(mask.dtype() == kBool, op, ": the mask must be bool, got ", mask.dtype(), ".\nMake one with a comparison: mask != 0.");
}

}  // namespace grapnel
