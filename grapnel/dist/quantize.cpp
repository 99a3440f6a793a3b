/// Gradients in 8 bits. Every rank has a scale s and a zero point z, for the whole bucket or per
/// channel, and sends q = clamp(round(x / s) + z, 0, 255); the mean is made of s * (q - z) of all
/// ranks.
#include "grapnel/autograd/grad_mode.h"
#include "grapnel/dist/hooks.h"
#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"

namespace grapnel::dist::hooks {

namespace {

constexpr double kSmallestStep = 0x1p-23;

/// Scale and zero point of every row, side by side: [rows, 2].
Tensor scales_of(const Tensor& rows, size_t bucket) {
  const Tensor lo = rows.amin({1}, true).clamp_max(0), hi = rows.amax({1}, true).clamp_min(0);
  // lo and hi pass on NaN and infinities, so looking at them is enough.
  check(isfinite(hi - lo).all().item<bool>(), "quantising: bucket ", bucket,
        " holds a gradient that is not finite, or its range is beyond f32.");
  const Tensor s = ((hi - lo) / 255).clamp_min(kSmallestStep);
  const Tensor z = (-(lo / s).round()).clamp(0, 255);
  return cat({s, z}, 1);
}

Tensor quantized(const Tensor& rows, const Tensor& scales) {
  const Tensor s = scales.narrow(1, 0, 1), z = scales.narrow(1, 1, 1);
  return ((rows / s).round() + z).clamp(0, 255).to(kUInt8);
}

Tensor dequantized(const Tensor& q, const Tensor& scales) {
  const Tensor s = scales.narrow(1, 0, 1), z = scales.narrow(1, 1, 1);
  return (q.to(kFloat32) - z) * s;
}

/// The mean over all ranks of a matrix whose rows have scales of their own, cut to `count`
/// elements.
Future<Tensor> mean_of(const Tensor& rows, int64_t count, size_t bucket,
                       const ProcessGroup& group) {
  const Tensor scales = scales_of(rows, bucket);
  return group.all_gather(scales).future().then(
      [rows, scales, count, group](const std::vector<Tensor>& all_scales) {
        return group.all_gather(quantized(rows, scales))
            .future()
            .then([all_scales, count, group](const std::vector<Tensor>& all) {
              Tensor sum = dequantized(all[0], all_scales[0]);
              for (size_t r = 1; r < all.size(); ++r) sum.add_(dequantized(all[r], all_scales[r]));
              return sum.div_(group.size()).reshape({-1}).narrow(0, 0, count).clone();
            });
      });
}

}  // namespace

Future<Tensor> QuantizePerTensor::run(GradBucket& bucket, const ProcessGroup& group) {
  const Tensor x = bucket.buffer().to(kFloat32);
  return mean_of(x.view({1, -1}), x.numel(), bucket.index(), group);
}

Future<Tensor> QuantizePerChannel::run(GradBucket& bucket, const ProcessGroup& group) {
  const Tensor x = bucket.buffer().to(kFloat32);
  const int64_t rows = (x.numel() + channel - 1) / channel;
  const Tensor padded = zeros({rows * channel}, kFloat32);
  padded.narrow(0, 0, x.numel()).copy_(x);
  return mean_of(padded.view({rows, channel}), x.numel(), bucket.index(), group);
}

}  // namespace grapnel::dist::hooks
