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

inline Tensor binary_cross_entropy(const Tensor& x, const Tensor& target, const Tensor& weight,
                                   int64_t reduction) {
  return grapnel::binary_cross_entropy(x, target, weight, reduce(reduction));
}
inline Tensor smooth_l1_loss(const Tensor& x, const Tensor& target,
                             int64_t reduction = Reduction::Mean, double beta = 1) {
  return grapnel::nn::functional::smooth_l1_loss(x, target, reduce(reduction), beta);
}
inline Tensor huber_loss(const Tensor& x, const Tensor& target, int64_t reduction = Reduction::Mean,
                         double delta = 1) {
  return grapnel::nn::functional::huber_loss(x, target, reduce(reduction), delta);
}
inline Tensor kl_div(const Tensor& x, const Tensor& target, int64_t reduction = Reduction::Mean,
                     bool log_target = false) {
  return grapnel::nn::functional::kl_div(
      x, target, grapnel::nn::functional::kl_reduce(reduce(reduction)), log_target);
}

// --- what Grapnel has in nn::functional, or as a layer ---
inline Tensor max_pool1d(const Tensor& x, IntArrayRef kernel_size, IntArrayRef stride = {},
                         IntArrayRef padding = {0}, IntArrayRef dilation = {1},
                         bool ceil_mode = false) {
  const auto step = stride.empty() ? std::nullopt : std::optional(stride[0]);
  return grapnel::nn::functional::max_pool1d(x, kernel_size[0], step, padding[0], dilation[0],
                                             ceil_mode);
}
inline Tensor avg_pool1d(const Tensor& x, IntArrayRef kernel_size, IntArrayRef stride = {},
                         IntArrayRef padding = {0}, bool ceil_mode = false,
                         bool count_include_pad = true) {
  const auto step = stride.empty() ? std::nullopt : std::optional(stride[0]);
  return grapnel::nn::functional::avg_pool1d(x, kernel_size[0], step, padding[0], ceil_mode,
                                             count_include_pad);
}
inline Tensor adaptive_avg_pool1d(const Tensor& x, IntArrayRef output_size) {
  return grapnel::nn::functional::adaptive_avg_pool(x, output_size);
}
inline Tensor adaptive_avg_pool2d(const Tensor& x, IntArrayRef output_size) {
  check(output_size.size() == 2, "adaptive_avg_pool2d: the output has a height and a width, got ",
        output_size, ".");
  return grapnel::nn::functional::adaptive_avg_pool(x, output_size);
}
inline Tensor group_norm(const Tensor& x, int64_t num_groups, const Tensor& weight = {},
                         const Tensor& bias = {}, double eps = 1e-5, bool /*cudnn*/ = true) {
  return grapnel::nn::functional::group_norm(x, num_groups, weight, bias, eps);
}
inline Tensor instance_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                            const Tensor& running_mean, const Tensor& running_var,
                            bool use_input_stats, double momentum, double eps, bool /*cudnn*/) {
  return grapnel::nn::functional::instance_norm(x, running_mean, running_var, weight, bias,
                                                use_input_stats, momentum, eps);
}
inline Tensor feature_dropout(const Tensor& x, double p, bool train) {
  return grapnel::nn::functional::feature_dropout(x, p, train);
}
inline Tensor alpha_dropout(const Tensor& x, double p, bool train) {
  return grapnel::nn::functional::alpha_dropout(x, p, train);
}
inline Tensor feature_alpha_dropout(const Tensor& x, double p, bool train) {
  return grapnel::nn::functional::feature_alpha_dropout(x, p, train);
}
inline Tensor upsample_nearest2d(const Tensor& x, IntArrayRef output_size) {
  return grapnel::interpolate(x, output_size, grapnel::Interpolation::nearest);
}
inline Tensor upsample_bilinear2d(const Tensor& x, IntArrayRef output_size, bool align_corners) {
  return grapnel::interpolate(x, output_size, grapnel::Interpolation::bilinear, align_corners);
}
inline Tensor constant_pad_nd(const Tensor& x, IntArrayRef padding, const Scalar& value = 0) {
  return grapnel::pad(x, padding, grapnel::PadMode::constant, value);
}
inline Tensor pad(const Tensor& x, IntArrayRef padding, std::string_view mode,
                  std::optional<double> value = {}) {
  using grapnel::PadMode;
  check(mode == "constant" || mode == "reflect" || mode == "replicate" || mode == "circular",
        "pad: mode is \"constant\", \"reflect\", \"replicate\" or \"circular\", got \"", mode,
        "\".");
  return grapnel::pad(x, padding,
                      mode == "constant"    ? PadMode::constant
                      : mode == "reflect"   ? PadMode::reflect
                      : mode == "replicate" ? PadMode::replicate
                                            : PadMode::circular,
                      value.value_or(0));
}
inline Tensor reflection_pad1d(const Tensor& x, IntArrayRef padding) {
  return grapnel::pad(x, padding, grapnel::PadMode::reflect);
}
inline Tensor reflection_pad2d(const Tensor& x, IntArrayRef padding) {
  return grapnel::pad(x, padding, grapnel::PadMode::reflect);
}
inline Tensor replication_pad1d(const Tensor& x, IntArrayRef padding) {
  return grapnel::pad(x, padding, grapnel::PadMode::replicate);
}
inline Tensor replication_pad2d(const Tensor& x, IntArrayRef padding) {
  return grapnel::pad(x, padding, grapnel::PadMode::replicate);
}

// --- methods that LibTorch also has as functions ---
#define GRAPNEL_DECLARE(name, Def) \
  inline Tensor name##_(Tensor x) { return x.name##_(); }
GRAPNEL_UNARY_OPS(GRAPNEL_DECLARE)
#undef GRAPNEL_DECLARE
inline Tensor softmax(const Tensor& x, int64_t dim, ScalarType dtype) {
  return x.softmax(dim, dtype);
}
inline Tensor log_softmax(const Tensor& x, int64_t dim, ScalarType dtype) {
  return x.log_softmax(dim, dtype);
}
inline std::vector<Tensor> split(const Tensor& x, IntArrayRef sizes, int64_t dim = 0) {
  return x.split_with_sizes(sizes, dim);
}
inline std::vector<Tensor> split_with_sizes(const Tensor& x, IntArrayRef sizes, int64_t dim = 0) {
  return x.split_with_sizes(sizes, dim);
}
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
inline Tensor multiply(const Tensor& a, const Tensor& b) { return a * b; }
inline Tensor multiply(const Tensor& a, const Scalar& b) { return a * b; }
inline Tensor divide(const Tensor& a, const Tensor& b) { return a / b; }
inline Tensor divide(const Tensor& a, const Scalar& b) { return a / b; }
inline Tensor true_divide(const Tensor& a, const Tensor& b) { return a / b; }
inline Tensor subtract(const Tensor& a, const Tensor& b) { return a - b; }
inline Tensor negative(const Tensor& x) { return -x; }
inline Tensor absolute(const Tensor& x) { return x.abs(); }
inline Tensor clip(const Tensor& x, const std::optional<Scalar>& min = {},
                   const std::optional<Scalar>& max = {}) {
  return x.clamp(min, max);
}
inline Tensor greater(const Tensor& a, const Tensor& b) { return a > b; }
inline Tensor less(const Tensor& a, const Tensor& b) { return a < b; }
inline Tensor ger(const Tensor& a, const Tensor& b) { return a.outer(b); }
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
  X(argsort) X(is_floating_point) X(numel) X(concat) X(baddbmm) X(batch_norm)                \
  X(binary_cross_entropy) X(smooth_l1_loss) X(huber_loss) X(kl_div) X(max_pool1d)              \
  X(avg_pool1d) X(adaptive_avg_pool1d) X(adaptive_avg_pool2d) X(group_norm) X(instance_norm)   \
  X(feature_dropout) X(alpha_dropout) X(feature_alpha_dropout) X(upsample_nearest2d)           \
  X(upsample_bilinear2d) X(constant_pad_nd) X(pad) X(reflection_pad1d) X(reflection_pad2d)     \
  X(replication_pad1d) X(replication_pad2d) X(softmax) X(log_softmax) X(split)                 \
  X(split_with_sizes) X(multiply) X(divide) X(true_divide) X(subtract) X(negative) X(absolute) \
  X(clip) X(greater) X(less) X(ger)
// clang-format on
#define GRAPNEL_COMPAT_USING_ADAPTED(name) using ::grapnel::compat::name;
#define GRAPNEL_COMPAT_USING_INPLACE(name, Def) using ::grapnel::compat::name##_;

namespace at {

GRAPNEL_COMPAT_NAMES
GRAPNEL_COMPAT_ADAPTED(GRAPNEL_COMPAT_USING_ADAPTED)
GRAPNEL_UNARY_OPS(GRAPNEL_COMPAT_USING_INPLACE)
namespace indexing = grapnel::indexing;
namespace Reduction = grapnel::compat::Reduction;
using c10::ArrayRef;
using c10::InferenceMode;
using c10::kCUDA;
using c10::Layout;

}  // namespace at
