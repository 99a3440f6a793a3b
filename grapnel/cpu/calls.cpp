/// Functions of the program, and checks of values.
#include "grapnel/ops/defs/calls.h"

#include "grapnel/cpu/dense.h"

namespace grapnel::cpu {

namespace {

/// Row-major number of the first element for which `bad` holds, or -1.
template <class Bad>
int64_t find_first(const Tensor& t, Bad bad) {
  const Tensor values = dense(t, kInt64);
  const int64_t* x = reinterpret_cast<const int64_t*>(values.impl().host());
  for (int64_t i = 0; i < values.numel(); ++i)
    if (bad(x[i])) return i;
  return -1;
}

}  // namespace

template <>
void run<Invoke>(Inputs in, const ProgramCallAttrs& a, std::span<Tensor> out) {
  a.call->run(in, out);
}
template <>
void run<Cond>(Inputs in, const ProgramCallAttrs& a, std::span<Tensor> out) {
  a.call->run(in, out);
}

template <>
void run<CheckIntegers>(Inputs in, const CheckIntegers::Attrs& a, std::span<Tensor>) {
  const auto rule = static_cast<Refused>(a.rule);
  const int64_t bad = rule == Refused::negative_exponent
                          ? find_first(*in[0], [](int64_t x) { return x < 0; })
                          : find_first(*in[0], [](int64_t x) { return x == 0; });
  if (bad >= 0) refuse_value(*in[0], rule, bad);
}

}  // namespace grapnel::cpu
