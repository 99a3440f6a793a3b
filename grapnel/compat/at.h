/// Namespace at: tensors and functions, and the few that LibTorch shapes differently.
#pragma once

#include <initializer_list>

#include "grapnel/compat/c10.h"

namespace grapnel::compat {

namespace Reduction {
/// How losses are told to reduce when they are called as plain functions.
enum Reduction { None, Mean, Sum, END };
}  // namespace Reduction

inline Reduce reduce(int64_t reduction) {
  check(reduction >= Reduction::None && reduction < Reduction::END,
        "reduction must be 0 (none), 1 (mean) or 2 (sum), got ", reduction, ".");
  return static_cast<Reduce>(reduction);
}

// --- losses, with the reduction as a number ---
inline Tensor mse_loss(const Tensor& x, const Tensor& target, int64_t reduction) {
  return grapnel::mse_loss(x, target, reduce(reduction));
}
inline Tensor l1_loss(const Tensor& x, const Tensor& target, int64_t reduction) {
  return grapnel::l1_loss(x, target, reduce(reduction));
}
inline Tensor nll_loss(const Tensor& x, const Tensor& target, const Tensor& weight,
                       int64_t reduction, int64_t ignore_index = -100) {
  return grapnel::nll_loss(x, target, weight, reduce(reduction), ignore_index);
}
inline Tensor cross_entropy_loss(const Tensor& x, const Tensor& target, const Tensor& weight = {},
                                 int64_t reduction = Reduction::Mean, int64_t ignore_index = -100,
                                 double label_smoothing = 0) {
  return grapnel::cross_entropy(x, target, weight, reduce(reduction), ignore_index,
                                label_smoothing);
}
inline Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& target,
                                               const Tensor& weight, const Tensor& pos_weight,
                                               int64_t reduction) {
  return grapnel::binary_cross_entropy_with_logits(x, target, weight, pos_weight,
                                                   reduce(reduction));
}

// --- methods that LibTorch also has as functions ---
inline Tensor t(const Tensor& x) { return x.t(); }
inline Tensor detach(const Tensor& x) { return x.detach(); }
inline Tensor narrow(const Tensor& x, int64_t dim, int64_t start, int64_t length) {
  return x.narrow(dim, start, length);
}
inline Tensor select(const Tensor& x, int64_t dim, int64_t index) { return x.select(dim, index); }
inline Tensor movedim(const Tensor& x, int64_t source, int64_t destination) {
  return x.movedim(source, destination);
}
inline Tensor unflatten(const Tensor& x, int64_t dim, IntArrayRef sizes) {
  return x.unflatten(dim, sizes);
}
inline Tensor roll(const Tensor& x, int64_t shift, int64_t dim) { return x.roll(shift, dim); }
inline Tensor clamp_min(const Tensor& x, const Scalar& min) { return x.clamp_min(min); }
inline Tensor clamp_max(const Tensor& x, const Scalar& max) { return x.clamp_max(max); }
inline Tensor argsort(const Tensor& x, int64_t dim = -1, bool descending = false) {
  return x.argsort(dim, descending);
}
inline bool is_floating_point(const Tensor& x) { return x.is_floating_point(); }
inline int64_t numel(const Tensor& x) { return x.numel(); }

// --- other spellings ---
inline Tensor concat(TensorList tensors, int64_t dim = 0) { return grapnel::cat(tensors, dim); }
inline Tensor concat(std::initializer_list<Tensor> tensors, int64_t dim = 0) {
  return grapnel::cat(tensors, dim);
}
inline Tensor baddbmm(const Tensor& x, const Tensor& a, const Tensor& b, const Scalar& beta = 1,
                      const Scalar& alpha = 1) {
  return beta * x + alpha * grapnel::bmm(a, b);
}
inline Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                         const Tensor& running_mean, const Tensor& running_var, bool training,
                         double momentum, double eps, bool /*cudnn_enabled*/) {
  return grapnel::batch_norm(x, weight, bias, running_mean, running_var, training, momentum, eps);
}

}  // namespace grapnel::compat

// X(name) for the functions above; at and torch declare them beside Grapnel's own of the same name.
// clang-format off
#define GRAPNEL_COMPAT_ADAPTED(X)                                                              \
  X(mse_loss) X(l1_loss) X(nll_loss) X(cross_entropy_loss) X(binary_cross_entropy_with_logits) \
  X(t) X(detach) X(narrow) X(select) X(movedim) X(unflatten) X(roll) X(clamp_min) X(clamp_max) \
  X(argsort) X(is_floating_point) X(numel) X(concat) X(baddbmm) X(batch_norm)
// clang-format on
#define GRAPNEL_COMPAT_USING_ADAPTED(name) using ::grapnel::compat::name;

namespace at {

GRAPNEL_COMPAT_NAMES
GRAPNEL_COMPAT_ADAPTED(GRAPNEL_COMPAT_USING_ADAPTED)
namespace indexing = grapnel::indexing;
namespace Reduction = grapnel::compat::Reduction;
using c10::ArrayRef;
using c10::InferenceMode;
using c10::kCUDA;

}  // namespace at
