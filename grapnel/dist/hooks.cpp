#include "grapnel/dist/hooks.h"

#include <tuple>

#include "grapnel/autograd/grad_mode.h"
#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"

namespace grapnel::dist {

namespace hooks {

Future<Tensor> AllReduce::run(GradBucket& bucket, const ProcessGroup& group) {
  // Divided first, so that sums of 16-bit gradients do not overflow.
  bucket.buffer().div_(group.size());
  return group.all_reduce(bucket.buffer()).single();
}

Future<Tensor> Noop::run(GradBucket& bucket, const ProcessGroup&) {
  return Future<Tensor>(bucket.buffer());
}

template <DType dtype>
Future<Tensor> Compress<dtype>::run(GradBucket& bucket, const ProcessGroup& group) {
  const Tensor small = bucket.buffer().to(dtype).div_(group.size());
  return group.all_reduce(small).single().then(
      [buffer = bucket.buffer()](const Tensor& sum) { return buffer.copy_(sum); });
}
template struct Compress<DType::Float16>;
template struct Compress<DType::BFloat16>;

namespace detail {

BucketHook compress_around(DType dtype, BucketHook inner) {
  return [dtype, inner = std::move(inner)](GradBucket& bucket) {
    bucket.set_buffer(bucket.buffer().to(dtype));
    return inner(bucket).then([buffer = bucket.buffer()](const Tensor& result) {
      return result.is_same(buffer) ? buffer : buffer.copy_(result);
    });
  };
}

BucketHook step_after(BucketHook inner, std::function<void(const Tensor&, const Tensor&)> step,
                      std::vector<Tensor> only) {
  std::unordered_set<const TensorImpl*> chosen;
  for (const Tensor& t : only) chosen.insert(t.impl_ptr());
  return [inner = std::move(inner), step = std::move(step), chosen = std::move(chosen),
          keep = std::move(only)](GradBucket& bucket) {
    return inner(bucket).then([bucket, step, chosen](const Tensor& result) {
      // The gradients of the result, not of the buffer: the inner hook may have made a new tensor.
      const std::vector<Tensor> grads = bucket.views_of(result.view({-1}));
      for (size_t i = 0; i < grads.size(); ++i) {
        const Tensor& p = bucket.parameters()[i];
        if (chosen.empty() || chosen.contains(p.impl_ptr()))
          step(p, grads[i].dtype() == p.dtype() ? grads[i] : grads[i].to(p.dtype()));
      }
      return result;
    });
  };
}

}  // namespace detail

BucketHook reduce_in(DType dtype) {
  return [dtype](GradBucket& bucket) {
    const Tensor wide =
        bucket.buffer().dtype() == dtype ? bucket.buffer() : bucket.buffer().to(dtype);
    const int ranks = bucket.group().size();
    return bucket.group().all_reduce(wide).single().then(
        [ranks](const Tensor& sum) { return sum.div_(ranks); });
  };
}

namespace {
/// The hooks without a state, each with its own name.
constexpr auto builtin = std::tie(allreduce, fp16_compress, bf16_compress, quantize_per_tensor,
                                  quantize_per_channel, noop);
}  // namespace

std::vector<std::string_view> builtin_names() {
  return std::apply([](const auto&... hook) { return std::vector{hook.name...}; }, builtin);
}

BucketHook by_name(std::string_view name) {
  BucketHook found;
  const auto look_at = [&](const auto& hook) {
    if (hook.name == name) found = hook;
  };
  std::apply([&](const auto&... hook) { (look_at(hook), ...); }, builtin);
  if (found) return found;
  std::string all;
  for (const std::string_view known : builtin_names()) all += str(all.empty() ? "" : ", ", known);
  fail("there is no built-in comm hook '", name, "'.\nThere are ", all, ".");
}

}  // namespace hooks
}  // namespace grapnel::dist
