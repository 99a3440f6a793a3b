/// The models that `grapnel train` knows: an MLP and a CNN for images of 28 x 28 pixels, and a
/// small GPT for text.
#pragma once

#include <memory>
#include <string>

#include "grapnel/grapnel.h"

namespace command {

/// Logits for a batch: [B, classes] for images, [B, T, vocabulary] for text.
struct NetImpl : grapnel::nn::Module {
  virtual grapnel::Tensor forward(const grapnel::Tensor& x) = 0;
};

struct ModelSizes {
  int64_t classes = 10;  ///< or the number of different characters
  int64_t block = 64;    ///< characters per window, for text
};

bool is_text_model(const std::string& name);
/// `name` is mlp, cnn or gpt. Parameters come from the default generator.
std::shared_ptr<NetImpl> make_model(const std::string& name, const ModelSizes& sizes);

}  // namespace command
