/// What may be changed in place after the forward pass: a value that some gradient needs may not,
/// and that is an error; any other may, and no gradient changes.
#include <set>

#include "grapnel/autograd/engine.h"
#include "tests/ops/sweep.h"

namespace grapnel {

namespace {

/// One call of an op on results of other ops, so that all its inputs may be changed in place.
struct Recorded {
  std::vector<Tensor> leaves, inputs;
  Outputs outputs;

  Recorded(const Op& op, const Sample& sample) {
    for (const Tensor& t : sample.inputs) {
      const bool tracked = t.defined() && is_floating(t.dtype()) && !t.impl().wrapped_number;
      leaves.push_back(tracked ? t.detach().clone().requires_grad_() : Tensor());
      inputs.push_back(tracked ? leaves.back() * 1.0 : t.defined() ? t.clone() : t);
    }
    outputs = run_op(op, inputs, sample.attrs.get());
  }
  /// Gradients of all floating inputs, for seeds that are all different.
  std::vector<Tensor> grads() const {
    variable_list roots, seeds;
    for (const Tensor& out : outputs)
      if (out.requires_grad()) {
        roots.push_back(out);
        seeds.push_back(sample_tensor(out.sizes(), 0.5, 1.5).to(out.dtype()));
      }
    if (!roots.empty()) autograd::backward(roots, seeds);
    std::vector<Tensor> out;
    for (const Tensor& leaf : leaves) out.push_back(leaf.defined() ? leaf.grad() : Tensor());
    return out;
  }
};

/// Which values any wanted gradient of the call reads.
SaveMask saved_by(const Op& op, const Recorded& call) {
  SaveMask mask = 0;
  for (size_t i = 0; i < call.leaves.size(); ++i)
    if (call.leaves[i].defined()) mask |= op.saves_for(static_cast<int>(i));
  return mask;
}

void change(const Tensor& t) {
  const NoGradGuard no_grad;  // that the change itself is recorded is another matter
  if (t.dtype() == kBool) t.copy_(t.logical_not());
  else t.add_(1);
}

/// Changes one value of the call and runs backward: an error if it is saved, else the same bits.
void check_change(const Op& op, const Sample& sample, bool result, size_t which) {
  const Recorded plain(op, sample), call(op, sample);
  const std::vector<Tensor> expected = plain.grads();
  const SaveMask bit = result ? output(static_cast<int>(which)) : input(static_cast<int>(which));
  const bool needed = saved_by(op, call) & bit;
  change(result ? call.outputs[which] : call.inputs[which]);
  std::string message;
  std::vector<Tensor> grads;
  try {
    grads = call.grads();
  } catch (const Error& e) {
    message = e.what();
  }
  CAPTURE(result);
  CAPTURE(which);
  CAPTURE(message);
  if (needed) {
    CHECK(message.find("was changed by an in-place operation") != std::string::npos);
    return;
  }
  REQUIRE(message.empty());
  for (size_t i = 0; i < grads.size(); ++i) CHECK(same_bits(grads[i], expected[i]));
}

bool sweeps(const Op& op) { return op.differentiable && !op.random && op.family != Family::view; }

}  // namespace

TEST_CASE("every op: a value may be changed in place exactly if no gradient needs it") {
  for_each_sample([](const Op& op, const Sample& sample) {
    if (!sweeps(op)) return;
    const Recorded call(op, sample);
    for (size_t i = 0; i < call.outputs.size(); ++i)
      if (call.outputs[i].defined()) check_change(op, sample, true, i);
    for (size_t i = 0; i < call.inputs.size(); ++i)
      if (call.inputs[i].defined() && !call.inputs[i].impl().wrapped_number)
        check_change(op, sample, false, i);
  });
}

TEST_CASE("every op: results that may not be changed in place are those of PyTorch, and no more") {
  // Functions whose gradient is written with the result there, too. Division is not among them.
  const std::set<std::string_view> allowed = {
      "exp",     "exp2", "expm1", "sqrt",       "rsqrt", "reciprocal",  "sigmoid",  "tanh",
      "relu",    "elu",   "softmax",    "log_softmax", "pow",   "amax",     "amin",
      "prod",    "cumprod", "tan",      "norm",  "logsumexp",   "layer_norm", "max_pool2d",
      "sort",    "topk",  "max",        "min",   "kthvalue",    "median",   "mode", "cummax", "cummin", "recurrence", "recurrent"};
  std::string others;
  for (const Op* op : all_ops())
    for (int i = 0; i < std::max(op->arity, 1); ++i)
      if (op->saves && (op->saves_for(i) >> kFirstOutputBit) != 0 && !allowed.contains(op->name))
        others += str(op->name, " ");
  CHECK(others == "");
}

TEST_CASE("the quotient and the result of a division in place may be changed") {
  const auto one = [] { return ones({2}, requires_grad()); };
  for (const int kind : {0, 1, 2}) {
    Tensor a = one(), b = full({2}, 2.0, requires_grad());
    Tensor q;
    if (kind == 0) q = a / b;
    if (kind == 1) q = a.detach() / (b * 1);
    if (kind == 2) {
      q = a * 1;
      q.div_(b);
    }
    q.add_(1).mul_(3);
    q.sum().backward();
    CHECK(b.grad()[0].item<double>() == -0.75);
    if (kind != 1) CHECK(a.grad()[0].item<double>() == 1.5);
  }
}

}  // namespace grapnel
