/// The networks of bench/training.cpp, bench/training.py and bench/hooks.cpp, with the same numbers
/// everywhere.
#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "grapnel/grapnel.h"

namespace networks {

using namespace grapnel;

/// The same numbers in every library: between -0.5 and 0.5 times `scale`.
inline Tensor numbers(const Shape& sizes, int seed, double scale) {
  Tensor t = empty(sizes);
  float* p = t.data_ptr<float>();
  for (int64_t i = 0; i < t.numel(); ++i)
    p[i] = static_cast<float>(scale * (static_cast<double>((static_cast<uint64_t>(i) * 2654435761u +
                                                            static_cast<uint64_t>(seed) * 40503u) %
                                                           1009) /
                                           1009 -
                                       0.5));
  return t;
}
inline Tensor labels(const Shape& sizes, int64_t below) {
  Tensor t = empty(sizes, kInt64);
  int64_t* p = t.data_ptr<int64_t>();
  for (int64_t i = 0; i < t.numel(); ++i) p[i] = i * 7919 % below;
  return t;
}

struct Net : nn::Module {
  virtual Tensor forward(const Tensor& x) = 0;
};

struct Mlp final : Net {
  nn::Linear a{register_module("a", nn::Linear(784, 512))},
      b{register_module("b", nn::Linear(512, 512))}, c{register_module("c", nn::Linear(512, 10))};
  Tensor forward(const Tensor& x) override { return c(relu(b(relu(a(x))))); }
};

struct Cnn final : Net {
  nn::Conv2d a{register_module("a", nn::Conv2d(nn::Conv2dOptions(1, 16, 3).padding(1)))},
      b{register_module("b", nn::Conv2d(nn::Conv2dOptions(16, 32, 3).padding(1)))};
  nn::Linear c{register_module("c", nn::Linear(32 * 7 * 7, 64))},
      d{register_module("d", nn::Linear(64, 10))};
  Tensor forward(const Tensor& x) override {
    const Tensor h = max_pool2d(relu(b(max_pool2d(relu(a(x)), {2, 2}))), {2, 2});
    return d(relu(c(h.flatten(1))));
  }
};

inline constexpr int64_t kWidth = 128, kTime = 128, kHeads = 4, kVocabulary = 256, kLayers = 4;

struct Block final : nn::Module {
  nn::LayerNorm norm1{register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({kWidth})))},
      norm2{register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({kWidth})))};
  nn::Linear qkv{register_module("qkv", nn::Linear(kWidth, 3 * kWidth))},
      out{register_module("out", nn::Linear(kWidth, kWidth))};
  nn::Linear up{register_module("up", nn::Linear(kWidth, 4 * kWidth))},
      down{register_module("down", nn::Linear(4 * kWidth, kWidth))};

  Tensor forward(const Tensor& x) {
    const int64_t batch = x.size(0), time = x.size(1);
    const auto parts = qkv(norm1(x)).chunk(3, 2);
    const auto heads = [&](const Tensor& t) {
      return t.reshape({batch, time, kHeads, kWidth / kHeads}).transpose(1, 2);
    };
    const Tensor mixed = scaled_dot_product_attention(heads(parts[0]), heads(parts[1]),
                                                      heads(parts[2]), {}, 0.0, /*is_causal=*/true);
    const Tensor h = x + out(mixed.transpose(1, 2).reshape({batch, time, kWidth}));
    return h + down(gelu(up(norm2(h))));
  }
};

struct Gpt final : Net {
  Tensor token = register_parameter("token", empty({kVocabulary, kWidth})),
         place = register_parameter("place", empty({kTime, kWidth}));
  std::vector<std::shared_ptr<Block>> blocks;
  nn::LayerNorm norm{nullptr};
  nn::Linear head{nullptr};
  Gpt() {
    for (int64_t i = 0; i < kLayers; ++i)
      blocks.push_back(register_module(str("block", i), std::make_shared<Block>()));
    norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({kWidth})));
    head = register_module("head", nn::Linear(kWidth, kVocabulary));
  }
  Tensor forward(const Tensor& x) override {
    Tensor h = embedding(token, x) + place;
    for (const auto& block : blocks) h = block->forward(h);
    return head(norm(h)).flatten(0, 1);
  }
};

/// A sequence to one of ten classes.
struct Lstm final : Net {
  nn::LSTM lstm{register_module("lstm", nn::LSTM(64, 256))};
  nn::Linear head{register_module("head", nn::Linear(256, 10))};
  Tensor forward(const Tensor& x) override { return head(std::get<0>(lstm(x)).select(0, -1)); }
};

/// A network with parameters set, and a batch for it.
struct Workload {
  std::shared_ptr<Net> net;
  Tensor x, y;

  explicit Workload(const std::string& model) {
    if (model == "mlp")
      net = std::make_shared<Mlp>(), x = numbers({64, 784}, 99, 2), y = labels({64}, 10);
    else if (model == "cnn")
      net = std::make_shared<Cnn>(), x = numbers({64, 1, 28, 28}, 99, 2), y = labels({64}, 10);
    else if (model == "lstm")
      net = std::make_shared<Lstm>(), x = numbers({64, 32, 64}, 99, 2), y = labels({32}, 10);
    else
      net = std::make_shared<Gpt>(), x = labels({8, kTime}, kVocabulary),
      y = labels({8 * kTime}, kVocabulary - 1);

    const NoGradGuard off;
    int seed = 0;
    for (auto& item : net->named_parameters()) {
      const Tensor& p = item.value();
      if (p.dim() > 1)
        p.copy_(
            numbers(p.shape(), ++seed, 2 / std::sqrt(static_cast<double>(p.numel() / p.size(0)))));
      else p.fill_(item.key().ends_with("weight") ? 1 : 0);
    }
  }
};

}  // namespace networks
