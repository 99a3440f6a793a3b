/// Gradients and parameters of a whole model at once: clipping, and one long vector of all
/// parameters.
///
/// Nothing here looks at values unless asked to, so that it compiles into a training step.
#pragma once

#include <vector>

#include "grapnel/tensor/tensor.h"

namespace grapnel::nn::utils {

/// The kind of norm, and what happens if it is not finite.
struct ClipNormOptions {
  double norm_type = 2;             ///< infinity for the largest element
  bool error_if_nonfinite = false;  ///< looks at the norm, and fails if it is NaN or infinite
};
/// The common norm of all gradients; parameters without one are left out.
Tensor grad_norm(const std::vector<Tensor>& parameters, double norm_type = 2);
/// Scales all gradients in place so that their common norm is at most max_norm; returns the norm
/// before.
Tensor clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm,
                       const ClipNormOptions& options = {});
/// Clamps every element of every gradient to [-clip_value, clip_value], in place.
void clip_grad_value_(const std::vector<Tensor>& parameters, double clip_value);

/// All parameters in one row.
Tensor parameters_to_vector(const std::vector<Tensor>& parameters);
/// And back: the parameters become pieces of `vector`.
void vector_to_parameters(const Tensor& vector, const std::vector<Tensor>& parameters);

}  // namespace grapnel::nn::utils
