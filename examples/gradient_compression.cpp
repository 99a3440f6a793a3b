/// Gradients travel between ranks in 32, 16 and 8 bits and as thin matrices (PowerSGD); what is
/// sent shrinks, what is learnt stays.
///
///   mpirun -np 2 gradient_compression        processes as ranks
///   gradient_compression                     two threads as ranks
#include <grapnel/grapnel.h>

#include <cmath>
#include <cstdio>
using namespace grapnel;

namespace {

struct Result {
  double loss = 0;
  uint64_t bytes = 0;
};

template <class Register>
Result train(const dist::ProcessGroup& group, Register register_hook) {
  Generator draw(1);
  const Tensor truth = randn({64, 8}, draw) / 8;
  nn::Sequential net(nn::Linear(64, 128), nn::Tanh(), nn::Linear(128, 8));
  {
    const NoGradGuard no_grad;
    for (const Tensor& p : net->parameters()) p.copy_(randn(p.shape(), draw) * 0.1);
  }
  dist::DistributedDataParallel model(net, group);
  register_hook(model);
  optim::Adam optimizer(model.parameters(), optim::AdamOptions(1e-2));
  Generator mine(static_cast<uint64_t>(100 + group.rank()));  // every rank has data of its own
  const uint64_t before = group.bytes_sent();
  Result result;
  for (int step = 0; step < 150; ++step) {
    const Tensor x = randn({32, 64}, mine), y = x.matmul(truth);
    optimizer.zero_grad();
    const Tensor loss = mse_loss(model(x), y);
    loss.backward();
    optimizer.step();
    result.loss = loss.item<double>();
  }
  result.bytes = group.bytes_sent() - before;
  return result;
}

bool compare(const dist::ProcessGroup& group) {
  const auto plain =
      train(group, [](auto& model) { model.register_comm_hook(dist::hooks::allreduce); });
  const auto half =
      train(group, [](auto& model) { model.register_comm_hook(dist::hooks::fp16_compress); });
  const auto eighth = train(
      group, [](auto& model) { model.register_comm_hook(dist::hooks::quantize_per_channel); });
  const auto thin = train(group, [&](auto& model) {
    model.register_comm_hook(
        std::make_shared<dist::hooks::PowerSGDState>(dist::hooks::PowerSGDOptions{
            .matrix_approximation_rank = 4, .start_powerSGD_iter = 10}),
        dist::hooks::power_sgd);
  });
  if (group.rank() == 0)
    for (const auto& [name, r] :
         {std::pair("32 bits", plain), {"16 bits", half}, {"8 bits", eighth}, {"PowerSGD", thin}})
      std::printf("%-9s  %8llu bytes per rank, loss %.4f\n", name,
                  static_cast<unsigned long long>(r.bytes), r.loss);
  return half.bytes < plain.bytes && eighth.bytes < half.bytes && thin.bytes < half.bytes &&
         std::abs(half.loss - plain.loss) < 0.02 && thin.loss < 0.2;
}

}  // namespace

int main() {
  bool good = true;
  if (dist::launched_by_mpi()) good = compare(dist::init());
  else
    dist::run_threads(2, [&](const dist::ProcessGroup& group) {
      if (const bool mine = compare(group); group.rank() == 0) good = mine;
    });
  return good ? 0 : 1;
}
