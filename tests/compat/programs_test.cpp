// Small programs in the manner of LibTorch's tutorials: each is trained, and learns what it is shown.
#include <doctest/doctest.h>

#include <cmath>
#include <iostream>

#include "grapnel/compat/torch.h"

namespace F = torch::nn::functional;

namespace {

// --- digits, from a dataset of the program's own ---

/// Images with a bright row or a bright column, not at the edge, which the network does not see.
class Stripes : public torch::data::datasets::Dataset<Stripes> {
 public:
  torch::data::Example<> get(size_t index) override {
    auto image = torch::zeros({1, 12, 12});
    const int64_t kind = static_cast<int64_t>(index % 2),
                  at = static_cast<int64_t>(index / 2 % 8) + 1;
    image.select(kind + 1, at).fill_(1.0);
    return {image, torch::tensor(kind, torch::kLong)};
  }
  torch::optional<size_t> size() const override { return 96; }
};

struct Net : torch::nn::Module {
  Net()
      : conv1(torch::nn::Conv2dOptions(1, 6, /*kernel_size=*/3)),
        conv2(torch::nn::Conv2dOptions(6, 8, /*kernel_size=*/3)),
        fc1(8 * 1 * 1, 16),
        fc2(16, 2) {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("conv2_drop", conv2_drop);
    register_module("fc1", fc1);
    register_module("fc2", fc2);
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(torch::max_pool2d(conv1->forward(x), 2));
    x = torch::relu(torch::max_pool2d(conv2_drop->forward(conv2->forward(x)), 2));
    x = x.view({-1, 8});
    x = torch::relu(fc1->forward(x));
    x = torch::dropout(x, /*p=*/0.1, /*training=*/is_training());
    return torch::log_softmax(fc2->forward(x), /*dim=*/1);
  }
  torch::nn::Conv2d conv1, conv2;
  torch::nn::Dropout2d conv2_drop{0.1};
  torch::nn::Linear fc1, fc2;
};

template <typename DataLoader>
void train(Net& model, torch::Device device, DataLoader& loader,
           torch::optim::Optimizer& optimizer) {
  model.train();
  for (auto& batch : loader) {
    auto data = batch.data.to(device), targets = batch.target.to(device);
    optimizer.zero_grad();
    auto loss = torch::nll_loss(model.forward(data), targets);
    AT_ASSERT(!std::isnan(loss.template item<float>()));
    loss.backward();
    optimizer.step();
  }
}

template <typename DataLoader>
double accuracy(Net& model, torch::Device device, DataLoader& loader, size_t size) {
  torch::NoGradGuard no_grad;
  model.eval();
  double loss = 0;
  int64_t correct = 0;
  for (const auto& batch : loader) {
    auto output = model.forward(batch.data.to(device));
    loss += torch::nll_loss(output, batch.target, /*weight=*/{}, torch::Reduction::Sum)
                .template item<float>();
    correct += output.argmax(1).eq(batch.target).sum().template item<int64_t>();
  }
  return static_cast<double>(correct) / static_cast<double>(size);
}

}  // namespace

TEST_CASE("a convolutional network learns from a loader, as in the first example of most") {
  torch::manual_seed(1);
  torch::Device device(torch::cuda::is_available() ? torch::kCUDA : torch::kCPU);
  Net model;
  model.to(device);
  auto dataset = Stripes()
                     .map(torch::data::transforms::Normalize<>(0.08, 0.27))
                     .map(torch::data::transforms::Stack<>());
  const size_t size = dataset.size().value();
  auto loader = torch::data::make_data_loader<torch::data::samplers::RandomSampler>(
      std::move(dataset), torch::data::DataLoaderOptions().batch_size(16).workers(1));
  torch::optim::Adam optimizer(model.parameters(), torch::optim::AdamOptions(0.01));
  for (int epoch = 0; epoch < 15; ++epoch) train(model, device, *loader, optimizer);
  CHECK(accuracy(model, device, *loader, size) > 0.95);
}

// --- two networks against each other ---

namespace {

struct GeneratorImpl : torch::nn::Module {
  explicit GeneratorImpl(int noise)
      : conv1(torch::nn::ConvTranspose2dOptions(noise, 16, 4).bias(false)),
        batch_norm1(16),
        conv2(torch::nn::ConvTranspose2dOptions(16, 8, 4).stride(2).padding(1).bias(false)),
        batch_norm2(8),
        conv3(torch::nn::ConvTranspose2dOptions(8, 1, 4).stride(2).padding(1).bias(false)) {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("conv3", conv3);
    register_module("batch_norm1", batch_norm1);
    register_module("batch_norm2", batch_norm2);
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(batch_norm1(conv1(x)));
    x = torch::relu(batch_norm2(conv2(x)));
    return torch::tanh(conv3(x));
  }
  torch::nn::ConvTranspose2d conv1;
  torch::nn::BatchNorm2d batch_norm1;
  torch::nn::ConvTranspose2d conv2;
  torch::nn::BatchNorm2d batch_norm2;
  torch::nn::ConvTranspose2d conv3;
};
TORCH_MODULE(Generator);

torch::nn::Sequential make_discriminator() {
  return torch::nn::Sequential(
      torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 8, 4).stride(2).padding(1).bias(false)),
      torch::nn::LeakyReLU(torch::nn::LeakyReLUOptions().negative_slope(0.2)),
      torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 16, 4).stride(2).padding(1).bias(false)),
      torch::nn::BatchNorm2d(16),
      torch::nn::LeakyReLU(torch::nn::LeakyReLUOptions().negative_slope(0.2)),
      torch::nn::Conv2d(torch::nn::Conv2dOptions(16, 1, 4).stride(1).padding(0).bias(false)),
      torch::nn::Sigmoid());
}

}  // namespace

TEST_CASE("a generator learns from a discriminator what images are like") {
  torch::manual_seed(2);
  const int64_t noise = 8, batch = 16;
  Generator generator(static_cast<int>(noise));
  auto discriminator = make_discriminator();
  torch::optim::Adam generator_optimizer(
      generator->parameters(), torch::optim::AdamOptions(2e-3).betas(std::make_tuple(0.5, 0.999)));
  torch::optim::Adam discriminator_optimizer(
      discriminator->parameters(),
      torch::optim::AdamOptions(1e-3).betas(std::make_tuple(0.5, 0.999)));
  // All images are bright.
  const auto real_images = [&] { return torch::rand({batch, 1, 16, 16}) * 0.2 + 0.7; };
  const auto fakes = [&] { return generator->forward(torch::randn({batch, noise, 1, 1})); };
  const double before = fakes().mean().item<double>();
  CHECK(std::abs(before) < 0.3);
  for (int step = 0; step < 60; ++step) {
    discriminator->zero_grad();
    auto real_labels = torch::empty({batch}).uniform_(0.8, 1.0);
    auto real_output = discriminator->forward(real_images()).reshape(real_labels.sizes());
    auto d_loss_real = torch::binary_cross_entropy(real_output, real_labels);
    d_loss_real.backward();
    auto fake_images = fakes();
    auto fake_labels = torch::zeros({batch});
    auto fake_output = discriminator->forward(fake_images.detach()).reshape({batch});
    auto d_loss_fake = torch::binary_cross_entropy(fake_output, fake_labels);
    d_loss_fake.backward();
    discriminator_optimizer.step();

    generator->zero_grad();
    fake_labels.fill_(1);
    auto judged = discriminator->forward(fake_images).reshape(fake_labels.sizes());
    auto g_loss = torch::binary_cross_entropy(judged, fake_labels);
    g_loss.backward();
    generator_optimizer.step();
  }
  CHECK(fakes().mean().item<double>() > before + 0.3);
}

// --- a polynomial, with one layer ---

TEST_CASE("a linear layer finds the weights of a polynomial") {
  torch::manual_seed(3);
  const auto features = [](torch::Tensor x) {
    x = x.unsqueeze(1);
    std::vector<torch::Tensor> powers;
    for (int64_t i = 1; i < 5; ++i) powers.push_back(x.pow(i));
    return torch::cat(powers, 1);
  };
  const auto weights = torch::randn({4, 1}) * 5, bias = torch::randn({1}) * 5;
  torch::nn::Linear fc(weights.size(0), 1);
  torch::optim::SGD optimizer(fc->parameters(), 0.1);
  float loss = 0;
  size_t steps = 0;
  while (++steps < 4000) {
    auto x = features(torch::randn({64}).clamp(-1.5, 1.5)), y = x.mm(weights) + bias[0];
    optimizer.zero_grad();
    auto output = torch::smooth_l1_loss(fc->forward(x), y);
    loss = output.item<float>();
    output.backward();
    for (auto& parameter : fc->parameters()) parameter.grad().clamp_(-1, 1);
    optimizer.step();
    if (loss < 1e-3f) break;
  }
  CHECK(loss < 1e-3f);
  std::ostringstream text;
  text << fc;
  CHECK(text.str().find("in_features=4") != std::string::npos);
}

// --- words and their kinds, with an LSTM ---

namespace {

class Tagger : public torch::nn::Module {
 public:
  Tagger(int64_t embedding, int64_t hidden, int64_t words, int64_t tags)
      : embeddings(register_module("embeddings", torch::nn::Embedding(words, embedding))),
        lstm(register_module("lstm", torch::nn::LSTM(torch::nn::LSTMOptions(embedding, hidden)))),
        to_tags(register_module("to_tags", torch::nn::Linear(hidden, tags))) {}
  torch::Tensor forward(torch::Tensor sentence) {
    auto embedded = embeddings(sentence);
    auto [out, state] = lstm->forward(embedded.view({sentence.size(0), 1, -1}));
    return F::log_softmax(to_tags(out.view({sentence.size(0), -1})), 1);
  }

 private:
  torch::nn::Embedding embeddings;
  torch::nn::LSTM lstm;
  torch::nn::Linear to_tags;
};

}  // namespace

TEST_CASE("an LSTM tags the words of two sentences") {
  torch::manual_seed(1);
  using Words = std::vector<std::string>;
  const std::vector<std::pair<Words, Words>> data = {
      {{"The", "dog", "ate", "the", "apple"}, {"DET", "NN", "V", "DET", "NN"}},
      {{"Everybody", "read", "that", "book"}, {"NN", "V", "DET", "NN"}}};
  std::unordered_map<std::string, int64_t> word_index, tag_index{{"DET", 0}, {"NN", 1}, {"V", 2}};
  for (const auto& [words, tags] : data)
    for (const auto& word : words)
      word_index.emplace(word, static_cast<int64_t>(word_index.size()));
  const auto prepare = [](const Words& words,
                          const std::unordered_map<std::string, int64_t>& index) {
    std::vector<int64_t> out;
    for (const auto& word : words) out.push_back(index.at(word));
    return torch::tensor(out, torch::kLong);
  };
  Tagger model(6, 6, static_cast<int64_t>(word_index.size()), 3);
  torch::optim::SGD optimizer(model.parameters(), 0.1);
  for (int epoch = 0; epoch < 400; ++epoch)
    for (const auto& [words, tags] : data) {
      model.zero_grad();
      auto loss =
          torch::nll_loss(model.forward(prepare(words, word_index)), prepare(tags, tag_index));
      loss.backward();
      optimizer.step();
    }
  torch::NoGradGuard no_grad;
  for (const auto& [words, tags] : data)
    CHECK(model.forward(prepare(words, word_index)).argmax(1).equal(prepare(tags, tag_index)));
}
