/// Distances of vectors as modules: CosineSimilarity, PairwiseDistance.
#pragma once

#include "grapnel/base/arg.h"
#include "grapnel/functions/geometry.h"
#include "grapnel/nn/module_holder.h"

namespace grapnel::nn {

struct CosineSimilarityOptions {
  GRAPNEL_ARG(int64_t, dim) = 1;
  GRAPNEL_ARG(double, eps) = 1e-8;
};
/// The cosine of the angle between vectors along `dim`.
class CosineSimilarityImpl : public Cloneable<CosineSimilarityImpl> {
 public:
  explicit CosineSimilarityImpl(const CosineSimilarityOptions& options_ = {}) : options(options_) {}
  void reset() override {}
  void pretty_print(std::ostream& stream) const override {
    stream << "grapnel::nn::CosineSimilarity(dim=" << options.dim() << ", eps=" << options.eps()
           << ')';
  }
  Tensor forward(const Tensor& a, const Tensor& b) {
    return cosine_similarity(a, b, options.dim(), options.eps());
  }

  CosineSimilarityOptions options;
};
GRAPNEL_MODULE(CosineSimilarity);

struct PairwiseDistanceOptions {
  GRAPNEL_ARG(double, p) = 2;
  GRAPNEL_ARG(double, eps) = 1e-6;
  GRAPNEL_ARG(bool, keepdim) = false;
};
/// The p-norm of the difference of vectors along the last dimension.
class PairwiseDistanceImpl : public Cloneable<PairwiseDistanceImpl> {
 public:
  explicit PairwiseDistanceImpl(const PairwiseDistanceOptions& options_ = {}) : options(options_) {}
  void reset() override {}
  void pretty_print(std::ostream& stream) const override {
    stream << "grapnel::nn::PairwiseDistance(p=" << options.p() << ", eps=" << options.eps()
           << ", keepdim=" << (options.keepdim() ? "true" : "false") << ')';
  }
  Tensor forward(const Tensor& a, const Tensor& b) {
    return pairwise_distance(a, b, options.p(), options.eps(), options.keepdim());
  }

  PairwiseDistanceOptions options;
};
GRAPNEL_MODULE(PairwiseDistance);

}  // namespace grapnel::nn
