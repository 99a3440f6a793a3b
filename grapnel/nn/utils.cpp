#include "grapnel/nn/utils.h"

#include <cmath>

#include "grapnel/autograd/grad_mode.h"
#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"
#include "grapnel/ops/op_site.h"

namespace grapnel::nn::utils {

Tensor grad_norm(const std::vector<Tensor>& parameters, double norm_type) {
  GRAPNEL_CALL_SITE;
  NoGradGuard no_grad;
  const bool largest = std::isinf(norm_type);
  std::vector<Tensor> norms;
  for (const Tensor& p : parameters)
    if (p.grad().defined())
      norms.push_back(largest ? p.grad().abs().max() : p.grad().norm(norm_type));
  if (norms.empty()) return zeros({});
  const Tensor all = stack(norms);
  return largest ? all.max() : all.norm(norm_type);
}

Tensor clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm,
                       const ClipNormOptions& options) {
  GRAPNEL_CALL_SITE;
  NoGradGuard no_grad;
  const Tensor total = grad_norm(parameters, options.norm_type);
  if (options.error_if_nonfinite) {
    const double norm = total.item<double>();
    check(std::isfinite(norm), "clip_grad_norm_: the norm of the gradients is ", norm,
          ", so they cannot be clipped.\nhooks::NanGuard finds where that began.");
  }
  // Multiplying by 1 when nothing is to be clipped costs less than looking at the norm to find out.
  const Tensor scale = (max_norm / (total + 1e-6)).clamp_max(1.0);
  for (const Tensor& p : parameters)
    if (p.grad().defined()) p.mutable_grad().mul_(scale);
  return total;
}

void clip_grad_value_(const std::vector<Tensor>& parameters, double clip_value) {
  GRAPNEL_CALL_SITE;
  NoGradGuard no_grad;
  for (const Tensor& p : parameters)
    if (p.grad().defined()) p.mutable_grad().clamp_(-clip_value, clip_value);
}

Tensor parameters_to_vector(const std::vector<Tensor>& parameters) {
  GRAPNEL_CALL_SITE;
  std::vector<Tensor> flat;
  for (const Tensor& p : parameters) flat.push_back(p.reshape({-1}));
  return cat(flat);
}

void vector_to_parameters(const Tensor& vector, const std::vector<Tensor>& parameters) {
  GRAPNEL_CALL_SITE;
  int64_t total = 0, begin = 0;
  for (const Tensor& p : parameters) total += p.numel();
  check(vector.dim() == 1 && vector.numel() == total, "vector_to_parameters: the parameters have ",
        total, " numbers, the vector has shape ", vector.shape(), ".");
  for (const Tensor& p : parameters) {
    p.set_data(vector.detach().narrow(0, begin, p.numel()).view_as(p));
    begin += p.numel();
  }
}

}  // namespace grapnel::nn::utils
