/// Indexing as the user calls it. Numbers, slices, None and "..." become views; what is left are
/// index tensors, of which one tensor of positions is made (Note [Row index]).
#include "grapnel/base/error_kinds.h"
#include "grapnel/functions/assign.h"
#include "grapnel/ops/defs/index.h"
#include "grapnel/ops/op_site.h"
#include "grapnel/ops/op_table.h"
#include "grapnel/ops/record.h"
#include "grapnel/tensor/tensor_index.h"

namespace grapnel {

namespace {

int64_t nonzeros_in(const Tensor& x) {
  const record::Reading reading("a result whose size depends on values");
  return (x.dtype() == kBool ? x : x != 0).sum().item<int64_t>();
}
Tensor mask_positions(const Tensor& mask) {
  return apply<MaskPositions>({nonzeros_in(mask)}, mask);
}

Tensor vector_of(const Tensor& index, const char* op) {
  check(index.dim() <= 1, op, ": the index must be a vector, got shape ", index.shape(),
        ".\nUse gather, or x.index({...}).");
  return index.dim() == 0 ? index.reshape({1}) : index;
}

// --- x.index({...}) ---

/// A view of x, and index tensors or masks for some of its dimensions.
struct Selection {
  Tensor view;
  struct Part {
    int dim;
    Tensor index;
    int dims() const { return index.dtype() == kBool ? static_cast<int>(index.dim()) : 1; }
  };
  std::vector<Part> parts;
};

/// How many dimensions of x an index uses up.
int64_t dims_used(const TensorIndex& index) {
  if (const Tensor* t = std::get_if<Tensor>(&index.value())) {
    check(t->defined(), "index: an index tensor is undefined.");
    return t->dtype() == kBool ? t->dim() : 1;
  }
  return std::holds_alternative<int64_t>(index.value()) ||
         std::holds_alternative<indexing::Slice>(index.value());
}

Tensor positions_of(bool on, Device device) {
  return zeros({on ? 1 : 0}, TensorOptions(kInt64).device(device));
}

Selection select_parts(const Tensor& x, const IndexList& indices) {
  int64_t used = 0, ellipses = 0;
  for (const TensorIndex& index : indices) {
    used += dims_used(index);
    ellipses += std::holds_alternative<indexing::EllipsisIndexType>(index.value());
  }
  check(used <= x.dim(), "index: ", used, " dimensions are indexed, but the tensor has ", x.dim(),
        " (shape ", x.shape(), ").");
  check(ellipses <= 1, "index: \"...\" may stand only once, got it ", ellipses, " times.");

  Selection s{x, {}};
  int dim = 0;
  auto add_part = [&](const Tensor& index) {
    s.parts.push_back({dim, index.to(x.device())});
    dim += s.parts.back().dims();
  };
  for (const TensorIndex& index : indices) {
    std::visit(
        [&]<class T>(const T& value) {
          if constexpr (std::is_same_v<T, std::nullopt_t>) {
            s.view = s.view.unsqueeze(dim++);
          } else if constexpr (std::is_same_v<T, indexing::EllipsisIndexType>) {
            dim += static_cast<int>(x.dim() - used);
          } else if constexpr (std::is_same_v<T, int64_t>) {
            s.view = s.view.select(dim, value);
          } else if constexpr (std::is_same_v<T, indexing::Slice>) {
            s.view = s.view.slice(dim++, value.start, value.stop, value.step);
          } else if constexpr (std::is_same_v<T, bool>) {
            s.view = s.view.unsqueeze(dim);
            add_part(positions_of(value, x.device()));
          } else if (value.dtype() == kBool && value.dim() == 0) {
            s.view = s.view.unsqueeze(dim);
            add_part(positions_of(value.item().to_bool(), x.device()));
          } else {
            add_part(value);
          }
        },
        index.value());
  }
  return s;
}

void check_mask_shape(const Selection::Part& part, const Shape& x) {
  const Shape& mask = part.index.shape();
  for (int i = 0; i < mask.size(); ++i)
    check(mask[i] == x[part.dim + i], "index: a mask of shape ", mask,
          " does not fit the dimensions from ", part.dim, " on of a tensor of shape ", x,
          ": sizes ", mask[i], " and ", x[part.dim + i], " differ.");
}

struct Rows {
  Shape dims;
  Tensor positions;
};

/// One tensor of positions for all index tensors and masks.
Rows rows_of(const Selection& s) {
  const Shape& sizes = s.view.shape();
  Rows rows;
  SmallVector<Tensor, 4> list;
  for (const Selection::Part& part : s.parts) {
    for (int i = 0; i < part.dims(); ++i) rows.dims.push_back(part.dim + i);
    if (part.index.dtype() != kBool) {
      list.push_back(part.index);
      continue;
    }
    check_mask_shape(part, sizes);
    // A mask alone counts through its dimensions as positions do.
    if (s.parts.size() == 1) return {rows.dims, mask_positions(part.index)};
    for (const Tensor& column : nonzero(part.index).unbind(1)) list.push_back(column);
  }
  RavelAttrs attrs;
  attrs.dims = rows.dims;
  SmallVector<const Tensor*, 4> pointers;
  for (size_t i = 0; i < list.size(); ++i) {
    attrs.sizes.push_back(sizes[static_cast<int>(rows.dims[static_cast<int>(i)])]);
    pointers.push_back(&list[i]);
  }
  rows.positions = apply(op_of<RavelIndex>, {pointers.data(), pointers.size()}, &attrs);
  return rows;
}

/// `value` in the shape that writing to `sizes` needs; ones in front are dropped as broadcasting
/// would.
Tensor spread(Tensor value, const Shape& sizes) {
  while (value.dim() > sizes.size() && value.shape()[0] == 1) value = value.squeeze(0);
  bool fits = value.dim() <= sizes.size();
  for (int i = 1; fits && i <= value.dim(); ++i) {
    const int64_t have = value.shape()[static_cast<int>(value.dim()) - i];
    fits = have == 1 || have == sizes[sizes.size() - i];
  }
  check(fits, "index_put_: values of shape ", value.shape(),
        " do not broadcast to the indexed shape ", sizes, ".");
  return value.shape() == sizes ? value : value.expand(sizes);
}

/// `caller` is the argument of the public call: see Note [Assignment to a temporary].
Tensor picked_by(const Tensor& x, const IndexList& indices, const IndexArgument& caller) {
  const Selection s = select_parts(x, indices);
  // Always a tensor of its own, also for x.index({}).
  if (s.parts.empty()) return s.view.is_same(x) ? s.view.view(x.shape()) : s.view;
  const Rows rows = rows_of(s);
  Tensor copy = index_rows(s.view, rows.dims, rows.positions);
  caller.remember(copy, s.view, rows.dims, rows.positions);
  return copy;
}

}  // namespace

Tensor Tensor::index(const IndexList& indices) const {
  GRAPNEL_CALL_SITE;
  return picked_by(*this, indices, indices);
}
Tensor Tensor::operator[](const IndexTensor& indices) const {
  GRAPNEL_CALL_SITE;
  return picked_by(*this, {indices.tensor}, indices);
}

Tensor& Tensor::index_put_(const IndexList& indices, const Tensor& values, bool accumulate) const {
  GRAPNEL_CALL_SITE;
  const Selection s = select_parts(*this, indices);
  if (s.parts.empty()) {
    const Tensor source = spread(values, s.view.shape());
    if (accumulate) s.view.add_(source);
    else s.view.copy_(source);
  } else {
    const Rows rows = rows_of(s);
    const IndexAttrs read{rows.dims};
    const Tensor* inputs[] = {&s.view, &rows.positions};
    Specs specs;
    Index::infer(inputs, read, specs);
    apply_inplace<IndexPut>({rows.dims, accumulate}, s.view, rows.positions,
                            spread(values, specs[0].sizes));
  }
  return const_cast<Tensor&>(*this);
}
Tensor& Tensor::index_put_(const IndexList& indices, const Tensor& values) const {
  GRAPNEL_CALL_SITE;
  return index_put_(indices, values, /*accumulate=*/false);
}
Tensor& Tensor::index_put_(const IndexList& indices, const Scalar& value) const {
  GRAPNEL_CALL_SITE;
  return index_put_(indices, scalar_tensor(value, options()));
}

// --- rows along one dimension ---

Tensor Tensor::index_select(int64_t dim, const Tensor& index) const {
  GRAPNEL_CALL_SITE;
  check_index_type(index, "index_select");
  const int at = wrap_dim(dim, shape().size(), "index_select");
  const Tensor positions = vector_of(index, "index_select");
  if (this->dim() > 0) return picked_copy(apply<IndexSelect>({Shape{at}}, *this, positions));
  check(positions.numel() == 1, "index_select: a 0-dimensional tensor takes one index, got ",
        positions.numel(), ".");
  return reshape({1}).index_select(0, positions).reshape({});
}
Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index) {
  GRAPNEL_CALL_SITE;
  return x.index_select(dim, index);
}

namespace {
/// Arguments of index_add, checked.
IndexPutAttrs index_add_attrs(const Tensor& x, int64_t dim, const Tensor& index,
                              const Tensor& source) {
  check_index_type(index, "index_add");
  const int at = wrap_dim(dim, x.shape().size(), "index_add");
  Shape expected = x.shape();
  check(!expected.empty(),
        "index_add: the tensor is 0-dimensional.\nGive it a dimension with unsqueeze(0).");
  expected[at] = index.numel();
  check(source.shape() == expected, "index_add: the source must have shape ", expected, " (",
        index.numel(), " indices in dimension ", at, " of a tensor of shape ", x.shape(), "), got ",
        source.shape(), ".");
  check(source.dtype() == x.dtype(), "index_add: the source is ", source.dtype(),
        " but the tensor is ", x.dtype(), ".\nConvert it: source.to(", x.dtype(), ").");
  return {Shape{at}, true};
}
}  // namespace

Tensor Tensor::index_add(int64_t dim, const Tensor& index, const Tensor& source) const {
  GRAPNEL_CALL_SITE;
  const Tensor positions = vector_of(index, "index_add");
  return apply<IndexAdd>(index_add_attrs(*this, dim, positions, source), *this, positions, source);
}
Tensor& Tensor::index_add_(int64_t dim, const Tensor& index, const Tensor& source) const {
  GRAPNEL_CALL_SITE;
  const Tensor positions = vector_of(index, "index_add_");
  return apply_inplace<IndexAdd>(index_add_attrs(*this, dim, positions, source), *this, positions,
                                 source);
}
Tensor index_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source) {
  GRAPNEL_CALL_SITE;
  return x.index_add(dim, index, source);
}

Tensor embedding(const Tensor& weight, const Tensor& indices, int64_t padding_idx) {
  GRAPNEL_CALL_SITE;
  check_index_type(indices, "embedding");
  check(weight.dim() == 2,
        "embedding: the weight must have 2 dimensions (rows, features), got shape ", weight.shape(),
        ".");
  check_as<IndexError>(padding_idx >= -1 && padding_idx < weight.shape()[0],
                       "embedding: padding_idx ", padding_idx, " is out of range for ",
                       weight.shape()[0], " rows.\nUse -1 for no padding.");
  return apply<Embedding>({{0}, padding_idx}, weight, indices);
}

// --- masks and positions ---

Tensor Tensor::masked_select(const Tensor& mask) const {
  GRAPNEL_CALL_SITE;
  check(mask.dtype() == kBool, "masked_select: the mask must be bool, got ", mask.dtype(),
        ".\nMake one by comparing: mask != 0.");
  const Shape sizes = broadcast_shapes(shape(), mask.shape(), "masked_select");
  Shape dims;
  for (int i = 0; i < sizes.size(); ++i) dims.push_back(i);
  const Tensor all = shape() == sizes ? *this : expand(sizes),
               on = mask.shape() == sizes ? mask : mask.expand(sizes);
  return picked_copy(index_rows(all, dims, mask_positions(on)));
}
Tensor masked_select(const Tensor& x, const Tensor& mask) {
  GRAPNEL_CALL_SITE;
  return x.masked_select(mask);
}

Tensor Tensor::nonzero() const {
  GRAPNEL_CALL_SITE;
  return apply<Nonzero>({nonzeros_in(*this)}, *this);
}
Tensor nonzero(const Tensor& x) {
  GRAPNEL_CALL_SITE;
  return x.nonzero();
}

Tensor one_hot(const Tensor& indices, int64_t num_classes) {
  GRAPNEL_CALL_SITE;
  check_index_type(indices, "one_hot");
  check(num_classes >= -1 && num_classes != 0,
        "one_hot: num_classes must be positive, or -1 to find it, got ", num_classes, ".");
  if (num_classes == -1) {
    check(indices.numel() > 0,
          "one_hot: the number of classes cannot be found from no indices.\nGive num_classes.");
    const auto largest = indices.max().item<int64_t>();
    num_classes = std::max<int64_t>(checked_add(largest, int64_t{1}, "one_hot"), 1);
  }
  return apply<OneHot>({num_classes}, indices);
}

namespace {
const Tensor& matrix(const Tensor& x, const char* op) {
  check(x.dim() >= 2, op, ": at least 2 dimensions are expected, got shape ", x.shape(), ".");
  return x;
}
}  // namespace

Tensor Tensor::tril(int64_t diagonal) const {
  GRAPNEL_CALL_SITE;
  return apply<Tril>({diagonal}, matrix(*this, "tril"));
}
Tensor Tensor::triu(int64_t diagonal) const {
  GRAPNEL_CALL_SITE;
  return apply<Triu>({diagonal}, matrix(*this, "triu"));
}
Tensor tril(const Tensor& x, int64_t diagonal) {
  GRAPNEL_CALL_SITE;
  return x.tril(diagonal);
}
Tensor triu(const Tensor& x, int64_t diagonal) {
  GRAPNEL_CALL_SITE;
  return x.triu(diagonal);
}

}  // namespace grapnel
