// Several processes train one model together: mpirun -np 2 data_parallel. Started alone, it is the
// only rank.
#include <grapnel/grapnel.h>

#include <iostream>
using namespace grapnel;

int main() {
  dist::ProcessGroup group = dist::init();
  const int64_t share = 60 / group.size();  // every rank has its own part of the data
  Tensor x = linspace(-1, 1, 60).view({60, 1}), y = 3 * x + 0.5;
  x = x.narrow(0, group.rank() * share, share);
  y = y.narrow(0, group.rank() * share, share);

  nn::Linear line(1, 1);
  dist::DistributedDataParallel model(line, group);      // rank 0's parameters are copied to all
  model.register_comm_hook(dist::hooks::fp16_compress);  // gradients travel in 16 bits
  optim::SGD optimizer(model.parameters(), 0.2);
  for (int step = 0; step < 200; ++step) {
    optimizer.zero_grad();
    mse_loss(model(x), y).backward();  // grad() is now the mean over all ranks
    optimizer.step();
  }
  if (group.rank() == 0)
    std::cout << "w = " << line->weight.item<double>() << ", b = " << line->bias.item<double>()
              << " on " << group.size() << " ranks, " << group.bytes_sent()
              << " bytes sent by rank 0\n";
}
