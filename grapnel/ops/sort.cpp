/// Sorting and extremes.
#include "grapnel/ops/defs/sort.h"

#include "grapnel/ops/defs/index.h"
#include "grapnel/ops/lines.h"
#include "grapnel/ops/op_site.h"
#include "grapnel/ops/op_table.h"

namespace grapnel {

namespace {

/// a < b with NaN above everything.
template <class T>
bool less(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return a < b || (b != b && a == a);
  else return a < b;
}
/// a before b in descending order.
template <class T>
bool greater(T a, T b) {
  return less(b, a);
}
/// Whether b, found later, replaces the extreme a.
template <class T>
bool rises(T a, T b) {
  return less(a, b);
}
template <class T>
bool falls(T a, T b) {
  // NaN wins here too, so it counts as below everything.
  if constexpr (std::is_floating_point_v<T>) return (b < a && a == a) || (b != b && a == a);
  else return b < a;
}

/// Orders each line: the first `count` values in order, with their positions.
template <class T>
void sort_lines(const Tensor& x, const Tensor& values, const Tensor& positions, int dim,
                int64_t count, bool descending) {
  struct Entry {
    T value;
    int64_t position;
  };
  const int64_t length = x.dim() == 0 ? 1 : x.shape()[dim];
  for_lines<3>(x.shape(), dim, {x, values, positions}, LineOrder::kept, [&](const LinePiece<3>& p) {
    std::vector<Entry> line(static_cast<size_t>(length));
    for (int64_t j = 0; j < p.lines; ++j) {
      for (int64_t i = 0; i < length; ++i) line[static_cast<size_t>(i)] = {p.at<T>(0, j, i), i};
      // Positions break ties, so the order is that of a stable sort.
      auto order = [&](auto before) {
        auto first = [before](const Entry& a, const Entry& b) {
          return before(a.value, b.value) || (!before(b.value, a.value) && a.position < b.position);
        };
        if (count < length)
          std::partial_sort(line.begin(), line.begin() + count, line.end(), first);
        else std::sort(line.begin(), line.end(), first);
      };
      descending ? order(greater<T>) : order(less<T>);
      for (int64_t i = 0; i < count; ++i) {
        p.at<T>(1, j, i) = line[static_cast<size_t>(i)].value;
        p.at<int64_t>(2, j, i) = line[static_cast<size_t>(i)].position;
      }
    }
  });
}

void sorted(const Tensor& x, std::span<Tensor> out, int dim, int64_t count, bool descending) {
  if (out[0].numel() == 0) return;
  const DType wide = dtype_of(compute_type(x.dtype()));
  const Tensor values = result_buffer(out[0], wide);
  visit_compute(x.dtype(), [&]<class T>() {
    sort_lines<T>(converted(x, wide), values, out[1], dim, count, descending);
  });
  store_result(out[0], values);
}

/// The extreme of each line; `values` may be undefined.
template <bool Max>
void extremes(const Tensor& in, const Tensor& values, const Tensor& positions, int dim) {
  if (positions.numel() == 0) return;
  const Tensor x = converted(in, dtype_of(compute_type(in.dtype())));
  // The results as lines of one element.
  Geometry g = geometry_of(positions);
  g.sizes = in.shape();
  g.strides = Shape::filled(g.sizes.size(), 0);
  Shape kept = in.shape();
  if (!kept.empty()) kept[dim] = 1;
  const Shape strides = contiguous_strides(kept);
  for (int i = 0; i < g.sizes.size(); ++i)
    if (i != dim) g.strides[i] = strides[i];
  const Tensor at = make_alias(positions, g);
  visit_compute(x.dtype(), [&]<class T>() {
    const Tensor best(TensorImpl::empty(kept, x.dtype()));
    for_lines<3>(in.shape(), dim, {x, at, make_alias(best, {g.sizes, g.strides, 0})},
                 LineOrder::kept, [&](const LinePiece<3>& p) {
                   p.for_each([&](int64_t j, int64_t i) {
                     const T value = p.at<T>(0, j, i);
                     T& so_far = p.at<T>(2, j, 0);
                     if (i == 0 || (Max ? rises(so_far, value) : falls(so_far, value))) {
                       so_far = value;
                       p.at<int64_t>(1, j, 0) = i;
                     }
                   });
                 });
    if (values.defined())
      copy_elements(values,
                    make_alias(best, {values.shape(), contiguous_strides(values.shape()), 0}));
  });
}

Shape reduced_shape(const Tensor& x, const ExtremeAttrs& a, std::string_view op) {
  Shape sizes = x.shape();
  const int dim = attrs::dim(op, a.dim, sizes.size());
  if (sizes.empty()) return sizes;
  check(sizes[dim] > 0, op, ": dimension ", a.dim,
        " has size 0, and nothing has no extreme (shape ", x.shape(), ").");
  if (a.keepdim) sizes[dim] = 1;
  else sizes.erase(dim);
  return sizes;
}

}  // namespace

Grads picked_grad(const Saved& s, const Grads& g, int64_t dim, bool keeps_dim) {
  if (!g[0].defined()) return {Tensor()};
  const bool flat = keeps_dim || s.input_shape(0).empty();
  const Tensor values = flat ? g[0] : g[0].unsqueeze(dim),
               positions = flat ? s.output(1) : s.output(1).unsqueeze(dim);
  return {apply<GatherBackward>({dim, s.input_shape(0)}, values, positions)};
}

void Sort::infer(Inputs in, const Attrs& a, Specs& out) {
  attrs::dim(name, a.dim, in[0]->shape().size());
  out.push_back({in[0]->shape(), in[0]->dtype()});
  out.push_back({in[0]->shape(), kInt64});
}
void Sort::run(Inputs in, const Attrs& a, std::span<Tensor> out) {
  const int dim = static_cast<int>(a.dim);
  sorted(*in[0], out, dim, in[0]->dim() == 0 ? 1 : in[0]->shape()[dim], a.descending);
}

void Topk::infer(Inputs in, const Attrs& a, Specs& out) {
  Shape sizes = in[0]->shape();
  const int dim = attrs::dim(name, a.dim, sizes.size());
  const int64_t size = sizes.empty() ? 1 : sizes[dim];
  check(a.k >= 0 && a.k <= size, "topk: k is ", a.k, ", but dimension ", dim, " has ", size,
        " elements (shape ", sizes, ").");
  if (!sizes.empty()) sizes[dim] = a.k;
  out.push_back({sizes, in[0]->dtype()});
  out.push_back({sizes, kInt64});
}
void Topk::run(Inputs in, const Attrs& a, std::span<Tensor> out) {
  sorted(*in[0], out, static_cast<int>(a.dim), a.k, a.largest);
}

namespace {
void infer_pair(const Tensor& x, const ExtremeAttrs& a, std::string_view op, Specs& out) {
  const Shape sizes = reduced_shape(x, a, op);
  out.push_back({sizes, x.dtype()});
  out.push_back({sizes, kInt64});
}
}  // namespace

void MaxAlong::infer(Inputs in, const Attrs& a, Specs& out) { infer_pair(*in[0], a, name, out); }
void MinAlong::infer(Inputs in, const Attrs& a, Specs& out) { infer_pair(*in[0], a, name, out); }
void MaxAlong::run(Inputs in, const Attrs& a, std::span<Tensor> out) {
  extremes<true>(*in[0], out[0], out[1], static_cast<int>(a.dim));
}
void MinAlong::run(Inputs in, const Attrs& a, std::span<Tensor> out) {
  extremes<false>(*in[0], out[0], out[1], static_cast<int>(a.dim));
}

void Argmax::infer(Inputs in, const Attrs& a, Specs& out) {
  out.push_back({reduced_shape(*in[0], a, name), kInt64});
}
void Argmin::infer(Inputs in, const Attrs& a, Specs& out) {
  out.push_back({reduced_shape(*in[0], a, name), kInt64});
}
void Argmax::run(Inputs in, const Attrs& a, std::span<Tensor> out) {
  extremes<true>(*in[0], {}, out[0], static_cast<int>(a.dim));
}
void Argmin::run(Inputs in, const Attrs& a, std::span<Tensor> out) {
  extremes<false>(*in[0], {}, out[0], static_cast<int>(a.dim));
}

// --- as the user calls them ---

namespace {

TensorPair pair_of(Outputs out) { return {std::move(out[0]), std::move(out[1])}; }

template <class D>
Tensor arg_extreme(const Tensor& x, std::optional<int64_t> dim, bool keepdim) {
  if (dim) return apply<D>({wrap_dim(*dim, x.shape().size(), D::name.data()), keepdim}, x);
  check(x.numel() > 0, D::name, ": a tensor without elements has no extreme (shape ", x.shape(),
        ").");
  const Tensor position = apply<D>({0, false}, x.reshape({-1}));
  return keepdim ? position.reshape(Shape::filled(x.shape().size(), 1)) : position;
}

}  // namespace

TensorPair Tensor::sort(int64_t dim, bool descending) const {
  GRAPNEL_CALL_SITE;
  return pair_of(apply_all<Sort>({wrap_dim(dim, shape().size(), "sort"), descending}, *this));
}
Tensor Tensor::argsort(int64_t dim, bool descending) const {
  GRAPNEL_CALL_SITE;
  return std::get<1>(sort(dim, descending));
}
TensorPair Tensor::topk(int64_t k, int64_t dim, bool largest, bool) const {
  GRAPNEL_CALL_SITE;
  const int at = wrap_dim(dim, shape().size(), "topk");
  return pair_of(apply_all<Topk>({k, at, largest}, *this));
}
TensorPair Tensor::max(int64_t dim, bool keepdim) const {
  GRAPNEL_CALL_SITE;
  return pair_of(apply_all<MaxAlong>({wrap_dim(dim, shape().size(), "max"), keepdim}, *this));
}
TensorPair Tensor::min(int64_t dim, bool keepdim) const {
  GRAPNEL_CALL_SITE;
  return pair_of(apply_all<MinAlong>({wrap_dim(dim, shape().size(), "min"), keepdim}, *this));
}
Tensor Tensor::argmax(std::optional<int64_t> dim, bool keepdim) const {
  GRAPNEL_CALL_SITE;
  return arg_extreme<Argmax>(*this, dim, keepdim);
}
Tensor Tensor::argmin(std::optional<int64_t> dim, bool keepdim) const {
  GRAPNEL_CALL_SITE;
  return arg_extreme<Argmin>(*this, dim, keepdim);
}

TensorPair sort(const Tensor& x, int64_t dim, bool descending) {
  GRAPNEL_CALL_SITE;
  return x.sort(dim, descending);
}
TensorPair topk(const Tensor& x, int64_t k, int64_t dim, bool largest, bool ordered) {
  GRAPNEL_CALL_SITE;
  return x.topk(k, dim, largest, ordered);
}
TensorPair max(const Tensor& x, int64_t dim, bool keepdim) {
  GRAPNEL_CALL_SITE;
  return x.max(dim, keepdim);
}
TensorPair min(const Tensor& x, int64_t dim, bool keepdim) {
  GRAPNEL_CALL_SITE;
  return x.min(dim, keepdim);
}
Tensor argmax(const Tensor& x, std::optional<int64_t> dim, bool keepdim) {
  GRAPNEL_CALL_SITE;
  return x.argmax(dim, keepdim);
}
Tensor argmin(const Tensor& x, std::optional<int64_t> dim, bool keepdim) {
  GRAPNEL_CALL_SITE;
  return x.argmin(dim, keepdim);
}

}  // namespace grapnel
