/// Products as users call them: matmul and its special cases, addmm and linear.
#include "grapnel/ops/autocast.h"
#include "grapnel/ops/defs/matmul.h"
#include "grapnel/ops/op_site.h"
#include "grapnel/ops/op_table.h"

namespace grapnel {

namespace {

/// Whether the matrices of `t` lie in memory column by column.
bool by_columns(const Tensor& t) {
  return t.dim() > 1 && t.size(-1) > 1 && t.size(-2) > 1 && t.stride(-2) == 1 &&
         t.stride(-1) >= t.size(-2);
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b) {
  GRAPNEL_CALL_SITE;
  if (autocast::lowers(a, b)) [[unlikely]]
    return matmul(autocast::lower(a), autocast::lower(b));
  return apply<MatMul>({.a_by_columns = by_columns(a), .b_by_columns = by_columns(b)}, a, b);
}
Tensor mm(const Tensor& a, const Tensor& b) {
  GRAPNEL_CALL_SITE;
  check(a.dim() == 2 && b.dim() == 2, "mm: needs two matrices, got shapes ", a.shape(), " and ",
        b.shape(), ".\nFor vectors and batches use matmul.");
  return matmul(a, b);
}
Tensor bmm(const Tensor& a, const Tensor& b) {
  GRAPNEL_CALL_SITE;
  check(a.dim() == 3 && b.dim() == 3 && a.size(0) == b.size(0),
        "bmm: needs two batches of equally many matrices, got shapes ", a.shape(), " and ",
        b.shape(), ".\nFor broadcasting use matmul.");
  return matmul(a, b);
}
Tensor mv(const Tensor& a, const Tensor& vector) {
  GRAPNEL_CALL_SITE;
  check(a.dim() == 2 && vector.dim() == 1, "mv: needs a matrix and a vector, got shapes ",
        a.shape(), " and ", vector.shape(), ".");
  return matmul(a, vector);
}
Tensor dot(const Tensor& a, const Tensor& b) {
  GRAPNEL_CALL_SITE;
  check(a.dim() == 1 && b.dim() == 1, "dot: needs two vectors, got shapes ", a.shape(), " and ",
        b.shape(), ".\nFor matrices use matmul.");
  return matmul(a, b);
}
Tensor outer(const Tensor& a, const Tensor& b) {
  GRAPNEL_CALL_SITE;
  check(a.dim() == 1 && b.dim() == 1, "outer: needs two vectors, got shapes ", a.shape(), " and ",
        b.shape(), ".");
  return a.unsqueeze(1) * b;
}
Tensor addmm(const Tensor& x, const Tensor& a, const Tensor& b, const Scalar& beta,
             const Scalar& alpha) {
  GRAPNEL_CALL_SITE;
  if (autocast::lowers(a, b)) [[unlikely]]
    return addmm(autocast::lower(x), autocast::lower(a), autocast::lower(b), beta, alpha);
  return apply<Addmm>({.beta = beta.to_double(),
                       .alpha = alpha.to_double(),
                       .scaled = beta.to_double() != 1 || alpha.to_double() != 1,
                       .a_by_columns = by_columns(a),
                       .b_by_columns = by_columns(b)},
                      x, a, b);
}
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  GRAPNEL_CALL_SITE;
  check(weight.dim() == 2, "linear: weight must be [out_features, in_features], got shape ",
        weight.shape(), ".");
  check(x.dim() > 0 && x.size(-1) == weight.size(1), "linear: the last dimension of x must be ",
        weight.size(1), " (weight is ", weight.shape(),
        " = [out_features, in_features]), but x is ", x.shape(), ".");
  const Tensor turned = weight.t();
  if (!bias.defined()) return matmul(x, turned);
  if (x.dim() == 2) return addmm(bias, x, turned);
  Shape sizes = x.shape();
  sizes[sizes.size() - 1] = weight.size(0);
  const Tensor rows = x.dim() == 1 ? x.unsqueeze(0) : x.flatten(0, -2);
  return addmm(bias, rows, turned).view(sizes);
}

Tensor Tensor::matmul(const Tensor& other) const {
  GRAPNEL_CALL_SITE;
  return grapnel::matmul(*this, other);
}
Tensor Tensor::mm(const Tensor& other) const {
  GRAPNEL_CALL_SITE;
  return grapnel::mm(*this, other);
}
Tensor Tensor::bmm(const Tensor& other) const {
  GRAPNEL_CALL_SITE;
  return grapnel::bmm(*this, other);
}
Tensor Tensor::mv(const Tensor& vector) const {
  GRAPNEL_CALL_SITE;
  return grapnel::mv(*this, vector);
}
Tensor Tensor::dot(const Tensor& other) const {
  GRAPNEL_CALL_SITE;
  return grapnel::dot(*this, other);
}
Tensor Tensor::outer(const Tensor& other) const {
  GRAPNEL_CALL_SITE;
  return grapnel::outer(*this, other);
}
Tensor Tensor::addmm(const Tensor& a, const Tensor& b, const Scalar& beta,
                     const Scalar& alpha) const {
  GRAPNEL_CALL_SITE;
  return grapnel::addmm(*this, a, b, beta, alpha);
}

}  // namespace grapnel
