/// Every op on a device: the CPU's bits, and gradients.
#include "tests/ops/sweep.h"

#include "grapnel/autograd/engine.h"
#include "tests/mock_device/mock_device.h"

using namespace grapnel;

namespace {

const Device kThere(kCUDA, 0);

Tensor on_device(const Tensor& t) { return t.to(kThere); }

/// The sum of all results that can have a gradient, weighted so that no two elements count alike.
Tensor weighted_sum(const Outputs& outputs, Device device) {
  Tensor total = zeros({}, TensorOptions(kFloat64).device(device));
  for (const Tensor& t : outputs) {
    if (!t.requires_grad()) continue;
    const Tensor weights = linspace(0.5, 1.5, t.numel(), kFloat64).to(device).reshape(t.sizes());
    total = total + (t.to(kFloat64) * weights).sum();
  }
  return total;
}

struct Result {
  Outputs outputs;
  std::vector<Tensor> gradients, second;
};

Result result_of(const Op& op, const Sample& sample, bool there) {
  const auto make = [&](const Tensor& t) {
    const Tensor copy = there ? on_device(t) : t.clone();
    return t.dtype() == kFloat64 ? copy.detach().set_requires_grad(true) : copy;
  };
  Result result;
  const std::vector<Tensor> inputs = remade(sample.inputs, make);
  result.outputs = run_op(op, inputs, sample.attrs.get());
  bool any = false;
  for (const Tensor& t : result.outputs) any |= t.requires_grad();
  if (!op.differentiable || !any) return result;
  std::vector<Tensor> wanted;
  for (const Tensor& t : inputs)
    if (t.defined() && t.requires_grad()) wanted.push_back(t);
  result.gradients = autograd::grad({weighted_sum(result.outputs, there ? kThere : Device())},
                                    wanted, {}, true, true, true);
  Outputs again;
  for (const Tensor& g : result.gradients)
    if (g.defined()) again.push_back(g);
  const Tensor total = weighted_sum(again, there ? kThere : Device());
  if (total.requires_grad()) result.second = autograd::grad({total}, wanted, {}, {}, {}, true);
  return result;
}

bool same(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  return same_bits(Outputs(a.begin(), a.end()), Outputs(b.begin(), b.end()));
}

}  // namespace

TEST_CASE("every op on a device: results, gradients and second gradients have the CPU's bits") {
  mock::install();
  const ThreadsScope one_thread(1);
  for_each_sample([](const Op& op, const Sample& sample) {
    if (op.name == "to_device" || op.refuses_values) return;
    const Result here = result_of(op, sample, false), there = result_of(op, sample, true);
    for (const Tensor& t : there.outputs) CHECK(t.device() == kThere);
    for (const Tensor& t : there.gradients)
      if (t.defined()) CHECK(t.device() == kThere);
    CHECK(same_bits(there.outputs, here.outputs));
    CHECK(same(there.gradients, here.gradients));
    CHECK(same(there.second, here.second));
  });
}

TEST_CASE("every op on a device, in every type: results have the CPU's bits, or the same error") {
  mock::install();
  for_each_sample([](const Op& op, const Sample& sample) {
    for (const DType dtype : kAllDTypes) {
      CAPTURE(dtype);
      const auto convert = [&](const Tensor& t) {
        return t.dtype() == kFloat64 ? converted_to(t.cpu(), dtype) : t;
      };
      const std::vector<Tensor> inputs = remade(sample.inputs, convert);
      std::string wrong;
      Outputs here;
      try {
        here = run_op(op, inputs, sample.attrs.get());
      } catch (const Error& e) {
        wrong = e.what();
      }
      try {
        const Outputs there = run_op(op, remade(inputs, on_device), sample.attrs.get());
        for (const Tensor& t : there) (void)t.cpu();  // waits
        memory_of(kThere).synchronize(0);
        CHECK(wrong.empty());
        CHECK(same_bits(there, here));
      } catch (const Error&) {
        CHECK_FALSE(wrong.empty());
      }
    }
  });
}
