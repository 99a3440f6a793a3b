/// Data sets from files: Fashion-MNIST (and MNIST, which has the same format), and text.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "grapnel/data/dataset.h"

namespace grapnel::data {

/// 28 x 28 grey images of ten classes: data f32 [1, 28, 28] in [0, 1], target i64.
class FashionMNIST : public Dataset {
 public:
  enum class Mode : uint8_t { train, test };
  /// Where Debian's package dataset-fashion-mnist puts the files.
  static std::filesystem::path default_root();
  static constexpr const char* classes[] = {"T-shirt", "trouser",   "pullover", "dress",
                                            "coat",    "sandal",    "shirt",    "sneaker",
                                            "bag",     "ankle boot"};

  explicit FashionMNIST(const std::filesystem::path& root = default_root(),
                        Mode mode = Mode::train);
  int64_t size() const override { return images_.size(0); }
  Example get(int64_t index, Generator& random) const override;
  Example get_batch(std::span<const int64_t> indices, std::span<Generator> randoms) const override;
  /// u8 [size, 28, 28] and i64 [size], as in the files.
  const Tensor& images() const { return images_; }
  const Tensor& targets() const { return targets_; }

 private:
  Tensor images_, targets_;
};

/// A text cut into windows of characters: data i64 [block], target the same one character later.
class TextCorpus : public Dataset {
 public:
  /// How the text is cut.
  struct Options {
    int64_t block = 128;
    /// Characters from the beginning of one window to that of the next; 0 stands for `block`.
    int64_t stride = 0;
  };
  /// A file, or all files below a folder in order of their paths. UTF-8; bytes that are none count
  /// one by one.
  explicit TextCorpus(const std::filesystem::path& path, const Options& options);
  explicit TextCorpus(const std::filesystem::path& path) : TextCorpus(path, Options()) {}
  static TextCorpus from_text(const std::string& text, const Options& options);

  int64_t size() const override;
  Example get(int64_t index, Generator& random) const override;
  /// Different characters, sorted; a token is a number in this list.
  int64_t vocab_size() const { return static_cast<int64_t>(vocabulary_.size()); }
  const Tensor& tokens() const { return tokens_; }
  std::vector<int64_t> encode(const std::string& text) const;
  std::string decode(std::span<const int64_t> tokens) const;

 private:
  TextCorpus() = default;
  void tokenise(const std::string& text, const Options& options);
  Options options_;
  std::vector<std::string> vocabulary_;
  Tensor tokens_;
};

}  // namespace grapnel::data
