#include "grapnel/dist/micro_batches.h"

#include <bit>

#include "grapnel/autograd/grad_mode.h"
#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"

namespace grapnel::dist {

namespace {

/// Adds values as the leaves of a binary tree, from left to right, keeping one partial sum per
/// level.
class Tree {
 public:
  void add(Tensor value) {
    size_t level = 0;
    for (; level < sums_.size() && sums_[level].defined(); ++level)
      value = std::exchange(sums_[level], Tensor()).add_(value);
    if (level == sums_.size()) sums_.emplace_back();
    sums_[level] = std::move(value);
  }
  /// The root; the number of leaves is a power of two.
  Tensor total() const { return sums_.back(); }

 private:
  std::vector<Tensor> sums_;
};

/// All gradients of one type side by side; zeros where there is none.
Tensor gather_grads(const std::vector<Tensor>& parameters, DType dtype) {
  std::vector<Tensor> parts;
  for (const Tensor& p : parameters)
    if (p.dtype() == dtype)
      parts.push_back(p.grad().defined() ? p.grad().detach().reshape({-1})
                                         : zeros({p.numel()}, dtype));
  return parts.empty() ? Tensor() : cat(parts).clone();
}

}  // namespace

void backward_by_micro_batches(DataParallelModule& model, int64_t count,
                               const std::function<void(int64_t)>& backward_of) {
  const ProcessGroup group = model.group().channel("micro-batches");
  const int64_t ranks = group.size();
  check(count > 0 && std::has_single_bit(static_cast<uint64_t>(count)) &&
            std::has_single_bit(static_cast<uint64_t>(ranks)) && count >= ranks,
        "backward_by_micro_batches: the number of micro-batches and of ranks must be powers of "
        "two, with at least one micro-batch per rank; got ",
        count, " and ", ranks, ".");
  std::vector<Tensor> parameters;
  for (const Tensor& p : model.parameters())
    if (p.requires_grad()) parameters.push_back(p);

  std::array<Tree, kDTypeCount> trees;
  const int64_t share = count / ranks;
  {
    const NoSync local(model);
    for (int64_t i = group.rank() * share; i < (group.rank() + 1) * share; ++i) {
      for (const Tensor& p : parameters) p.reset_grad();
      backward_of(i);
      NoGradGuard no_grad;
      for (size_t d = 0; d < kDTypeCount; ++d)
        if (const Tensor flat = gather_grads(parameters, static_cast<DType>(d)); flat.defined())
          trees[d].add(flat);
    }
  }
  NoGradGuard no_grad;
  for (const Tensor& p : parameters) p.reset_grad();
  for (size_t d = 0; d < kDTypeCount; ++d) {
    int64_t at = 0;
    Tensor mean;
    for (const Tensor& p : parameters) {
      if (p.dtype() != static_cast<DType>(d)) continue;
      if (!mean.defined()) {
        // A rank's share is a subtree, so the ranks' sums are leaves of the rest of the tree.
        Tree rest;
        for (const Tensor& sum : group.all_gather(trees[d].total()).wait()) rest.add(sum.clone());
        mean = rest.total().div_(count);
      }
      p.set_grad(mean.narrow(0, at, p.numel()).view(p.sizes()).clone());
      at += p.numel();
    }
  }
}

}  // namespace grapnel::dist
