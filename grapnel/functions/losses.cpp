/// Losses, composed of other ops.
#include <limits>

#include "grapnel/base/warn.h"
#include "grapnel/functions/broadcast_warning.h"
#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"
#include "grapnel/ops/autocast.h"
#include "grapnel/ops/defs/activation.h"
#include "grapnel/ops/op_site.h"

namespace grapnel {

namespace {

Tensor reduced(const Tensor& losses, Reduce reduction) {
  switch (reduction) {
    case Reduce::none: return losses;
    case Reduce::mean: return losses.mean();
    case Reduce::sum: return losses.sum();
  }
  __builtin_unreachable();
}

/// The dimension of the classes: [C], or [N, C, ...].
int64_t class_dim(const Tensor& scores) { return scores.dim() == 1 ? 0 : 1; }

/// One number per class, ready to broadcast against the scores.
Tensor per_class(const Tensor& weight, const Tensor& scores) {
  Shape sizes = Shape::filled(static_cast<int>(scores.dim()), 1);
  sizes[static_cast<int>(class_dim(scores))] = weight.size(0);
  return weight.view(sizes);
}

void check_weight(std::string_view op, const Tensor& weight, const Tensor& scores) {
  if (!weight.defined()) return;
  const int64_t classes = scores.size(class_dim(scores));
  check(weight.dim() == 1 && weight.size(0) == classes, op,
        ": weight must hold one number per class (", classes, "), got shape ", weight.shape(), ".");
  check(weight.dtype() == scores.dtype(), op, ": weight must be ", scores.dtype(),
        " like the scores, got ", weight.dtype(), ".");
}

/// Targets that name a class each, and what they count for.
struct ClassTargets {
  Tensor counted;  ///< false where the target is to be ignored
  Tensor index;    ///< the class, and 0 where ignored
  Tensor weight;   ///< of the class, and 0 where ignored
  bool weighted;

  ClassTargets(std::string_view op, const Tensor& scores, const Tensor& target,
               const Tensor& class_weight, int64_t ignore_index)
      : weighted(class_weight.defined()) {
    check(scores.dim() >= 1, op, ": scores must be [classes] or [batch, classes, ...], got shape ",
          scores.shape(), ".");
    Shape expected = scores.shape();
    expected.erase(static_cast<int>(class_dim(scores)));
    check(target.dtype() == kInt64 || target.dtype() == kUInt8 || target.dtype() == kInt32, op,
          ": class numbers must be integers, got ", target.dtype(), ".");
    check(target.shape() == expected, op, ": target must have shape ", expected,
          ", one class for each place of the scores ", scores.shape(), ", got ", target.shape(),
          ".");
    check_weight(op, class_weight, scores);
    const Tensor classes = target.dtype() == kInt64 ? target : target.to(kInt64);
    counted = classes != ignore_index;
    index = where(counted, classes, 0);
    weight =
        weighted
            ? where(counted, class_weight.index_select(0, index.reshape({-1})).view(target.shape()),
                    0.0)
            : counted.to(scores.dtype());
  }

  /// What each place contributes: 0 where ignored, whatever the score.
  Tensor losses(const Tensor& log_probs) const {
    const int64_t dim = class_dim(log_probs);
    const Tensor picked = log_probs.gather(dim, index.unsqueeze(dim)).squeeze(dim);
    return where(counted, weighted ? -picked * weight : -picked, 0.0);
  }
};

Tensor weighted_reduction(const Tensor& losses, const Tensor& weight, Reduce reduction) {
  return reduction == Reduce::mean ? losses.sum() / weight.sum() : reduced(losses, reduction);
}

Tensor cross_entropy_with_probabilities(const Tensor& logits, const Tensor& target,
                                        const Tensor& weight, Reduce reduction,
                                        double label_smoothing) {
  check(is_floating(target.dtype()), "cross_entropy: a target of the logits' shape ",
        logits.shape(), " holds probabilities and must be floating, got ", target.dtype(), ".");
  check_weight("cross_entropy", weight, logits);
  const int64_t dim = class_dim(logits);
  const auto classes = static_cast<double>(logits.size(dim));
  const Tensor aims =
      label_smoothing > 0 ? target * (1 - label_smoothing) + label_smoothing / classes : target;
  Tensor terms = log_softmax(logits, dim) * aims;
  if (weight.defined()) terms = terms * per_class(weight, logits);
  // The mean is taken over places, not over classes.
  return reduced(-terms.sum(dim), reduction);
}

Tensor difference(const char* op, const Tensor& x, const Tensor& target) {
  broadcast_shapes(x.shape(), target.shape(), op);
  warn_if_broadcast(op, x, target);
  return x - target;
}

}  // namespace

Tensor nll_loss(const Tensor& log_probs, const Tensor& target, const Tensor& weight,
                Reduce reduction, int64_t ignore_index) {
  GRAPNEL_CALL_SITE;
  if (autocast::widens(log_probs)) [[unlikely]]
    return nll_loss(autocast::wide(log_probs), target, weight, reduction, ignore_index);
  const ClassTargets targets("nll_loss", log_probs, target, weight, ignore_index);
  return weighted_reduction(targets.losses(log_probs), targets.weight, reduction);
}

namespace by_name {

Tensor cross_entropy(const Tensor& logits, const Tensor& target, const Tensor& weight,
                     Reduce reduction, int64_t ignore_index, double label_smoothing) {
  GRAPNEL_CALL_SITE;
  if (autocast::widens(logits)) [[unlikely]]
    return cross_entropy(autocast::wide(logits), target, weight, reduction, ignore_index,
                         label_smoothing);
  check(label_smoothing >= 0 && label_smoothing <= 1,
        "cross_entropy: label_smoothing lies between 0 and 1, got ", label_smoothing, ".");
  check(logits.dim() >= 1,
        "cross_entropy: logits must be [classes] or [batch, classes, ...], got shape ",
        logits.shape(), ".");
  if (target.shape() == logits.shape())
    return cross_entropy_with_probabilities(logits, target, weight, reduction, label_smoothing);

  const int64_t dim = class_dim(logits);
  const Tensor log_probs = log_softmax(logits, dim);
  const ClassTargets targets("cross_entropy", logits, target, weight, ignore_index);
  const Tensor hard = weighted_reduction(targets.losses(log_probs), targets.weight, reduction);
  if (label_smoothing == 0) return hard;
  // The other part of the aim is spread evenly over all classes.
  const Tensor terms = weight.defined() ? log_probs * per_class(weight, logits) : log_probs;
  const Tensor even =
      weighted_reduction(where(targets.counted, -terms.sum(dim), 0.0), targets.weight, reduction);
  return hard * (1 - label_smoothing) +
         even * (label_smoothing / static_cast<double>(logits.size(dim)));
}

}  // namespace by_name

void warn_if_broadcast(const char* op, const Tensor& x, const Tensor& target) {
  if (x.shape() == target.shape()) return;
  const void* const place = base::users_call_site();
  if (!base::first_at(place, op)) return;
  base::warn(str(op, ": x has shape ", x.shape(), " and the target ", target.shape(),
                 "; they are broadcast against each other, which is rarely meant (at ",
                 base::describe({place}),
                 ").\nGive both one shape, for example target.view_as(x)."));
}

Tensor mse_loss(const Tensor& x, const Tensor& target, Reduce reduction) {
  GRAPNEL_CALL_SITE;
  if (autocast::widens(x)) [[unlikely]]
    return mse_loss(autocast::wide(x), autocast::wide(target), reduction);
  return reduced(square(difference("mse_loss", x, target)), reduction);
}
Tensor l1_loss(const Tensor& x, const Tensor& target, Reduce reduction) {
  GRAPNEL_CALL_SITE;
  if (autocast::widens(x)) [[unlikely]]
    return l1_loss(autocast::wide(x), autocast::wide(target), reduction);
  return reduced(abs(difference("l1_loss", x, target)), reduction);
}

Tensor binary_cross_entropy(const Tensor& x, const Tensor& target, const Tensor& weight,
                            Reduce reduction) {
  GRAPNEL_CALL_SITE;
  if (autocast::widens(x)) [[unlikely]]
    return binary_cross_entropy(autocast::wide(x), autocast::wide(target), weight, reduction);
  check(x.shape() == target.shape(), "binary_cross_entropy: target must have the shape of x, ",
        x.shape(), ", got ", target.shape(),
        ".\nGive both one shape, for example target.view_as(x).");
  const Tensor losses = apply<BinaryCrossEntropy>(x, target);
  return reduced(weight.defined() ? losses * weight : losses, reduction);
}

Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& target,
                                        const Tensor& weight, const Tensor& pos_weight,
                                        Reduce reduction) {
  GRAPNEL_CALL_SITE;
  if (autocast::widens(logits)) [[unlikely]]
    return binary_cross_entropy_with_logits(autocast::wide(logits), autocast::wide(target), weight,
                                            pos_weight, reduction);
  check(logits.shape() == target.shape(),
        "binary_cross_entropy_with_logits: target must have the logits' shape ", logits.shape(),
        ", got ", target.shape(), ".");
  // -log sigmoid(x) is softplus(-x), which never overflows; without a threshold it is exact
  // everywhere.
  const Tensor cost = softplus(-logits, 1, std::numeric_limits<double>::infinity());
  const Tensor scaled = pos_weight.defined() ? cost * (1.0 + (pos_weight - 1.0) * target) : cost;
  const Tensor losses = (1.0 - target) * logits + scaled;
  return reduced(weight.defined() ? losses * weight : losses, reduction);
}

}  // namespace grapnel
