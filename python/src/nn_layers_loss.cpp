// Losses: one entry each.
#include "grapnel/nn/loss.h"
#include "python/src/nn_layers.h"

namespace grapnel::python {

void add_losses(std::vector<Layer>& out) {
  using namespace nn;
  using A = const Arguments&;
  using Made = std::unique_ptr<Module>;
#define GRAPNEL_LOSS(Name, arguments, ...)                                             \
  out.push_back(layer<Name##Impl>(#Name, arguments, [](A a) -> Made {                  \
    return std::make_unique<Name##Impl>(Name##Options().reduction(a.reduction()) __VA_ARGS__); \
  }));                                                                                 \
  out.back().inputs = "input, target"
  GRAPNEL_LOSS(MSELoss, "reduction='mean'");
  GRAPNEL_LOSS(L1Loss, "reduction='mean'");
  GRAPNEL_LOSS(NLLLoss, "weight=None, ignore_index=-100, reduction='mean'",
               .weight(a.tensor("weight")).ignore_index(a.integer("ignore_index")));
  GRAPNEL_LOSS(CrossEntropyLoss,
               "weight=None, ignore_index=-100, reduction='mean', label_smoothing=0.0",
               .weight(a.tensor("weight"))
                   .ignore_index(a.integer("ignore_index"))
                   .label_smoothing(a.number("label_smoothing")));
  GRAPNEL_LOSS(BCELoss, "weight=None, reduction='mean'", .weight(a.tensor("weight")));
  GRAPNEL_LOSS(BCEWithLogitsLoss, "weight=None, reduction='mean', pos_weight=None",
               .weight(a.tensor("weight")).pos_weight(a.tensor("pos_weight")));
  GRAPNEL_LOSS(SmoothL1Loss, "reduction='mean', beta=1.0", .beta(a.number("beta")));
  GRAPNEL_LOSS(HuberLoss, "reduction='mean', delta=1.0", .delta(a.number("delta")));
#undef GRAPNEL_LOSS
  out.push_back(layer<KLDivLossImpl>(
      "KLDivLoss", "reduction='mean', log_target=False", [](A a) -> Made {
        KLDivLossOptions options;
        if (a.text("reduction") == "batchmean") options.reduction(functional::KLReduce::batch_mean);
        else options.reduction(a.reduction());
        return std::make_unique<KLDivLossImpl>(options.log_target(a.flag("log_target")));
      }));
  out.back().inputs = "input, target";
}

}  // namespace grapnel::python
