#include "grapnel/functions/arranging.h"

#include <algorithm>
#include <cstdlib>

#include "grapnel/base/checked.h"
#include "grapnel/functions/factories.h"
#include "grapnel/functions/padding.h"
#include "grapnel/ops/op.h"
#include "grapnel/ops/op_site.h"
#include "grapnel/ops/vectors.h"

namespace grapnel {

Tensor swapaxes(const Tensor& x, int64_t axis0, int64_t axis1) {
  GRAPNEL_CALL_SITE;
  return x.transpose(axis0, axis1);
}
Tensor swapdims(const Tensor& x, int64_t dim0, int64_t dim1) {
  GRAPNEL_CALL_SITE;
  return x.transpose(dim0, dim1);
}
Tensor moveaxis(const Tensor& x, int64_t source, int64_t destination) {
  GRAPNEL_CALL_SITE;
  return x.movedim(source, destination);
}

Tensor tile(const Tensor& x, IntArrayRef dims) {
  GRAPNEL_CALL_SITE;
  std::vector<int64_t> counts(dims.begin(), dims.end());
  while (static_cast<int64_t>(counts.size()) < x.dim()) counts.insert(counts.begin(), 1);
  return x.repeat(counts);
}

Tensor repeat_interleave(const Tensor& x, int64_t repeats, std::optional<int64_t> dim) {
  GRAPNEL_CALL_SITE;
  check(repeats >= 0, "repeat_interleave: a count must not be negative, got ", repeats, ".");
  if (!dim) return repeat_interleave(x.reshape({-1}), repeats, 0);
  const int at = wrap_dim(*dim, static_cast<int>(x.dim()), "repeat_interleave");
  if (x.dim() == 0) return repeat_interleave(x.reshape({1}), repeats, 0);
  Shape wide = x.shape(), out = x.shape();
  wide.insert(at + 1, repeats);
  out[at] = checked_mul(out[at], repeats, "repeat_interleave");
  return x.unsqueeze(at + 1).expand(wide).reshape(out);
}

Tensor repeat_interleave(const Tensor& x, const Tensor& repeats, std::optional<int64_t> dim) {
  GRAPNEL_CALL_SITE;
  if (!dim) return repeat_interleave(x.reshape({-1}), repeats, 0);
  const int at = wrap_dim(*dim, static_cast<int>(x.dim()), "repeat_interleave");
  check(
      x.dim() > 0 && !is_floating(repeats.dtype()) && repeats.dim() <= 1 &&
          (repeats.numel() == 1 || repeats.numel() == x.size(at)),
      "repeat_interleave: repeats must be whole numbers, one or one for each of the elements, got ",
      repeats.dtype(), " of shape ", repeats.shape(), " for x of shape ", x.shape(), ".");
  if (repeats.numel() == 1) return repeat_interleave(x, repeats.item<int64_t>(), at);
  std::vector<int64_t> index;
  const std::vector<int64_t> counts = to_vector<int64_t>(repeats.to(kInt64));
  for (size_t i = 0; i < counts.size(); ++i) {
    check(counts[i] >= 0, "repeat_interleave: a count must not be negative, got ", counts[i], ".");
    index.insert(index.end(), static_cast<size_t>(counts[i]), static_cast<int64_t>(i));
  }
  return x.index_select(at, from_vector(index).to(x.device()));
}

Tensor diag_embed(const Tensor& x, int64_t offset) {
  GRAPNEL_CALL_SITE;
  check(x.dim() > 0, "diag_embed: a 0-dimensional tensor has no diagonal to fill.");
  // Row i holds element i in the column i + offset (or the other way round).
  const int64_t n = x.size(-1), columns = std::max<int64_t>(0, offset),
                rows = offset < 0 ? checked_sub(int64_t{0}, offset, "diag_embed") : 0,
                size = checked_add(n, rows + columns, "diag_embed");
  const Tensor padded = pad(x, {rows, columns});
  const Tensor at = arange(size, TensorOptions(x.device()));
  const Tensor on_diagonal = at.unsqueeze(0) == at.unsqueeze(1) + offset;
  Shape spread = x.shape();
  spread[spread.size() - 1] = size;
  spread.push_back(size);
  return where(on_diagonal, padded.unsqueeze(-1).expand(spread), 0);
}

Tensor diag(const Tensor& x, int64_t diagonal) {
  GRAPNEL_CALL_SITE;
  check(x.dim() == 1 || x.dim() == 2, "diag: a vector or a matrix is expected, got shape ",
        x.shape(), ".");
  return x.dim() == 1 ? diag_embed(x, diagonal) : x.diagonal(diagonal).clone();
}

std::vector<Tensor> meshgrid(TensorList tensors, std::string_view indexing) {
  GRAPNEL_CALL_SITE;
  check(indexing == "ij" || indexing == "xy", "meshgrid: indexing is \"ij\" or \"xy\", got \"",
        indexing, "\".");
  check(!tensors.empty(), "meshgrid: the list of tensors is empty; at least one is needed.");
  Shape sizes;
  for (const Tensor& t : tensors) {
    check(t.dim() <= 1, "meshgrid: vectors are expected, got shape ", t.shape(), ".");
    sizes.push_back(t.numel());
  }
  const bool swapped = indexing == "xy" && tensors.size() > 1;
  if (swapped) std::swap(sizes[0], sizes[1]);
  std::vector<Tensor> out;
  for (size_t i = 0; i < tensors.size(); ++i) {
    Shape column = Shape::filled(sizes.size(), 1);
    column[static_cast<int>(swapped && i < 2 ? 1 - i : i)] = tensors[i].numel();
    out.push_back(tensors[i].reshape(column).expand(sizes));
  }
  return out;
}

std::vector<Tensor> meshgrid(std::initializer_list<Tensor> tensors, std::string_view indexing) {
  GRAPNEL_CALL_SITE;
  return meshgrid(TensorList(tensors.begin(), tensors.size()), indexing);
}

Tensor unfold(const Tensor& x, int64_t dim, int64_t size, int64_t step) {
  GRAPNEL_CALL_SITE;
  const int at = wrap_dim(dim, static_cast<int>(x.dim()), "unfold");
  const int64_t length = x.dim() == 0 ? 1 : x.size(at);
  check(size >= 0 && size <= length && step > 0, "unfold: windows of ", size, " elements every ",
        step, " do not fit dimension ", dim, " of shape ", x.shape(), ".");
  const Tensor rows = x.dim() == 0 ? x.reshape({1}) : x;
  Shape sizes = rows.shape();
  Shape strides;
  for (const int64_t s : rows.strides()) strides.push_back(s);
  sizes[at] = (length - size) / step + 1;
  sizes.push_back(size);
  strides.push_back(strides[at]);
  strides[at] *= std::min(step, std::max<int64_t>(1, length));  // a longer step is never taken
  return rows.as_strided(sizes, strides, rows.storage_offset());
}

Tensor vstack(TensorList tensors) {
  GRAPNEL_CALL_SITE;
  std::vector<Tensor> rows;
  for (const Tensor& t : tensors) rows.push_back(t.dim() < 2 ? t.reshape({1, -1}) : t);
  return cat(rows, 0);
}
Tensor hstack(TensorList tensors) {
  GRAPNEL_CALL_SITE;
  std::vector<Tensor> columns;
  for (const Tensor& t : tensors) columns.push_back(t.dim() == 0 ? t.reshape({1}) : t);
  return cat(columns, !columns.empty() && columns[0].dim() > 1 ? 1 : 0);
}

Tensor vstack(std::initializer_list<Tensor> tensors) {
  GRAPNEL_CALL_SITE;
  return vstack(TensorList(tensors.begin(), tensors.size()));
}
Tensor hstack(std::initializer_list<Tensor> tensors) {
  GRAPNEL_CALL_SITE;
  return hstack(TensorList(tensors.begin(), tensors.size()));
}

Tensor Tensor::tile(IntArrayRef dims) const {
  GRAPNEL_CALL_SITE;
  return grapnel::tile(*this, dims);
}
Tensor Tensor::repeat_interleave(int64_t repeats, std::optional<int64_t> dim) const {
  GRAPNEL_CALL_SITE;
  return grapnel::repeat_interleave(*this, repeats, dim);
}
Tensor Tensor::repeat_interleave(const Tensor& repeats, std::optional<int64_t> dim) const {
  GRAPNEL_CALL_SITE;
  return grapnel::repeat_interleave(*this, repeats, dim);
}
Tensor Tensor::unfold(int64_t dim, int64_t size, int64_t step) const {
  GRAPNEL_CALL_SITE;
  return grapnel::unfold(*this, dim, size, step);
}
Tensor Tensor::diag(int64_t diagonal) const {
  GRAPNEL_CALL_SITE;
  return grapnel::diag(*this, diagonal);
}

}  // namespace grapnel
