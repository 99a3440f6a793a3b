/// cat, stack and broadcast_tensors.
#include "grapnel/ops/defs/join.h"

#include "grapnel/ops/op_site.h"
#include "grapnel/ops/op_table.h"

namespace grapnel {

namespace {

using Pointers = SmallVector<const Tensor*, 8>;

Pointers pointers_to(TensorList tensors, const char* op) {
  check(!tensors.empty(), op, ": the list of tensors is empty; at least one is needed.");
  Pointers list;
  for (size_t i = 0; i < tensors.size(); ++i) {
    check(tensors[i].defined(), op, ": tensor ", i, " of ", tensors.size(), " is undefined.");
    list.push_back(&tensors[i]);
  }
  return list;
}

/// PyTorch lets an empty vector join tensors of any shape.
bool counts_for_nothing(const Tensor& t) { return t.dim() == 1 && t.numel() == 0; }

void check_joinable(Inputs in, int dim) {
  const Shape& first = in[0]->shape();
  for (size_t i = 1; i < in.size(); ++i) {
    const Shape& other = in[i]->shape();
    bool same = other.size() == first.size();
    for (int d = 0; same && d < first.size(); ++d) same = d == dim || first[d] == other[d];
    check(same, "cat: shapes may differ only in dimension ", dim, ", but tensor 0 is ", first,
          " and tensor ", i, " is ", other, ".");
  }
}

/// As many inputs as there are sizes to remember, or any number of equal ones.
Tensor cat_list(Inputs in, int dim) {
  CatAttrs attrs{dim, {}};
  bool even = true;
  for (const Tensor* t : in) even &= t->shape()[dim] == in[0]->shape()[dim];
  if (!even && in.size() > static_cast<size_t>(kMaxRank)) {
    // Join groups first, then the groups.
    SmallVector<Tensor, 8> groups;
    Pointers list;
    const size_t size = std::max<size_t>(kMaxRank, (in.size() + kMaxRank - 1) / kMaxRank);
    for (size_t i = 0; i < in.size(); i += size)
      groups.push_back(cat_list(in.subspan(i, std::min(size, in.size() - i)), dim));
    for (const Tensor& t : groups) list.push_back(&t);
    return cat_list({list.data(), list.size()}, dim);
  }
  for (const Tensor* t : even ? in.first(1) : in) attrs.sizes.push_back(t->shape()[dim]);
  return apply(op_of<Cat>, in, &attrs);
}

}  // namespace

void Cat::infer(Inputs in, const Attrs& a, Specs& out) {
  check(!in.empty(), "cat: the list of tensors is empty; at least one is needed.");
  const int dim = attrs::dim_to_cut(name, a.dim, in[0]->shape().size());
  check_joinable(in, dim);
  check(a.sizes.size() == 1 || static_cast<size_t>(a.sizes.size()) == in.size(), "cat: ",
        in.size(), " tensors, but the sizes of ", a.sizes.size(), " are given.");
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
void Cat::run(Inputs in, const Attrs& a, std::span<Tensor> out) {
  int64_t start = 0;
  for (const Tensor* t : in) {
    const int64_t end = start + t->shape()[static_cast<int>(a.dim)];
    copy_elements(make_alias(out[0], SliceView::geometry(out[0], {a.dim, start, end, 1})), *t);
    start = end;
  }
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
void Stack::run(Inputs in, const Attrs& a, std::span<Tensor> out) {
  for (size_t i = 0; i < in.size(); ++i)
    copy_elements(make_alias(out[0], Select::geometry(out[0], {a.dim, static_cast<int64_t>(i)})),
                  *in[i]);
}
Grads Stack::grad(const Saved& s, const Tensor& g) {
  Grads grads;
  for (int i = 0; i < s.input_count(); ++i)
    grads.push_back(s.needs(i) ? g.select(s.attrs<Attrs>().dim, i).to(s.input_dtype(i)) : Tensor());
  return grads;
}

Tensor cat(TensorList tensors, int64_t dim) {
  GRAPNEL_CALL_SITE;
  const Pointers all = pointers_to(tensors, "cat");
  Pointers list;
  for (const Tensor* t : all)
    if (!counts_for_nothing(*t)) list.push_back(t);
  if (list.empty()) list.push_back(all[0]);
  for (size_t i = 0; i < all.size(); ++i)
    check(all[i]->dim() > 0, "cat: tensor ", i,
          " is 0-dimensional and cannot be joined along a dimension.\nUse stack, or unsqueeze(0) "
          "first.");
  const int at = wrap_dim(dim, list[0]->shape().size(), "cat");
  check_joinable({list.data(), list.size()}, at);
  return cat_list({list.data(), list.size()}, at);
}
Tensor cat(std::initializer_list<Tensor> tensors, int64_t dim) {
  GRAPNEL_CALL_SITE;
  return cat(TensorList(tensors.begin(), tensors.size()), dim);
}

Tensor stack(TensorList tensors, int64_t dim) {
  GRAPNEL_CALL_SITE;
  const Pointers list = pointers_to(tensors, "stack");
  // The result has one dimension more, and the new one may be its last.
  const DimAttrs attrs{wrap_dim(dim, list[0]->shape().size() + 1, "stack")};
  return apply(op_of<Stack>, {list.data(), list.size()}, &attrs);
}
Tensor stack(std::initializer_list<Tensor> tensors, int64_t dim) {
  GRAPNEL_CALL_SITE;
  return stack(TensorList(tensors.begin(), tensors.size()), dim);
}

std::vector<Tensor> broadcast_tensors(TensorList tensors) {
  GRAPNEL_CALL_SITE;
  if (tensors.empty()) return {};
  Shape sizes = tensors[0].shape();
  for (const Tensor& t : tensors) sizes = broadcast_shapes(sizes, t.shape(), "broadcast_tensors");
  std::vector<Tensor> out;
  for (const Tensor& t : tensors) out.push_back(t.expand(sizes));
  return out;
}

}  // namespace grapnel
