/// A module whose gradients are what a test says: output = sum of p_i * w_i, so p_i.grad is w_i.
#pragma once

#include "ranks.h"

namespace grapnel::test {

struct Weighted : nn::Module {
  std::vector<Tensor> p;
  explicit Weighted(const std::vector<std::vector<int64_t>>& shapes, DType dtype = kFloat32,
                    double value = 1) {
    for (size_t i = 0; i < shapes.size(); ++i)
      p.push_back(register_parameter(str("p", i), full(shapes[i], value, dtype)));
  }
  /// An undefined weight leaves its parameter out.
  Tensor forward(std::vector<Tensor> w) {
    Tensor sum = zeros({}, p[0].dtype());
    for (size_t i = 0; i < p.size(); ++i)
      if (w[i].defined()) sum = sum + (p[i] * w[i]).sum().to(p[0].dtype());
    return sum;
  }
};
inline std::shared_ptr<Weighted> weighted(const std::vector<std::vector<int64_t>>& shapes,
                                          DType dtype = kFloat32, double value = 1) {
  return std::make_shared<Weighted>(shapes, dtype, value);
}
/// One parameter of one element, whose gradient is what forward is given.
inline std::shared_ptr<Weighted> one(DType dtype = kFloat32, double value = 1) {
  return weighted({{1}}, dtype, value);
}

/// Forward and backward with constant gradients, one number per parameter.
template <class Model>
void pass(Model& model, const std::vector<double>& grads) {
  std::vector<Tensor> w;
  for (size_t i = 0; i < grads.size(); ++i)
    w.push_back(full_like(model.module().p[i].detach(), grads[i]));
  model(w).backward();
}
template <class Model>
double grad_of(Model& model, size_t i = 0) {
  const Tensor& g = model.module().p[i].grad();
  return g.defined() ? g.reshape({-1})[0].template item<double>() : -999;
}

}  // namespace grapnel::test
