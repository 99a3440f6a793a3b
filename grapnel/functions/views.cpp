/// Views as the user calls them: wraps and checks the arguments, then applies the view op.
#include "grapnel/base/error_kinds.h"
#include "grapnel/ops/defs/view.h"
#include "grapnel/ops/op_site.h"
#include "grapnel/ops/op_table.h"

namespace grapnel {

namespace {
int rank_of(const Tensor& x) { return x.shape().size(); }

void check_has_dims(const Tensor& x, const char* op) {
  check(x.dim() > 0, op,
        ": the tensor is 0-dimensional and has no dimension to take a part of.\nGive it one with "
        "unsqueeze(0).");
}

/// A free function that does what the method of the same name does.
#define GRAPNEL_METHOD_TOO(name, parameters, ...) \
  Tensor name parameters {                        \
    GRAPNEL_CALL_SITE;                            \
    return x.name(__VA_ARGS__);                   \
  }
}  // namespace

// --- shape ---

Tensor Tensor::view(IntArrayRef sizes) const {
  GRAPNEL_CALL_SITE;
  return apply<Reshape>({infer_view_size(sizes, numel())}, *this);
}

Tensor Tensor::reshape(IntArrayRef sizes) const {
  GRAPNEL_CALL_SITE;
  const Shape target = infer_view_size(sizes, numel());
  Shape strides;
  const bool viewable = view_strides(shape(), impl().strides, target, strides);
  return apply<Reshape>({target}, viewable ? *this : contiguous());
}

Tensor Tensor::view_as(const Tensor& other) const {
  GRAPNEL_CALL_SITE;
  return view(other.shape());
}

Tensor Tensor::reshape_as(const Tensor& other) const {
  GRAPNEL_CALL_SITE;
  return reshape(other.shape());
}

Tensor Tensor::expand_as(const Tensor& other) const {
  GRAPNEL_CALL_SITE;
  return expand(other.shape());
}

Tensor Tensor::flatten(int64_t start_dim, int64_t end_dim) const {
  GRAPNEL_CALL_SITE;
  if (dim() == 0) return reshape({1});
  const int start = wrap_dim(start_dim, rank_of(*this), "flatten"),
            end = wrap_dim(end_dim, rank_of(*this), "flatten");
  check(start <= end, "flatten: start_dim ", start_dim, " comes after end_dim ", end_dim,
        " in a tensor of shape ", shape(), ".");
  if (start == end) return *this;
  Shape sizes = shape();
  for (int i = end; i > start; --i) {
    sizes[start] *= sizes[start + 1];
    sizes.erase(start + 1);
  }
  return reshape(sizes);
}

Tensor Tensor::unflatten(int64_t dim, IntArrayRef sizes) const {
  GRAPNEL_CALL_SITE;
  check_has_dims(*this, "unflatten");
  check(!sizes.empty(), "unflatten: no sizes given for dimension ", dim, ".");
  const int at = wrap_dim(dim, rank_of(*this), "unflatten");
  const Shape parts = infer_view_size(sizes, shape()[at]);
  Shape target = shape();
  target.erase(at);
  for (int i = 0; i < parts.size(); ++i) target.insert(at + i, parts[i]);
  return view(target);
}

Tensor Tensor::transpose(int64_t dim0, int64_t dim1) const {
  GRAPNEL_CALL_SITE;
  return apply<Transpose>(
      {wrap_dim(dim0, rank_of(*this), "transpose"), wrap_dim(dim1, rank_of(*this), "transpose")},
      *this);
}

Tensor Tensor::t() const {
  GRAPNEL_CALL_SITE;
  check(dim() <= 2, "t: a matrix is expected, got shape ", shape(),
        ".\nUse transpose(dim0, dim1) or mT() for more dimensions.");
  return dim() < 2 ? transpose(0, 0) : transpose(0, 1);
}

Tensor Tensor::permute(IntArrayRef dims) const {
  GRAPNEL_CALL_SITE;
  check(dims.size() == static_cast<size_t>(dim()), "permute: ", dims, " names ", dims.size(),
        " dimensions, but the tensor has ", dim(), " (shape ", shape(), ").");
  DimsAttrs attrs;
  for (int64_t d : dims) attrs.dims.push_back(wrap_dim(d, rank_of(*this), "permute"));
  return apply<Permute>(attrs, *this);
}

Tensor Tensor::movedim(int64_t source, int64_t destination) const {
  GRAPNEL_CALL_SITE;
  const int from = wrap_dim(source, rank_of(*this), "movedim"),
            to = wrap_dim(destination, rank_of(*this), "movedim");
  Shape order;
  for (int i = 0; i < rank_of(*this); ++i)
    if (i != from) order.push_back(i);
  if (dim() > 0) order.insert(to, from);
  return permute(order);
}

Tensor Tensor::expand(IntArrayRef sizes) const {
  GRAPNEL_CALL_SITE;
  Shape target{std::span<const int64_t>(sizes)};
  const int added = target.size() - rank_of(*this);
  for (int i = 0; i < target.size(); ++i) {
    if (target[i] == -1 && added >= 0) {
      check(i >= added, "expand: -1 keeps a size, but dimension ", i, " of ", sizes,
            " is new (the tensor's shape is ", shape(), ").");
      target[i] = shape()[i - added];
    }
    check(target[i] >= 0, "expand: sizes must be -1 or not negative, got ", sizes, ".");
  }
  return apply<Expand>({target}, *this);
}

Tensor Tensor::squeeze() const {
  GRAPNEL_CALL_SITE;
  DimsAttrs attrs;
  for (int i = 0; i < rank_of(*this); ++i)
    if (shape()[i] == 1) attrs.dims.push_back(i);
  return apply<Squeeze>(attrs, *this);
}
Tensor Tensor::squeeze(int64_t dim) const {
  GRAPNEL_CALL_SITE;
  const int at = wrap_dim(dim, rank_of(*this), "squeeze");
  DimsAttrs attrs;
  if (this->dim() > 0 && shape()[at] == 1) attrs.dims.push_back(at);
  return apply<Squeeze>(attrs, *this);
}
Tensor Tensor::unsqueeze(int64_t dim) const {
  GRAPNEL_CALL_SITE;
  const int64_t last = this->dim();
  check_as<IndexError>(dim >= -last - 1 && dim <= last, "unsqueeze: position ", dim,
                       " is out of range; a tensor of shape ", shape(), " accepts ", -last - 1,
                       " to ", last, ".");
  return apply<Unsqueeze>({dim < 0 ? dim + last + 1 : dim}, *this);
}

// --- parts ---

Tensor Tensor::slice(int64_t dim, std::optional<int64_t> start, std::optional<int64_t> end,
                     int64_t step) const {
  GRAPNEL_CALL_SITE;
  check_has_dims(*this, "slice");
  check(step > 0, "slice: the step must be positive, got ", step, ".\nUse flip to walk backwards.");
  const int at = wrap_dim(dim, rank_of(*this), "slice");
  const int64_t size = shape()[at];
  auto position = [size](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + size : i, 0, size); };
  const int64_t from = position(start.value_or(0)),
                to = std::max(from, position(end.value_or(size)));
  return apply<SliceView>({at, from, to, step}, *this);
}

Tensor Tensor::select(int64_t dim, int64_t index) const {
  GRAPNEL_CALL_SITE;
  check_has_dims(*this, "select");
  const int at = wrap_dim(dim, rank_of(*this), "select");
  const int64_t size = shape()[at];
  check_as<IndexError>(size > 0, "select: index ", index, " of dimension ", dim,
                       ", which has size 0 (shape ", shape(), ").");
  check_as<IndexError>(index >= -size && index < size, "select: index ", index,
                       " is out of range for dimension ", dim, " with size ", size, "; it accepts ",
                       -size, " to ", size - 1, ".");
  return apply<Select>({at, index < 0 ? index + size : index}, *this);
}

Tensor Tensor::narrow(int64_t dim, int64_t start, int64_t length) const {
  GRAPNEL_CALL_SITE;
  check_has_dims(*this, "narrow");
  const int at = wrap_dim(dim, rank_of(*this), "narrow");
  const int64_t size = shape()[at];
  check_as<IndexError>(start >= -size && start <= size, "narrow: start ", start,
                       " is out of range for dimension ", dim, " with size ", size, "; it accepts ",
                       -size, " to ", size, ".");
  const int64_t from = start < 0 ? start + size : start;
  check(length >= 0 && length <= size - from, "narrow: ", length, " elements from ", from,
        " on do not fit in dimension ", dim, " with size ", size, ".");
  return apply<SliceView>({at, from, from + length, 1}, *this);
}

Tensor Tensor::diagonal(int64_t offset, int64_t dim1, int64_t dim2) const {
  GRAPNEL_CALL_SITE;
  check(dim() >= 2, "diagonal: a tensor with at least 2 dimensions is expected, got shape ",
        shape(), ".");
  return apply<Diagonal>({offset, wrap_dim(dim1, rank_of(*this), "diagonal"),
                          wrap_dim(dim2, rank_of(*this), "diagonal")},
                         *this);
}

// --- several at once ---

namespace {
template <class D>
std::vector<Tensor> all_views(const typename D::Attrs& attrs, const Tensor& x) {
  Outputs out = apply_all<D>(attrs, x);
  return {std::make_move_iterator(out.begin()), std::make_move_iterator(out.end())};
}
}  // namespace

std::vector<Tensor> Tensor::unbind(int64_t dim) const {
  GRAPNEL_CALL_SITE;
  check_has_dims(*this, "unbind");
  return all_views<Unbind>({wrap_dim(dim, rank_of(*this), "unbind")}, *this);
}

std::vector<Tensor> Tensor::split(int64_t split_size, int64_t dim) const {
  GRAPNEL_CALL_SITE;
  check_has_dims(*this, "split");
  const int at = wrap_dim(dim, rank_of(*this), "split");
  check(split_size >= 0, "split: the size of a part must not be negative, got ", split_size, ".");
  check(split_size > 0 || shape()[at] == 0, "split: parts of size 0 cannot cover dimension ", dim,
        " with size ", shape()[at], ".");
  return all_views<Split>({at, std::max<int64_t>(split_size, 1)}, *this);
}

std::vector<Tensor> Tensor::split_with_sizes(IntArrayRef sizes, int64_t dim) const {
  GRAPNEL_CALL_SITE;
  check_has_dims(*this, "split_with_sizes");
  const int at = wrap_dim(dim, rank_of(*this), "split_with_sizes");
  if (sizes.size() <= static_cast<size_t>(kMaxRank))
    return all_views<SplitWithSizes>({at, Shape(sizes)}, *this);
  // More sizes than one op's attributes hold: a view each.
  SplitWithSizes::check_split_sizes(sizes, shape(), at);
  std::vector<Tensor> out;
  int64_t start = 0;
  for (int64_t size : sizes) {
    out.push_back(apply<SliceView>({at, start, start + size, 1}, *this));
    start += size;
  }
  return out;
}

std::vector<Tensor> Tensor::chunk(int64_t chunks, int64_t dim) const {
  GRAPNEL_CALL_SITE;
  check_has_dims(*this, "chunk");
  check(chunks > 0, "chunk: the number of chunks must be positive, got ", chunks, ".");
  const int64_t size = shape()[wrap_dim(dim, rank_of(*this), "chunk")];
  // An empty dimension still gives as many chunks as were asked for, all empty.
  if (size == 0) {
    check(chunks <= attrs::kMostResults, "chunk: ", chunks,
          " chunks are asked for, and one call gives at most ", attrs::kMostResults, ".");
    return split_with_sizes(std::vector<int64_t>(static_cast<size_t>(chunks), 0), dim);
  }
  return split(ceil_div(size, chunks), dim);
}

// --- by memory layout ---

Tensor Tensor::as_strided(IntArrayRef size, IntArrayRef stride,
                          std::optional<int64_t> storage_offset) const {
  GRAPNEL_CALL_SITE;
  const int64_t offset = storage_offset.value_or(this->storage_offset());
  return as_strided_view(*this, {Shape(size), Shape(stride), offset});
}

// --- free functions ---

GRAPNEL_METHOD_TOO(reshape, (const Tensor& x, IntArrayRef sizes), sizes)
GRAPNEL_METHOD_TOO(flatten, (const Tensor& x, int64_t start_dim, int64_t end_dim), start_dim,
                   end_dim)
GRAPNEL_METHOD_TOO(transpose, (const Tensor& x, int64_t dim0, int64_t dim1), dim0, dim1)
GRAPNEL_METHOD_TOO(permute, (const Tensor& x, IntArrayRef dims), dims)
GRAPNEL_METHOD_TOO(squeeze, (const Tensor& x))
GRAPNEL_METHOD_TOO(squeeze, (const Tensor& x, int64_t dim), dim)
GRAPNEL_METHOD_TOO(unsqueeze, (const Tensor& x, int64_t dim), dim)
GRAPNEL_METHOD_TOO(diagonal, (const Tensor& x, int64_t offset, int64_t dim1, int64_t dim2), offset,
                   dim1, dim2)
#undef GRAPNEL_METHOD_TOO

std::vector<Tensor> unbind(const Tensor& x, int64_t dim) {
  GRAPNEL_CALL_SITE;
  return x.unbind(dim);
}
std::vector<Tensor> split(const Tensor& x, int64_t split_size, int64_t dim) {
  GRAPNEL_CALL_SITE;
  return x.split(split_size, dim);
}
std::vector<Tensor> chunk(const Tensor& x, int64_t chunks, int64_t dim) {
  GRAPNEL_CALL_SITE;
  return x.chunk(chunks, dim);
}

}  // namespace grapnel
