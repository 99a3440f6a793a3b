#include "command/models.h"

namespace command {

using namespace grapnel;

namespace {

struct Mlp final : NetImpl {
  explicit Mlp(int64_t classes)
      : fc1(register_module("fc1", nn::Linear(784, 256))),
        fc2(register_module("fc2", nn::Linear(256, 128))),
        fc3(register_module("fc3", nn::Linear(128, classes))) {}
  Tensor forward(const Tensor& x) override { return fc3(relu(fc2(relu(fc1(x.flatten(1)))))); }
  nn::Linear fc1, fc2, fc3;
};

struct Cnn final : NetImpl {
  explicit Cnn(int64_t classes)
      : conv1(register_module("conv1", nn::Conv2d(nn::Conv2dOptions(1, 16, 3).padding(1)))),
        conv2(register_module("conv2", nn::Conv2d(nn::Conv2dOptions(16, 32, 3).padding(1)))),
        fc1(register_module("fc1", nn::Linear(32 * 7 * 7, 64))),
        fc2(register_module("fc2", nn::Linear(64, classes))) {}
  Tensor forward(const Tensor& x) override {
    const Tensor small = relu(max_pool2d(conv1(x), {2, 2}));
    const Tensor smaller = relu(max_pool2d(conv2(small), {2, 2}));
    return fc2(relu(fc1(smaller.flatten(1))));
  }
  nn::Conv2d conv1, conv2;
  nn::Linear fc1, fc2;
};

/// Decoder-only transformer over characters. B batch, T time, E features.
struct Gpt final : NetImpl {
  static constexpr int64_t features = 64, heads = 4, layers = 2;
  Gpt(int64_t vocabulary, int64_t block)
      : token(register_module("token", nn::Embedding(vocabulary, features))),
        place(register_module("place", nn::Embedding(block, features))),
        blocks(register_module("blocks", nn::ModuleList())),
        norm(register_module("norm", nn::LayerNorm(nn::LayerNormOptions({features})))),
        head(register_module("head", nn::Linear(features, vocabulary))),
        later(ones({block, block}, kBool).triu(1)) {
    for (int64_t i = 0; i < layers; ++i)
      blocks->push_back(
          nn::TransformerEncoderLayer(nn::TransformerEncoderLayerOptions(features, heads)
                                          .dim_feedforward(4 * features)
                                          .dropout(0)
                                          .activation(nn::Nonlinearity::relu)
                                          .batch_first(true)
                                          .norm_first(true)));
  }
  Tensor forward(const Tensor& x) override {
    const int64_t time = x.size(1);
    Tensor h = token(x) + place(arange(time));
    const Tensor mask = later.narrow(0, 0, time).narrow(1, 0, time);
    for (const auto& block : *blocks)
      h = block->as<nn::TransformerEncoderLayer>()->forward(h, mask);
    return head(norm(h));
  }
  nn::Embedding token, place;
  nn::ModuleList blocks;
  nn::LayerNorm norm;
  nn::Linear head;
  Tensor later;  ///< [T, T]: true where a character would look at one that follows it
};

}  // namespace

bool is_text_model(const std::string& name) { return name == "gpt"; }

std::shared_ptr<NetImpl> make_model(const std::string& name, const ModelSizes& sizes) {
  if (name == "mlp") return std::make_shared<Mlp>(sizes.classes);
  if (name == "cnn") return std::make_shared<Cnn>(sizes.classes);
  check(name == "gpt", "there is no model '", name, "'; the models are mlp, cnn and gpt.");
  return std::make_shared<Gpt>(sizes.classes, sizes.block);
}

}  // namespace command
