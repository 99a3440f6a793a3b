/// The rules of cat and stack.
#include "grapnel/ops/defs/join.h"

namespace grapnel {

void Cat::check_joinable(Inputs in, int dim) {
  const Shape& first = in[0]->shape();
  for (size_t i = 1; i < in.size(); ++i) {
    const Shape& other = in[i]->shape();
    bool same = other.size() == first.size();
    for (int d = 0; same && d < first.size(); ++d) same = d == dim || first[d] == other[d];
    check(same, "cat: shapes may differ only in dimension ", dim, ", but tensor 0 is ", first,
          " and tensor ", i, " is ", other, ".");
  }
}

void Cat::infer(Inputs in, const Attrs& a, Specs& out) {
  check(!in.empty(), "cat: the list of tensors is empty; at least one is needed.");
  const int dim = attrs::dim_to_cut(name, a.dim, in[0]->shape().size());
  check_joinable(in, dim);
  check(a.sizes.size() == 1 || static_cast<size_t>(a.sizes.size()) == in.size(), "cat: ", in.size(),
        " tensors, but the sizes of ", a.sizes.size(), " are given.");
  Shape sizes = in[0]->shape();
  sizes[dim] = 0;
  for (size_t i = 0; i < in.size(); ++i) {
    const int64_t size = in[i]->shape()[dim], given = a.size_of(static_cast<int>(i));
    check(size == given, "cat: tensor ", i, " was given with size ", given, " in dimension ", dim,
          ", but has ", size, ".");
    sizes[dim] = checked_add(sizes[dim], size, "cat");
  }
  out.push_back({sizes, result_type(in)});
}
Outputs Cat::lower(Inputs in, const Attrs& a) {
  Specs specs;
  infer(in, a, specs);
  const Tensor out = zeros(specs[0].sizes, in[0]->options().dtype(specs[0].dtype));
  int64_t at = 0;
  for (size_t i = 0; i < in.size(); ++i) {
    const int64_t size = a.size_of(static_cast<int>(i));
    out.narrow(a.dim, at, size).copy_(*in[i]);
    at += size;
  }
  return {out};
}
Grads Cat::grad(const Saved& s, const Tensor& g) {
  const Attrs& a = s.attrs<Attrs>();
  Grads grads;
  int64_t start = 0;
  for (int i = 0; i < s.input_count(); ++i) {
    const int64_t size = a.size_of(i);
    grads.push_back(s.needs(i) ? g.narrow(a.dim, start, size).to(s.input_dtype(i)) : Tensor());
    start += size;
  }
  return grads;
}

void Stack::infer(Inputs in, const Attrs& a, Specs& out) {
  check(!in.empty(), "stack: the list of tensors is empty; at least one is needed.");
  Shape sizes = in[0]->shape();
  const int dim = attrs::dim(name, a.dim, sizes.size() + 1);
  for (size_t i = 1; i < in.size(); ++i)
    check(in[i]->shape() == sizes, "stack: all tensors must have one shape, but tensor 0 is ",
          sizes, " and tensor ", i, " is ", in[i]->shape(),
          ".\nUse cat to join tensors of different sizes.");
  sizes.insert(dim, static_cast<int64_t>(in.size()));
  out.push_back({sizes, result_type(in)});
}
Outputs Stack::lower(Inputs in, const Attrs& a) {
  Specs specs;
  infer(in, a, specs);
  const Tensor out = zeros(specs[0].sizes, in[0]->options().dtype(specs[0].dtype));
  for (size_t i = 0; i < in.size(); ++i) out.select(a.dim, static_cast<int64_t>(i)).copy_(*in[i]);
  return {out};
}
Grads Stack::grad(const Saved& s, const Tensor& g) {
  Grads grads;
  for (int i = 0; i < s.input_count(); ++i)
    grads.push_back(s.needs(i) ? g.select(s.attrs<Attrs>().dim, i).to(s.input_dtype(i)) : Tensor());
  return grads;
}

}  // namespace grapnel
