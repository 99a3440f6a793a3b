#include "grapnel/functions/sampling.h"

#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"
#include "grapnel/functions/random.h"
#include "grapnel/functions/statistics.h"
#include "grapnel/ops/op_site.h"

namespace grapnel {

namespace {

Generator* pointer_to(std::optional<Generator>& generator) {
  return generator ? &*generator : nullptr;
}
void check_floating(const char* op, const Tensor& t) {
  check(t.is_floating_point(), op, ": a floating-point type is needed, got ", t.dtype(), ".");
}
Tensor standard_normal(IntArrayRef sizes, const Tensor& like, std::optional<Generator> generator) {
  Tensor out = empty(sizes, TensorOptions(like.dtype()).device(like.device()));
  return random::normal_(out, 0, 1, pointer_to(generator));
}

}  // namespace

Tensor normal(const Tensor& mean, const Tensor& std, std::optional<Generator> generator) {
  GRAPNEL_CALL_SITE;
  check_floating("normal", mean);
  check_floating("normal", std);
  const Tensor both[] = {mean.detach(), std.detach()};
  const std::vector<Tensor> spread = broadcast_tensors(both);
  return spread[0] + spread[1] * standard_normal(spread[0].sizes(), mean, std::move(generator));
}
Tensor normal(const Tensor& mean, double std, std::optional<Generator> generator) {
  GRAPNEL_CALL_SITE;
  check_floating("normal", mean);
  check(std >= 0, "normal: the standard deviation must not be negative, got ", std, ".");
  return mean.detach() + std * standard_normal(mean.sizes(), mean, std::move(generator));
}
Tensor normal(double mean, const Tensor& std, std::optional<Generator> generator) {
  GRAPNEL_CALL_SITE;
  check_floating("normal", std);
  return mean + std.detach() * standard_normal(std.sizes(), std, std::move(generator));
}
Tensor normal(double mean, double std, IntArrayRef sizes, std::optional<Generator> generator,
              const TensorOptions& options) {
  GRAPNEL_CALL_SITE;
  Tensor out = empty(sizes, options.requires_grad(false));
  random::normal_(out, mean, std, pointer_to(generator));
  return out.set_requires_grad(options.requires_grad());
}

Tensor bernoulli(const Tensor& p, std::optional<Generator> generator) {
  GRAPNEL_CALL_SITE;
  check_floating("bernoulli", p);
  // A narrow type has too few numbers between 0 and 1 for small probabilities.
  const DType wide = dtype_of(compute_type(p.dtype()));
  const Tensor draws = empty(p.sizes(), TensorOptions(wide).device(p.device()));
  return (random::uniform_(draws, 0, 1, pointer_to(generator)) < p.detach().to(wide)).to(p.dtype());
}
Tensor bernoulli(const Tensor& x, double p, std::optional<Generator> generator) {
  GRAPNEL_CALL_SITE;
  return random::bernoulli_(empty(x.sizes(), TensorOptions(x.dtype()).device(x.device())), p,
                            pointer_to(generator));
}

Tensor multinomial(const Tensor& weights, int64_t num_samples, bool replacement,
                   std::optional<Generator> generator) {
  GRAPNEL_CALL_SITE;
  check_floating("multinomial", weights);
  check((weights.dim() == 1 || weights.dim() == 2) && weights.size(-1) > 0 && num_samples > 0,
        "multinomial: weights must be a vector or a matrix, and at least one number is drawn; got "
        "shape ",
        weights.shape(), " and num_samples ", num_samples, ".");
  const Tensor w = weights.detach().to(weights.dtype() == kFloat64 ? kFloat64 : kFloat32);
  const Tensor positive = w > 0;
  check(all(isfinite(w) & (w >= 0)).item<bool>() && all(positive.any(-1)).item<bool>(),
        "multinomial: weights must be finite and not negative, and not all of a row zero.");
  const TensorOptions like = TensorOptions(w.dtype()).device(w.device());
  if (!replacement) {
    check(
        num_samples <= count_nonzero(w, {-1}).min().item<int64_t>(), "multinomial: ", num_samples,
        " numbers cannot be drawn without replacement: a row has fewer weights that are not zero.");
    // Of waiting times with these rates, the shortest come first with the right probabilities.
    const Tensor race = random::exponential_(empty(w.sizes(), like), 1, pointer_to(generator));
    return std::get<1>(topk(where(positive, w / race, -1.0), num_samples, -1));
  }
  Shape sizes = w.shape();
  const int64_t n = w.size(-1);
  sizes[sizes.size() - 1] = num_samples;
  const Tensor sums = cumsum(w, -1);
  const Tensor draws = random::uniform_(empty(sizes, like), 0, 1, pointer_to(generator));
  const Tensor place = searchsorted(sums, draws * sums.narrow(-1, n - 1, 1), /*right=*/true);
  // A draw that was rounded up to the sum of all belongs to the last one that has a weight.
  const Tensor last = n - 1 - argmax(flip(positive.to(kInt64), {-1}), -1, /*keepdim=*/true);
  return minimum(place, last);
}

Tensor Tensor::bernoulli() const {
  GRAPNEL_CALL_SITE;
  return grapnel::bernoulli(*this);
}
Tensor Tensor::multinomial(int64_t num_samples, bool replacement) const {
  GRAPNEL_CALL_SITE;
  return grapnel::multinomial(*this, num_samples, replacement);
}

}  // namespace grapnel
