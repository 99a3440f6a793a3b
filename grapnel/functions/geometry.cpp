#include "grapnel/functions/geometry.h"

#include <cmath>

#include "grapnel/base/checked.h"
#include "grapnel/ops/op.h"
#include "grapnel/ops/op_site.h"

namespace grapnel {

Tensor cosine_similarity(const Tensor& a, const Tensor& b, int64_t dim, double eps) {
  GRAPNEL_CALL_SITE;
  const Tensor both[] = {a, b};
  const std::vector<Tensor> same = broadcast_tensors(both);
  const auto unit = [&](const Tensor& t) {
    return t / clamp(norm(t, 2, {dim}, /*keepdim=*/true), eps, {});
  };
  return sum(unit(same[0]) * unit(same[1]), {dim});
}

Tensor pairwise_distance(const Tensor& a, const Tensor& b, double p, double eps, bool keepdim) {
  GRAPNEL_CALL_SITE;
  return norm(a - b + eps, p, {-1}, keepdim);
}

Tensor cdist(const Tensor& a, const Tensor& b, double p) {
  GRAPNEL_CALL_SITE;
  check(a.dim() >= 2 && b.dim() >= 2 && a.size(-1) == b.size(-1),
        "cdist: both must be rows of vectors of one size, got shapes ", a.shape(), " and ",
        b.shape(), ".");
  check(p >= 0, "cdist: p must not be negative, got ", p, ".");
  return norm(a.unsqueeze(-2) - b.unsqueeze(-3), p, {-1});
}

Tensor cross(const Tensor& a, const Tensor& b, int64_t dim) {
  GRAPNEL_CALL_SITE;
  check(a.dim() > 0 && a.dim() == b.dim() && a.size(dim) == 3 && b.size(dim) == 3,
        "cross: both must have size 3 in dimension ", dim, ", got shapes ", a.shape(), " and ",
        b.shape(), ".");
  const auto turned = [&](const Tensor& t, int64_t by) { return t.roll(by, dim); };
  return turned(a, -1) * turned(b, -2) - turned(a, -2) * turned(b, -1);
}

Tensor tensordot(const Tensor& a, const Tensor& b, IntArrayRef dims_self, IntArrayRef dims_other) {
  GRAPNEL_CALL_SITE;
  check(dims_self.size() == dims_other.size(),
        "tensordot: as many dimensions must be named of both, got ", dims_self, " and ", dims_other,
        ".");
  const auto rest_and_named = [](const Tensor& t, IntArrayRef named, Shape& rest, Shape& order) {
    std::vector<bool> is_named(static_cast<size_t>(t.dim()));
    for (const int64_t d : named) {
      const auto at = static_cast<size_t>(wrap_dim(d, static_cast<int>(t.dim()), "tensordot"));
      check(!is_named[at], "tensordot: dimension ", d, " is named twice in ", named, ".");
      is_named[at] = true;
    }
    for (int64_t d = 0; d < t.dim(); ++d)
      if (!is_named[static_cast<size_t>(d)]) rest.push_back(t.size(d)), order.push_back(d);
  };
  Shape rest_a, rest_b, order_a, order_b;
  rest_and_named(a, dims_self, rest_a, order_a);
  rest_and_named(b, dims_other, rest_b, order_b);
  Shape front_b;
  int64_t summed = 1;
  for (size_t i = 0; i < dims_self.size(); ++i) {
    check(a.size(dims_self[i]) == b.size(dims_other[i]), "tensordot: dimension ", dims_self[i],
          " of a and ", dims_other[i], " of b differ: ", a.shape(), " and ", b.shape(), ".");
    order_a.push_back(wrap_dim(dims_self[i], static_cast<int>(a.dim()), "tensordot"));
    front_b.push_back(wrap_dim(dims_other[i], static_cast<int>(b.dim()), "tensordot"));
    summed = checked_mul(summed, a.size(dims_self[i]), "tensordot");
  }
  for (const int64_t d : order_b) front_b.push_back(d);
  int64_t rows = 1, columns = 1;
  for (const int64_t n : rest_a) rows = checked_mul(rows, n, "tensordot");
  for (const int64_t n : rest_b) columns = checked_mul(columns, n, "tensordot");
  Shape out = rest_a;
  for (const int64_t n : rest_b) out.push_back(n);
  return mm(a.permute(order_a).reshape({rows, summed}),
            b.permute(front_b).reshape({summed, columns}))
      .reshape(out);
}
Tensor tensordot(const Tensor& a, const Tensor& b, int64_t dims) {
  GRAPNEL_CALL_SITE;
  check(dims >= 0 && dims <= a.dim() && dims <= b.dim(), "tensordot: ", dims,
        " dimensions are not in both ", a.shape(), " and ", b.shape(), ".");
  std::vector<int64_t> last, first;
  for (int64_t i = 0; i < dims; ++i) last.push_back(a.dim() - dims + i), first.push_back(i);
  return tensordot(a, b, last, first);
}

}  // namespace grapnel
