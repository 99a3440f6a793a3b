/// Hooks of grapnel/hooks that know about ranks.
#include "grapnel/hooks/nan_guard.h"
#include "grapnel/nn/nn.h"
#include "tests/dist/ranks.h"

using namespace grapnel;
using namespace grapnel::test;

TEST_CASE("the NaN guard names the rank where a bad value was born, without being told") {
  on_ranks(2, [](ProcessGroup group) {
    const ProcessGroup all = dist::init();
    nn::Sequential net(nn::Linear(2, 2));
    hooks::NanGuard guard(*net);
    const Tensor y = net(full({1, 2}, group.rank() == 1 ? -1e30 : 1.0)).abs();
    (y * 1e20).sum().backward();
    const std::string message = error_of<Error>([&] { guard.check(); });
    if (group.rank() == 0) CHECK(message == "no exception");
    else CHECK(base::without_places(message).ends_with(str(" [rank 1 of ", all.size(), "].")));
  });
}
