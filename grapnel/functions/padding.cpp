/// Padding as a choice of positions: every mode but that of constants picks elements of x itself.
#include "grapnel/functions/padding.h"

#include <algorithm>

#include "grapnel/base/checked.h"
#include "grapnel/functions/factories.h"
#include "grapnel/ops/op_site.h"
#include "grapnel/ops/vectors.h"

namespace grapnel {

namespace {

/// Which element of [0, size) stands at `place` outside of it.
int64_t source_of(int64_t place, int64_t size, PadMode mode) {
  if (mode == PadMode::replicate) return std::clamp<int64_t>(place, 0, size - 1);
  if (mode == PadMode::circular) return (place + size) % size;
  return place < 0 ? -place : place >= size ? 2 * (size - 1) - place : place;
}

/// `x` with elements of itself before and after it along `dim`.
Tensor pad_from_itself(const Tensor& x, int64_t dim, int64_t before, int64_t after, PadMode mode) {
  const int64_t size = x.size(dim), padding = checked_add(before, after, "pad");
  const int64_t most = mode == PadMode::reflect    ? size - 1
                       : mode == PadMode::circular ? size
                                                   : padding;
  check(size > 0 && std::max(before, after) <= most, "pad: padding by ", std::max(before, after),
        " needs more than the ", size, " elements that x has in dimension ", dim, " (shape ",
        x.shape(), ").");
  std::vector<int64_t> index;
  index.reserve(static_cast<size_t>(checked_add(size, padding, "pad")));
  for (int64_t i = -before; i < size + after; ++i) index.push_back(source_of(i, size, mode));
  return x.index_select(dim, from_vector(index).to(x.device()));
}

/// `x` with `value` before and after it along `dim`.
Tensor pad_with_value(const Tensor& x, int64_t dim, int64_t before, int64_t after,
                      const Scalar& value) {
  std::vector<Tensor> parts;
  const auto block = [&](int64_t count) {
    if (count == 0) return;
    Shape sizes = x.shape();
    sizes[static_cast<int>(dim)] = count;
    parts.push_back(full({}, value, TensorOptions(x.dtype()).device(x.device())).expand(sizes));
  };
  block(before);
  parts.push_back(x);
  block(after);
  return cat(parts, dim);
}

}  // namespace

Tensor pad(const Tensor& x, IntArrayRef padding, PadMode mode, const Scalar& value) {
  GRAPNEL_CALL_SITE;
  check(padding.size() % 2 == 0 && static_cast<int64_t>(padding.size()) <= 2 * x.dim(),
        "pad: padding holds pairs [before, after], the last dimension first, and at most one for "
        "each ",
        "of the ", x.dim(), " dimensions; got ", padding, ".");
  Tensor out = x;
  for (size_t i = 0; i < padding.size(); i += 2) {
    const int64_t dim = x.dim() - 1 - static_cast<int64_t>(i / 2);
    const int64_t length = x.size(dim), before = std::max<int64_t>(0, padding[i]),
                  after = std::max<int64_t>(0, padding[i + 1]);
    const bool fits = padding[i] >= -length && padding[i + 1] >= -length;
    const int64_t cut = fits ? before - padding[i] : 0,
                  left = fits ? length - cut - (after - padding[i + 1]) : -1;
    check(left >= 0, "pad: [", padding[i], ", ", padding[i + 1], "] cuts off more than the ",
          length, " elements of dimension ", dim, ".");
    if (left < length) out = out.narrow(dim, cut, left);
    if (before == 0 && after == 0) continue;
    out = mode == PadMode::constant ? pad_with_value(out, dim, before, after, value)
                                    : pad_from_itself(out, dim, before, after, mode);
  }
  // The result is not x, even where nothing was added.
  return out.is_same(x) ? x.clone() : out;
}

}  // namespace grapnel
