/// cat, stack and broadcast_tensors as users call them.
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
  Cat::check_joinable({list.data(), list.size()}, at);
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
