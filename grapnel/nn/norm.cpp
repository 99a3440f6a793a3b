#include "grapnel/nn/norm.h"

#include "grapnel/autograd/grad_mode.h"
#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"
#include "grapnel/nn/functional.h"
#include "grapnel/nn/init.h"

namespace grapnel::nn {

namespace {

/// Ones and zeros: normalised values as they are.
void start_affine(const Tensor& weight, const Tensor& bias) {
  if (weight.defined()) init::ones_(weight);
  if (bias.defined()) init::zeros_(bias);
}
void check_shape(const std::vector<int64_t>& shape, const char* what) {
  check(!shape.empty(), what, ": normalized_shape must name at least one dimension.");
  for (const int64_t n : shape)
    check(n > 0, what, ": sizes must be positive, got normalized_shape ", IntArrayRef(shape), ".");
}

/// Parameters and buffers of a norm that may be affine and may track statistics.
void register_state(auto& norm) {
  const int64_t n = norm.options.num_features();
  const bool affine = norm.options.affine(), tracks = norm.options.track_running_stats();
  norm.weight = norm.register_parameter("weight", affine ? empty({n}) : Tensor());
  norm.bias = norm.register_parameter("bias", affine ? empty({n}) : Tensor());
  norm.running_mean = norm.register_buffer("running_mean", tracks ? zeros({n}) : Tensor());
  norm.running_var = norm.register_buffer("running_var", tracks ? ones({n}) : Tensor());
  norm.num_batches_tracked =
      norm.register_buffer("num_batches_tracked", tracks ? zeros({}, kInt64) : Tensor());
}
/// As if nothing had been seen yet.
void start_statistics(auto& norm) {
  if (!norm.running_mean.defined()) return;
  init::zeros_(norm.running_mean);
  init::ones_(norm.running_var);
  init::zeros_(norm.num_batches_tracked);
}

}  // namespace

// --- BatchNorm ---

template <class Derived>
void BatchNormImpl<Derived>::start() {
  check(options.num_features() > 0, Derived::title, ": num_features must be positive, got ",
        options.num_features(), ".");
  BatchNormImpl::reset();
}

template <class Derived>
void BatchNormImpl<Derived>::reset() {
  register_state(*this);
  reset_parameters();
}

template <class Derived>
void BatchNormImpl<Derived>::reset_running_stats() {
  start_statistics(*this);
}

template <class Derived>
void BatchNormImpl<Derived>::reset_parameters() {
  reset_running_stats();
  start_affine(weight, bias);
}

template <class Derived>
void BatchNormImpl<Derived>::pretty_print(std::ostream& stream) const {
  stream << "grapnel::nn::" << Derived::title << '(' << options.num_features()
         << ", eps=" << options.eps() << ", momentum=";
  if (options.momentum()) stream << *options.momentum();
  else stream << "none";
  stream << ", affine=" << (options.affine() ? "true" : "false")
         << ", track_running_stats=" << (options.track_running_stats() ? "true" : "false") << ')';
}

template <class Derived>
Tensor BatchNormImpl<Derived>::forward(const Tensor& input) {
  if (!(input.dim() >= Derived::least_dims && input.dim() <= Derived::most_dims)) [[unlikely]]
    fail(Derived::title, ": the input must have ", Derived::least_dims,
         Derived::most_dims > Derived::least_dims ? str(" or ", Derived::most_dims) : std::string(),
         " dimensions, got shape ", input.shape(), ".");
  const bool training = this->is_training();
  double momentum = options.momentum().value_or(0);
  if (training && num_batches_tracked.defined()) {
    NoGradGuard no_grad;
    num_batches_tracked.add_(1);
    if (!options.momentum()) momentum = 1 / num_batches_tracked.template item<double>();
  }
  return batch_norm(input, weight, bias, running_mean, running_var,
                    training || !running_mean.defined(), momentum, options.eps());
}

template class BatchNormImpl<BatchNorm1dImpl>;
template class BatchNormImpl<BatchNorm2dImpl>;
template class BatchNormImpl<BatchNorm3dImpl>;

// --- InstanceNorm ---

template <class Derived>
InstanceNormImpl<Derived>::InstanceNormImpl(const InstanceNormOptions& options_)
    : options(options_) {
  check(options.num_features() > 0, Derived::title, ": num_features must be positive, got ",
        options.num_features(), ".");
  InstanceNormImpl::reset();
}
template <class Derived>
void InstanceNormImpl<Derived>::reset() {
  register_state(*this);
  reset_parameters();
}
template <class Derived>
void InstanceNormImpl<Derived>::reset_running_stats() {
  start_statistics(*this);
}
template <class Derived>
void InstanceNormImpl<Derived>::reset_parameters() {
  reset_running_stats();
  start_affine(weight, bias);
}
template <class Derived>
void InstanceNormImpl<Derived>::pretty_print(std::ostream& stream) const {
  stream << "grapnel::nn::" << Derived::title << '(' << options.num_features()
         << ", eps=" << options.eps() << ", momentum=" << options.momentum()
         << ", affine=" << (options.affine() ? "true" : "false")
         << ", track_running_stats=" << (options.track_running_stats() ? "true" : "false") << ')';
}
template <class Derived>
Tensor InstanceNormImpl<Derived>::forward(const Tensor& input) {
  if (input.dim() == Derived::dims + 1) return forward(input.unsqueeze(0)).squeeze(0);
  check(input.dim() == Derived::dims + 2 && input.size(1) == options.num_features(), Derived::title,
        ": the input must have ", Derived::dims + 2, " dimensions and ", options.num_features(),
        " channels, got shape ", input.shape(), ".");
  return functional::instance_norm(input, running_mean, running_var, weight, bias,
                                   this->is_training() || !running_mean.defined(),
                                   options.momentum(), options.eps());
}

template class InstanceNormImpl<InstanceNorm1dImpl>;
template class InstanceNormImpl<InstanceNorm2dImpl>;
template class InstanceNormImpl<InstanceNorm3dImpl>;

// --- LayerNorm ---

LayerNormImpl::LayerNormImpl(const LayerNormOptions& options_) : options(options_) {
  check_shape(options.normalized_shape(), "LayerNorm");
  LayerNormImpl::reset();
}
void LayerNormImpl::reset() {
  weight = register_parameter("weight", options.elementwise_affine()
                                            ? grapnel::empty(options.normalized_shape())
                                            : Tensor());
  bias = register_parameter("bias", options.elementwise_affine() && options.bias()
                                        ? grapnel::empty(options.normalized_shape())
                                        : Tensor());
  reset_parameters();
}
void LayerNormImpl::reset_parameters() { start_affine(weight, bias); }
void LayerNormImpl::pretty_print(std::ostream& stream) const {
  stream << "grapnel::nn::LayerNorm(" << IntArrayRef(options.normalized_shape())
         << ", eps=" << options.eps()
         << ", elementwise_affine=" << (options.elementwise_affine() ? "true" : "false") << ')';
}
Tensor LayerNormImpl::forward(const Tensor& input) {
  return layer_norm(input, options.normalized_shape(), weight, bias, options.eps());
}

// --- GroupNorm ---

GroupNormImpl::GroupNormImpl(const GroupNormOptions& options_) : options(options_) {
  check(options.num_groups() > 0 && options.num_channels() > 0 &&
            options.num_channels() % options.num_groups() == 0,
        "GroupNorm: num_groups must divide num_channels, got ", options.num_groups(), " and ",
        options.num_channels(), ".");
  GroupNormImpl::reset();
}
void GroupNormImpl::reset() {
  weight =
      register_parameter("weight", options.affine() ? empty({options.num_channels()}) : Tensor());
  bias = register_parameter("bias", options.affine() ? empty({options.num_channels()}) : Tensor());
  reset_parameters();
}
void GroupNormImpl::reset_parameters() { start_affine(weight, bias); }
void GroupNormImpl::pretty_print(std::ostream& stream) const {
  stream << "grapnel::nn::GroupNorm(" << options.num_groups() << ", " << options.num_channels()
         << ", eps=" << options.eps() << ", affine=" << (options.affine() ? "true" : "false")
         << ')';
}
Tensor GroupNormImpl::forward(const Tensor& input) {
  return functional::group_norm(input, options.num_groups(), weight, bias, options.eps());
}

// --- RMSNorm ---

RMSNormImpl::RMSNormImpl(const RMSNormOptions& options_) : options(options_) {
  check_shape(options.normalized_shape(), "RMSNorm");
  RMSNormImpl::reset();
}
void RMSNormImpl::reset() {
  weight = register_parameter("weight", options.elementwise_affine()
                                            ? grapnel::empty(options.normalized_shape())
                                            : Tensor());
  reset_parameters();
}
void RMSNormImpl::reset_parameters() { start_affine(weight, {}); }
void RMSNormImpl::pretty_print(std::ostream& stream) const {
  stream << "grapnel::nn::RMSNorm(" << IntArrayRef(options.normalized_shape()) << ", eps=";
  if (options.eps()) stream << *options.eps();
  else stream << "none";
  stream << ", elementwise_affine=" << (options.elementwise_affine() ? "true" : "false") << ')';
}
Tensor RMSNormImpl::forward(const Tensor& input) {
  return functional::rms_norm(input, options.normalized_shape(), weight, options.eps());
}

}  // namespace grapnel::nn
