/// Losses as modules: `nn::CrossEntropyLoss criterion; criterion(logits, target)`.
#pragma once

#include "grapnel/base/arg.h"
#include "grapnel/nn/functional.h"
#include "grapnel/nn/module_holder.h"

namespace grapnel::nn {

struct MSELossOptions {
  MSELossOptions(Reduce reduction = Reduce::mean) : reduction_(reduction) {}
  GRAPNEL_ARG(Reduce, reduction);
};
struct L1LossOptions {
  L1LossOptions(Reduce reduction = Reduce::mean) : reduction_(reduction) {}
  GRAPNEL_ARG(Reduce, reduction);
};
struct NLLLossOptions {
  /// One number per class.
  GRAPNEL_ARG(Tensor, weight);
  GRAPNEL_ARG(int64_t, ignore_index) = -100;
  GRAPNEL_ARG(Reduce, reduction) = Reduce::mean;
};
struct CrossEntropyLossOptions {
  GRAPNEL_ARG(Tensor, weight);
  GRAPNEL_ARG(int64_t, ignore_index) = -100;
  GRAPNEL_ARG(Reduce, reduction) = Reduce::mean;
  GRAPNEL_ARG(double, label_smoothing) = 0;
};
struct BCELossOptions {
  GRAPNEL_ARG(Tensor, weight);
  GRAPNEL_ARG(Reduce, reduction) = Reduce::mean;
};
struct BCEWithLogitsLossOptions {
  GRAPNEL_ARG(Tensor, weight);
  GRAPNEL_ARG(Reduce, reduction) = Reduce::mean;
  GRAPNEL_ARG(Tensor, pos_weight);
};
struct SmoothL1LossOptions {
  SmoothL1LossOptions(Reduce reduction = Reduce::mean) : reduction_(reduction) {}
  GRAPNEL_ARG(Reduce, reduction);
  GRAPNEL_ARG(double, beta) = 1;
};
struct HuberLossOptions {
  HuberLossOptions(Reduce reduction = Reduce::mean) : reduction_(reduction) {}
  GRAPNEL_ARG(Reduce, reduction);
  GRAPNEL_ARG(double, delta) = 1;
};
struct KLDivLossOptions {
  KLDivLossOptions(functional::KLReduce reduction = functional::KLReduce::mean)
      : reduction_(reduction) {}
  KLDivLossOptions(Reduce reduction) : KLDivLossOptions(functional::kl_reduce(reduction)) {}
  KLDivLossOptions& reduction(Reduce value) { return reduction(functional::kl_reduce(value)); }
  GRAPNEL_ARG(functional::KLReduce, reduction);
  GRAPNEL_ARG(bool, log_target) = false;
};

// All have the same face: options in, (input, target) to a loss. Weights of classes are buffers, so
// that they move with the model.
#define GRAPNEL_LOSS(Name)                                                        \
  class Name##Impl : public Cloneable<Name##Impl> {                               \
   public:                                                                        \
    explicit Name##Impl(const Name##Options& options_ = {}) : options(options_) { \
      Name##Impl::reset();                                                        \
    }                                                                             \
    void reset() override;                                                        \
    void pretty_print(std::ostream& stream) const override {                      \
      stream << "grapnel::nn::" #Name "()";                                       \
    }                                                                             \
    Tensor forward(const Tensor& input, const Tensor& target);                    \
    Name##Options options;                                                        \
  };                                                                              \
  GRAPNEL_MODULE(Name)
/// The squared difference.
GRAPNEL_LOSS(MSELoss);
/// The absolute difference.
GRAPNEL_LOSS(L1Loss);
/// Minus the log-probability of the class `target`.
GRAPNEL_LOSS(NLLLoss);
/// log_softmax and NLLLoss in one.
GRAPNEL_LOSS(CrossEntropyLoss);
/// The cross entropy of two probabilities.
GRAPNEL_LOSS(BCELoss);
/// sigmoid and BCELoss in one, computed without overflow.
GRAPNEL_LOSS(BCEWithLogitsLoss);
/// Squared below `beta`, absolute above.
GRAPNEL_LOSS(SmoothL1Loss);
/// Half the square below `delta`, linear above.
GRAPNEL_LOSS(HuberLoss);
/// The divergence of Kullback and Leibler of log-probabilities from `target`.
GRAPNEL_LOSS(KLDivLoss);
#undef GRAPNEL_LOSS

}  // namespace grapnel::nn
