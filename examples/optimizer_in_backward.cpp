/// The optimiser's step as a hook: each parameter is updated as soon as its gradient is complete,
/// and the gradient is freed at once.
///
/// The weights have the same bits as with a step after the pass, but at no time does more than one
/// gradient exist.
#include <grapnel/grapnel.h>

#include <cstdio>
using namespace grapnel;

namespace {

struct Result {
  Tensor weights;
  int most_gradients = 0;  ///< that existed at the same time
};

Result train(bool in_backward) {
  manual_seed(1);
  nn::Sequential net(nn::Linear(32, 64), nn::ReLU(), nn::Linear(64, 64), nn::ReLU(),
                     nn::Linear(64, 1));
  optim::AdamW optimizer(net->parameters(), optim::AdamWOptions(1e-2));
  Result result;
  const auto count = [&] {
    int defined = 0;
    for (const Tensor& p : net->parameters()) defined += p.grad().defined();
    result.most_gradients = std::max(result.most_gradients, defined);
  };
  // Registered first, so it sees each gradient before the optimiser has used it up.
  for (const Tensor& p : net->parameters())
    p.register_post_accumulate_grad_hook([&](const Tensor&) { count(); });
  std::optional<optim::StepInBackward> stepping;
  if (in_backward) stepping.emplace(optimizer);

  for (int step = 0; step < 50; ++step) {
    const Tensor x = randn({16, 32}), y = x.sum({1}, true).tanh();
    if (!in_backward) optimizer.zero_grad();
    mse_loss(net(x), y).backward();
    if (!in_backward) optimizer.step();
  }
  result.weights = nn::utils::parameters_to_vector(net->parameters()).detach().clone();
  return result;
}

}  // namespace

int main() {
  const Result after = train(false), inside = train(true);
  const bool same = inside.weights.equal(after.weights);
  std::printf(
      "gradients alive at once: %d with a step after the pass, %d with steps inside it; %s bits\n",
      after.most_gradients, inside.most_gradients, same ? "the same" : "other");
  return same && inside.most_gradients == 1 ? 0 : 1;
}
