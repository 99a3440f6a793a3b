#include "command/data.h"

namespace command {

using namespace grapnel;

namespace {

constexpr int64_t side = 28, classes = 10;

/// Ten random patterns; an image is one of them, weakened, under noise. Always the same images,
/// whatever was drawn before.
Data generate_images(int64_t train, int64_t test) {
  Generator generator(2017);
  const Tensor patterns = randn({classes, 1, side, side}, generator);
  const auto images = [&](int64_t count, Tensor& x, Tensor& y) {
    y = randint(0, classes, {count}, generator);
    const Tensor strength = 0.15 + 0.25 * rand({count, 1, 1, 1}, generator);
    x = strength * patterns.index_select(0, y) + randn({count, 1, side, side}, generator);
  };
  Data data;
  images(train, data.train_x, data.train_y);
  images(test, data.test_x, data.test_y);
  data.source = "generated images", data.unit = "images", data.generated = true;
  return data;
}

/// Sentences such as "a small cat finds the old house." One draw of numbers chooses all words.
std::string generate_text(int64_t sentences) {
  static constexpr const char* articles[] = {"the", "a", "every", "no"};
  static constexpr const char* adjectives[] = {"small", "old",   "red",    "quiet",
                                               "quick", "heavy", "bright", "lost"};
  static constexpr const char* nouns[] = {"cat",  "house",  "river", "gradient",
                                          "hook", "tensor", "bird",  "kernel"};
  static constexpr const char* verbs[] = {"finds", "sees",  "follows", "holds",
                                          "meets", "clips", "learns",  "moves"};
  Generator generator(2017);
  const Tensor draws = randint(0, 8, {sentences, 7}, generator);
  const int64_t* d = draws.data_ptr<int64_t>();
  std::string text;
  for (int64_t i = 0; i < sentences; ++i, d += 7)
    text += str(articles[d[0] % 4], ' ', adjectives[d[1]], ' ', nouns[d[2]], ' ', verbs[d[3]], ' ',
                articles[d[4] % 4], ' ', adjectives[d[5]], ' ', nouns[d[6]], ".\n");
  return text;
}

Data windows(const data::TextCorpus& corpus, int64_t block) {
  const Tensor tokens = corpus.tokens();
  const int64_t count = (tokens.numel() - 1) / block, test = std::max<int64_t>(1, count / 10);
  check(count >= 4, "the text has ", tokens.numel(), " characters; training takes at least ",
        4 * block + 1, ", four windows of ", block, ".");
  const Tensor x = tokens.narrow(0, 0, count * block).view({count, block});
  const Tensor y = tokens.narrow(0, 1, count * block).view({count, block});
  Data data;
  data.train_x = x.narrow(0, 0, count - test), data.train_y = y.narrow(0, 0, count - test);
  data.test_x = x.narrow(0, count - test, test), data.test_y = y.narrow(0, count - test, test);
  data.unit = "windows";
  data.sizes = {corpus.vocab_size(), block};
  return data;
}

}  // namespace

Tensor Data::prepare(const Tensor& rows) {
  if (rows.dtype() != kUInt8) return rows;
  // Mean and deviation of the training images, known for this data set.
  return ((rows.to(kFloat32) / 255.0 - 0.2860) / 0.3530).unsqueeze(1);
}

Data load_images(const std::filesystem::path& folder) {
  using data::FashionMNIST;
  const std::filesystem::path root = folder.empty() ? FashionMNIST::default_root() : folder;
  // A folder that was asked for has to be there.
  if (folder.empty() && !std::filesystem::is_directory(root)) return generate_images(60000, 10000);
  const FashionMNIST train(root, FashionMNIST::Mode::train), test(root, FashionMNIST::Mode::test);
  Data data;
  data.train_x = train.images(), data.train_y = train.targets();
  data.test_x = test.images(), data.test_y = test.targets();
  data.source = "Fashion-MNIST", data.unit = "images";
  return data;
}

Data load_text(const std::filesystem::path& path, int64_t block) {
  if (!path.empty()) {
    check(std::filesystem::exists(path), path.string(),
          ": there is no such file or folder of text.");
    Data data = windows(data::TextCorpus(path, {.block = block}), block);
    data.source =
        path.filename().empty() ? path.parent_path().filename().string() : path.filename().string();
    return data;
  }
  Data data = windows(data::TextCorpus::from_text(generate_text(6000), {.block = block}), block);
  data.source = "generated sentences", data.generated = true;
  return data;
}

Data few_rows(bool text) {
  return text ? windows(data::TextCorpus::from_text(generate_text(40), {.block = 64}), 64)
              : generate_images(64, 1);
}

}  // namespace command
