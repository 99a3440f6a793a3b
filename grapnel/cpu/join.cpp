/// cat and stack: each input is copied to its part of the result.
#include "grapnel/ops/defs/join.h"

#include "grapnel/cpu/run.h"

namespace grapnel::cpu {

template <>
void run<Cat>(Inputs in, const Cat::Attrs& a, std::span<Tensor> out) {
  int64_t start = 0;
  for (const Tensor* t : in) {
    const int64_t end = start + t->shape()[static_cast<int>(a.dim)];
    cpu::copy(make_alias(out[0], SliceView::geometry(out[0], {a.dim, start, end, 1})), *t);
    start = end;
  }
}

template <>
void run<Stack>(Inputs in, const Stack::Attrs& a, std::span<Tensor> out) {
  for (size_t i = 0; i < in.size(); ++i)
    cpu::copy(make_alias(out[0], Select::geometry(out[0], {a.dim, static_cast<int64_t>(i)})),
              *in[i]);
}

}  // namespace grapnel::cpu
