/// What the backward pass needs waits on the disk instead of in memory, through hooks on saved
/// tensors.
///
/// The gradients have the same bits; every file is gone when its node has used it.
#include <grapnel/grapnel.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
using namespace grapnel;
namespace fs = std::filesystem;

namespace {

int64_t bytes_in(const fs::path& folder) {
  int64_t bytes = 0;
  for (const auto& file : fs::directory_iterator(folder))
    bytes += static_cast<int64_t>(file.file_size());
  return bytes;
}

Tensor gradients(const nn::Module& net) {
  std::vector<Tensor> all;
  for (const Tensor& p : net.parameters()) all.push_back(p.grad());
  return nn::utils::parameters_to_vector(all);
}

}  // namespace

int main() {
  manual_seed(1);
  nn::Sequential net(nn::Linear(64, 512), nn::GELU(), nn::Linear(512, 512), nn::GELU(),
                     nn::Linear(512, 1));
  const Tensor x = randn({256, 64});
  net(x).square().mean().backward();
  const Tensor wanted = gradients(*net);
  net->zero_grad();

  // A folder that is nobody else's.
  std::string name = (fs::temp_directory_path() / "grapnel-activations-XXXXXX").string();
  if (!mkdtemp(name.data())) return 1;
  const fs::path folder = name;
  int64_t waiting = 0, left = 0;
  {
    const hooks::SavedHook hook = hooks::save_to_disk(folder);
    Tensor loss;
    {
      const autograd::SavedTensorHooks scope(hook.pack, hook.unpack);
      loss = net(x).square().mean();
    }
    waiting = bytes_in(folder);
    loss.backward();
    left = bytes_in(folder);
  }
  fs::remove_all(folder);
  const bool same = gradients(*net).equal(wanted);
  std::printf("%lld bytes waited on the disk, %lld are left; %s gradients\n",
              static_cast<long long>(waiting), static_cast<long long>(left),
              same ? "the same" : "other");
  return same && waiting > 1'000'000 && left == 0 ? 0 : 1;
}
