/// Ready-made communication hooks. Register one with model.register_comm_hook(hook), or with a
/// state in front of it.
///
/// | hook                             | sends for a bucket of n       | result                    |
/// |----------------------------------|-------------------------------|---------------------------|
/// | allreduce                        | n elements                    | the mean, as without one  |
/// | fp16_compress, bf16_compress     | n 16-bit elements             | the mean                  |
/// | fp16_wrapper(h), bf16_wrapper(h) | h's, for a 16-bit bucket      | h's, 16-bit               |
/// | quantize_per_tensor              | n bytes and 2 numbers, to all | the mean                  |
/// | quantize_per_channel             | the same, 2 numbers per 512   | the mean                  |
/// | power_sgd, batched_power_sgd     | 2 thin matrices: power_sgd.h  | the best low-rank mean    |
/// | post_local_sgd                   | see local_sgd.h               | mean of world or subgroup |
/// | noop                             | nothing                       | the local gradient        |
/// | hook_then_optimizer(h, opt)      | what h sends                  | h's; parameters stepped   |
///
/// The stateless ones may be given a ProcessGroup as state; by default they use the wrapper's
/// group. Arithmetic is ordinary tensor code.
#pragma once

#include <memory>
#include <string_view>
#include <unordered_set>

#include "grapnel/dist/grad_bucket.h"
#include "grapnel/optim/optimizer.h"

namespace grapnel::dist::hooks {

/// A hook without state of its own: runs on the wrapper's group, or on the one given.
template <class Derived>
struct StatelessHook {
  Future<Tensor> operator()(GradBucket& bucket) const {
    return Derived::run(bucket, bucket.group());
  }
  Future<Tensor> operator()(const ProcessGroup& group, GradBucket& bucket) const {
    return Derived::run(bucket, bucket.channel_of(group));
  }
};

/// Divides by the number of ranks, then sums: bits equal those without a hook.
struct AllReduce : StatelessHook<AllReduce> {
  static constexpr std::string_view name = "allreduce";
  static Future<Tensor> run(GradBucket& bucket, const ProcessGroup& group);
};
/// Sends nothing.
struct Noop : StatelessHook<Noop> {
  static constexpr std::string_view name = "noop";
  static Future<Tensor> run(GradBucket& bucket, const ProcessGroup& group);
};
/// Sends gradients in 16 bits.
template <DType dtype>
struct Compress : StatelessHook<Compress<dtype>> {
  static constexpr std::string_view name =
      dtype == DType::Float16 ? "fp16_compress" : "bf16_compress";
  static Future<Tensor> run(GradBucket& bucket, const ProcessGroup& group);
};
/// 8 bits per element: the range of the bucket is cut into 255 steps.
struct QuantizePerTensor : StatelessHook<QuantizePerTensor> {
  static constexpr std::string_view name = "quantize_per_tensor";
  static Future<Tensor> run(GradBucket& bucket, const ProcessGroup& group);
};
/// The same, with a range for every `channel` elements.
struct QuantizePerChannel : StatelessHook<QuantizePerChannel> {
  static constexpr std::string_view name = "quantize_per_channel";
  static constexpr int64_t channel = 512;
  static Future<Tensor> run(GradBucket& bucket, const ProcessGroup& group);
};

inline constexpr AllReduce allreduce;
inline constexpr Noop noop;
inline constexpr Compress<DType::Float16> fp16_compress;
inline constexpr Compress<DType::BFloat16> bf16_compress;
inline constexpr QuantizePerTensor quantize_per_tensor;
inline constexpr QuantizePerChannel quantize_per_channel;

using BucketHook = std::function<Future<Tensor>(GradBucket&)>;

namespace detail {
BucketHook compress_around(DType dtype, BucketHook inner);
BucketHook step_after(BucketHook inner,
                      std::function<void(const Tensor& param, const Tensor& grad)> step,
                      std::vector<Tensor> only);
/// Binds the state, which is a shared_ptr or absent.
template <class F>
BucketHook bound(F hook) {
  return [f = std::make_shared<F>(std::move(hook))](GradBucket& bucket) {
    return std::invoke(*f, bucket);
  };
}
template <class S, class F>
BucketHook bound(std::shared_ptr<S> state, F hook) {
  return [state = std::move(state), f = std::make_shared<F>(std::move(hook))](GradBucket& bucket) {
    return std::invoke(*f, *state, bucket);
  };
}
}  // namespace detail

/// Runs another hook on the bucket in 16 bits: `fp16_wrapper(power_sgd_state, power_sgd)`,
/// `fp16_wrapper(allreduce)`.
template <class... A>
BucketHook fp16_wrapper(A... state_and_hook) {
  return detail::compress_around(DType::Float16, detail::bound(std::move(state_and_hook)...));
}
/// The same with bf16.
template <class... A>
BucketHook bf16_wrapper(A... state_and_hook) {
  return detail::compress_around(DType::BFloat16, detail::bound(std::move(state_and_hook)...));
}

template <class O>
concept StepsParameters = requires(O& o, const Tensor& t) { o.step_param(t, t); };

/// Runs another hook and steps each parameter of the bucket with its averaged gradient as soon as
/// that has arrived; `only` names the parameters to step, default all. grad() is written as usual.
template <class F, class O>
BucketHook hook_then_optimizer(F inner, std::shared_ptr<O> optimizer,
                               std::vector<Tensor> only = {}) {
  static_assert(StepsParameters<O>, "the optimiser must offer step_param(param, grad)");
  check(optimizer != nullptr, "hook_then_optimizer: the optimiser is null.");
  return detail::step_after(
      detail::bound(std::move(inner)),
      [optimizer](const Tensor& p, const Tensor& g) { optimizer->step_param(p, g); },
      std::move(only));
}

/// Sums in type `dtype`, divided by the number of ranks afterwards; what reduced-precision training
/// uses.
BucketHook reduce_in(DType dtype);

/// A hook of this file that has no state, by name; an error that lists the names if there is none.
BucketHook by_name(std::string_view name);
/// Their names.
std::vector<std::string_view> builtin_names();

}  // namespace grapnel::dist::hooks
