/// What files_fuzz and its corpus agree on: a small run that has a bit of everything, and the key of
/// an entry of the kernel cache.
#pragma once

#include <string>

#include "grapnel/grapnel.h"
#include "grapnel/train/checkpoint.h"

namespace grapnel::fuzz {

inline constexpr const char* cache_key = "key";

struct CheckpointParts {
  nn::Linear net{2, 1};
  optim::Adam opt{net->parameters(), optim::AdamOptions(0.1)};
  optim::StepLR schedule{opt, 2};
  Generator random{1};
  Tensor average = zeros({2});
  std::string text = "text";
  int64_t step = 3;
  Checkpoint state;
  CheckpointParts() {
    state.add("model", net).add("optimizer", opt).add("schedule", schedule).add("random", random);
    state.add("average", average).add("text", text).add("step", step);
  }
};

}  // namespace grapnel::fuzz
