/// Gradients of some inputs only.
#include "grapnel/autograd/engine.h"
#include "tests/ops/sweep.h"

namespace grapnel {

TEST_CASE("every op: any choice of inputs that want a gradient gets the one it gets when all do") {
  for_each_sample([](const Op& op, const Sample& sample) {
    if (!op.differentiable) return;
    std::vector<size_t> floating;
    for (size_t i = 0; i < sample.inputs.size(); ++i)
      if (sample.inputs[i].defined() && is_floating(sample.inputs[i].dtype()) &&
          !sample.inputs[i].impl().wrapped_number)
        floating.push_back(i);

    auto grads_of = [&](unsigned choice) {
      std::vector<Tensor> inputs = sample.inputs;
      for (size_t k = 0; k < floating.size(); ++k)
        inputs[floating[k]] = inputs[floating[k]].detach().clone().requires_grad_(choice >> k & 1);
      variable_list roots, seeds;
      for (const Tensor& out : run_op(op, inputs, sample.attrs.get())) {
        if (!out.requires_grad()) continue;
        roots.push_back(out);
        seeds.push_back(ones_like(out));
      }
      if (!roots.empty()) autograd::backward(roots, seeds);
      std::vector<Tensor> grads;
      for (size_t i : floating) grads.push_back(inputs[i].grad());
      return grads;
    };
    const unsigned all = (1u << floating.size()) - 1;
    const std::vector<Tensor> expected = grads_of(all);
    for (unsigned choice = 1; choice < all; ++choice) {
      CAPTURE(choice);
      const std::vector<Tensor> grads = grads_of(choice);
      for (size_t k = 0; k < floating.size(); ++k)
        CHECK(same_bits(grads[k], choice >> k & 1 ? expected[k] : Tensor()));
    }
  });
}

}  // namespace grapnel
