/// The evaluator of the CPU: one function for every op.
#include "grapnel/ops/evaluator.h"

#include <cstring>

#include "grapnel/base/thread_pool.h"
#include "grapnel/cpu/dense.h"
#include "grapnel/cpu/run.h"
#include "grapnel/ops/list.h"
#include "grapnel/tensor/device_memory.h"

namespace grapnel {

namespace {

using RunFn = void (*)(const Op&, Inputs, const void* attrs, std::span<Tensor> out);

template <class D>
void run_one(const Op&, Inputs in, const void* attrs, std::span<Tensor> out) {
  cpu::run<D>(in, *static_cast<const typename D::Attrs*>(attrs), out);
}
void nothing(const Op&, Inputs, const void*, std::span<Tensor>) {}

template <class D>
constexpr RunFn run_of() {
  if constexpr (HasScalar<D>) return &cpu::run_pointwise;
  else if constexpr (HasCombine<D>) return &cpu::run_reduction;
  else if constexpr (D::family == Family::view) return &nothing;
  else return &run_one<D>;
}

template <class List>
struct Runs;
template <class... D>
struct Runs<OpList<D...>> {
  static constexpr RunFn table[] = {run_of<D>()...};
};

class CpuEvaluator final : public Evaluator {
 public:
  constexpr CpuEvaluator() = default;
  Tensor empty(const TensorSpec& spec) override {
    return Tensor(TensorImpl::empty(spec.sizes, spec.dtype, spec.device));
  }
  void run(const Op& op, Inputs inputs, const void* attrs, std::span<Tensor> out) override {
    Runs<AllOps>::table[op.number](op, inputs, attrs, out);
  }
  void copy(const Tensor& target, const Tensor& source) override { cpu::copy(target, source); }
  void read(const Tensor& t, void* host) override {
    const Tensor values = cpu::dense(t, t.dtype());
    if (values.numel() > 0) std::memcpy(host, values.impl().host(), values.nbytes());
  }
  ShareOut share_out() const override {
    return [](int64_t count, const std::function<void(int64_t, int64_t)>& piece) {
      base::parallel_for(count, 1, piece);
    };
  }
};

constinit CpuEvaluator the_cpu;

DeviceTable<Evaluator> on_devices;

}  // namespace

constinit Evaluator& cpu_evaluator = the_cpu;

Evaluator& device_evaluator(Device device) { return on_devices[device]; }
void provide(Device device, Evaluator* evaluator) { on_devices.set(device, evaluator); }

}  // namespace grapnel
