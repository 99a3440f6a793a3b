#include "grapnel/hooks/gradient.h"

#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"

namespace grapnel::hooks {

Tensor ClipValue::operator()(const Tensor& g) const { return g.clamp(-limit, limit); }
std::string ClipValue::name() const { return str("clip value ", limit); }

Tensor ClipNorm::operator()(const Tensor& g) const {
  return g * (max_norm / (g.norm(norm_type) + 1e-6)).clamp_max(1.0);
}
std::string ClipNorm::name() const { return str("clip norm ", max_norm); }

Tensor Scale::operator()(const Tensor& g) const { return g * factor; }
std::string Scale::name() const { return str("scale ", factor); }

Tensor Noise::operator()(const Tensor& g) const {
  return g + randn(g.shape(), generator, g.options()) * std;
}
std::string Noise::name() const { return str("noise ", std); }

Tensor Mask::operator()(const Tensor& g) const {
  return mask.dtype() == kBool ? where(mask, g, 0.0) : g * mask.to(g.dtype());
}
std::string Mask::name() const { return str("mask ", mask.shape()); }

Tensor Freeze::operator()(const Tensor& g) const { return zeros_like(g); }

Tensor Reverse::operator()(const Tensor& g) const { return g * -factor; }
std::string Reverse::name() const { return str("reverse ", factor); }

}  // namespace grapnel::hooks
