/// A very small GPT learns a poem by heart, in a compiled step with a clipping hook on every
/// parameter, and then says it.
#include <grapnel/grapnel.h>

#include <cstdio>
using namespace grapnel;

namespace {

constexpr const char* poem =
    "Twinkle, twinkle, little star,\nHow I wonder what you are!\nUp above the world so high,\nLike "
    "a diamond "
    "in the sky.\n"
    "When the blazing sun is gone,\nWhen he nothing shines upon,\nThen you show your little "
    "light,\nTwinkle, "
    "twinkle, all the night.\n";

/// A decoder-only transformer over characters. B batch, T time, E features.
struct GptImpl : nn::Module {
  GptImpl(int64_t vocabulary, int64_t block, int64_t features)
      : token(register_module("token", nn::Embedding(vocabulary, features))),
        place(register_module("place", nn::Embedding(block, features))),
        layer(register_module(
            "layer", nn::TransformerEncoderLayer(nn::TransformerEncoderLayerOptions(features, 4)
                                                     .dim_feedforward(4 * features)
                                                     .dropout(0)
                                                     .batch_first(true)
                                                     .norm_first(true)))),
        head(register_module("head", nn::Linear(features, vocabulary))),
        later(ones({block, block}, kBool).triu(1)) {}
  Tensor forward(const Tensor& x) {  // [B, T] -> [B, T, vocabulary]
    const int64_t time = x.size(1);
    return head(layer(token(x) + place(arange(time)), later.narrow(0, 0, time).narrow(1, 0, time)));
  }
  nn::Embedding token, place;
  nn::TransformerEncoderLayer layer;
  nn::Linear head;
  Tensor later;  ///< true where a character would see one that follows it
};
GRAPNEL_MODULE(Gpt);

}  // namespace

int main() {
  manual_seed(1);
  constexpr int64_t block = 32;
  const auto corpus = data::TextCorpus::from_text(poem, {.block = block, .stride = 1});
  data::DataLoader loader(std::make_shared<data::TextCorpus>(corpus),
                          {.batch_size = 32, .shuffle = true});
  Gpt gpt(corpus.vocab_size(), block, 48);
  optim::AdamW optimizer(gpt->parameters(), optim::AdamWOptions(5e-3));
  hooks::attach(gpt->parameters(), hooks::ClipNorm{1.0});

  auto step = compile([&](const Tensor& x, const Tensor& y) {
    optimizer.zero_grad();
    const Tensor loss = cross_entropy(gpt(x).flatten(0, 1), y.flatten());
    loss.backward();
    optimizer.step();
    return loss.detach();
  });
  double loss = 0;
  for (int64_t epoch = 0; epoch < 40; ++epoch)
    for (const data::Example& batch : loader.epoch(epoch))
      loss = step(batch.data, batch.target).item<double>();

  // Greedily, one character after the other.
  const NoGradGuard no_grad;
  std::vector<int64_t> said = corpus.encode("Twinkle, twinkle, little st");
  while (said.size() < 120) {
    const auto size = std::min<int64_t>(block, static_cast<int64_t>(said.size()));
    const Tensor recent =
        from_blob(said.data() + said.size() - static_cast<size_t>(size), {1, size}, kInt64);
    said.push_back(gpt(recent).select(1, size - 1).argmax(-1).item<int64_t>());
  }
  const std::string text = corpus.decode(said);
  std::printf("loss %.3f after %lld graphs; it says:\n%s\n", loss,
              static_cast<long long>(step.stats().graphs), text.c_str());
  return loss < 0.3 && text.find("How I wonder what you are!") != std::string::npos ? 0 : 1;
}
