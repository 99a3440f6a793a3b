#include "grapnel/nn/loss.h"

namespace grapnel::nn {

#define GRAPNEL_PLAIN_RESET(Name) \
  void Name##Impl::reset() {}
GRAPNEL_PLAIN_RESET(MSELoss)
GRAPNEL_PLAIN_RESET(L1Loss)
GRAPNEL_PLAIN_RESET(SmoothL1Loss)
GRAPNEL_PLAIN_RESET(HuberLoss)
GRAPNEL_PLAIN_RESET(KLDivLoss)
#undef GRAPNEL_PLAIN_RESET

namespace {
/// A handle of its own: converting or copying the loss leaves the caller's tensor alone.
Tensor own(const Tensor& t) { return t.defined() ? t.detach() : t; }
}  // namespace
void NLLLossImpl::reset() { register_buffer("weight", own(options.weight())); }
void CrossEntropyLossImpl::reset() { register_buffer("weight", own(options.weight())); }
void BCELossImpl::reset() { register_buffer("weight", own(options.weight())); }
void BCEWithLogitsLossImpl::reset() {
  register_buffer("weight", own(options.weight()));
  register_buffer("pos_weight", own(options.pos_weight()));
}

// These may warn, once for each line of the user's, who may call forward() by its name.
Tensor MSELossImpl::forward(const Tensor& x, const Tensor& target) {
  const base::ModuleCallSite site(__builtin_return_address(0), /*users=*/false);
  return mse_loss(x, target, options.reduction());
}
Tensor L1LossImpl::forward(const Tensor& x, const Tensor& target) {
  const base::ModuleCallSite site(__builtin_return_address(0), /*users=*/false);
  return l1_loss(x, target, options.reduction());
}
Tensor NLLLossImpl::forward(const Tensor& x, const Tensor& target) {
  return nll_loss(x, target, buffers_["weight"], options.reduction(), options.ignore_index());
}
Tensor CrossEntropyLossImpl::forward(const Tensor& x, const Tensor& target) {
  return cross_entropy(x, target, buffers_["weight"], options.reduction(), options.ignore_index(),
                       options.label_smoothing());
}
Tensor BCELossImpl::forward(const Tensor& x, const Tensor& target) {
  return functional::binary_cross_entropy(x, target, buffers_["weight"], options.reduction());
}
Tensor BCEWithLogitsLossImpl::forward(const Tensor& x, const Tensor& target) {
  return binary_cross_entropy_with_logits(x, target, buffers_["weight"], buffers_["pos_weight"],
                                          options.reduction());
}
Tensor SmoothL1LossImpl::forward(const Tensor& x, const Tensor& target) {
  const base::ModuleCallSite site(__builtin_return_address(0), /*users=*/false);
  return functional::smooth_l1_loss(x, target, options.reduction(), options.beta());
}
Tensor HuberLossImpl::forward(const Tensor& x, const Tensor& target) {
  const base::ModuleCallSite site(__builtin_return_address(0), /*users=*/false);
  return functional::huber_loss(x, target, options.reduction(), options.delta());
}
Tensor KLDivLossImpl::forward(const Tensor& x, const Tensor& target) {
  return functional::kl_div(x, target, options.reduction(), options.log_target());
}

}  // namespace grapnel::nn
