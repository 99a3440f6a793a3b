/// Differential privacy by per-sample clipping (DP-SGD): no single example can move the weights by
/// more than a limit, and noise hides even that.
///
/// One backward pass with hooks::PerSampleNorms gives the norm of every example's own gradient. The
/// second weighs each example so that its gradient is at most `limit` long; a hook on every
/// parameter adds the noise.
#include <grapnel/grapnel.h>

#include <cstdio>
using namespace grapnel;

int main() {
  manual_seed(1);
  // Two clouds of points; ten of the labels are wrong on purpose, and far out, so their gradients
  // are the large ones.
  const int64_t count = 256;
  const Tensor label = randint(0, 2, {count});
  Tensor x = randn({count, 2}) + (label.to(kFloat32) * 4 - 2).view({count, 1});
  Tensor y = label.clone();
  y.narrow(0, 0, 10).copy_(1 - label.narrow(0, 0, 10));
  x.narrow(0, 0, 10).mul_(5);

  const double limit = 0.5, noise = 0.8;
  nn::Sequential net(nn::Linear(2, 16), nn::Tanh(), nn::Linear(16, 2));
  optim::SGD optimizer(net->parameters(), 0.5);
  double largest_before = 0, largest_after = 0;
  for (int step = 0; step < 60; ++step) {
    const Tensor rows = randperm(count).narrow(0, 0, 64), bx = x.index_select(0, rows),
                 by = y.index_select(0, rows);
    Tensor norms;
    {
      hooks::PerSampleNorms per_sample(*net);
      cross_entropy(net(bx), by).backward();
      norms = per_sample.take();
    }
    const Tensor weight = (limit / norms).clamp_max(1.0);
    largest_before = std::max(largest_before, norms.max().item<double>());
    largest_after = std::max(largest_after, (norms * weight).max().item<double>());

    optimizer.zero_grad();
    std::vector<ScopedHook> noisy;
    for (HookHandle& handle : hooks::attach(net->parameters(), hooks::Noise{noise * limit / 64}))
      noisy.emplace_back(handle);
    const Tensor losses = cross_entropy(net(bx), by, {}, Reduce::none);
    (losses * weight).mean().backward();
    optimizer.step();
  }
  const NoGradGuard no_grad;
  const double right = net(x).argmax(1).eq(label).to(kFloat32).mean().item<double>();
  std::printf(
      "largest gradient of one example: %.2f, clipped to %.2f; %.1f %% of the true labels found\n",
      largest_before, largest_after, 100 * right);
  return largest_before > limit && largest_after <= limit * 1.0001 && right > 0.9 ? 0 : 1;
}
