#include "grapnel/data/datasets.h"

#include <algorithm>
#include <array>
#include <set>

#include "grapnel/data/idx.h"
#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"
#include "grapnel/io/file.h"
#include "grapnel/ops/vectors.h"

namespace grapnel::data {

// --- Fashion-MNIST ---

std::filesystem::path FashionMNIST::default_root() { return "/usr/share/datasets/fashion-mnist"; }

FashionMNIST::FashionMNIST(const std::filesystem::path& root, Mode mode) {
  check(std::filesystem::is_directory(root), root.string(),
        ": there is no such folder, so Fashion-MNIST cannot be read.\n",
        "On Debian: apt-get install dataset-fashion-mnist. Elsewhere: pass the folder with the "
        "four files "
        "*-ubyte.gz.");
  const std::string part = mode == Mode::train ? "train" : "t10k";
  const auto images_path = root / (part + "-images-idx3-ubyte.gz"),
             labels_path = root / (part + "-labels-idx1-ubyte.gz");
  IdxArray images = read_idx(images_path), labels = read_idx(labels_path);
  check(images.sizes.size() == 3 && images.sizes[1] == 28 && images.sizes[2] == 28,
        images_path.string(), ": has sizes ", IntArrayRef(images.sizes),
        "; images of 28 x 28 pixels are [count, 28, 28].");
  check(labels.sizes.size() == 1 && labels.sizes[0] == images.sizes[0], labels_path.string(),
        ": has sizes ", IntArrayRef(labels.sizes), " for ", images.sizes[0],
        " images; one label per image is needed.");
  const auto largest = *std::ranges::max_element(labels.bytes);
  check(largest < 10, labels_path.string(), ": holds label ", int{largest},
        "; the classes are 0 to 9.");
  images_ = from_blob(images.bytes.data(), images.sizes, kUInt8).clone();
  targets_ = from_blob(labels.bytes.data(), labels.sizes, kUInt8).to(kInt64);
}

Example FashionMNIST::get(int64_t index, Generator&) const {
  check_index(index);
  return {images_[index].unsqueeze(0).to(kFloat32) / 255.0, targets_[index]};
}

Example FashionMNIST::get_batch(std::span<const int64_t> indices, std::span<Generator>) const {
  for (const int64_t i : indices) check_index(i);
  // One pass and no op: while a network trains, whatever loading computes takes time from it.
  static const auto shade = [] {
    std::array<float, 256> out;
    for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(i) / 255.0f;
    return out;
  }();
  constexpr int64_t kPixels = 28 * 28;
  const auto count = static_cast<int64_t>(indices.size());
  const TensorOptions here = device(kCPU);
  Example out{empty({count, 1, 28, 28}, here.dtype(kFloat32)), empty({count}, here.dtype(kInt64))};
  const uint8_t* images = images_.data_ptr<uint8_t>();
  const int64_t* targets = targets_.data_ptr<int64_t>();
  float* to = out.data.data_ptr<float>();
  int64_t* to_targets = out.target.data_ptr<int64_t>();
  for (const int64_t i : indices) {
    const uint8_t* image = images + i * kPixels;
    for (int64_t p = 0; p < kPixels; ++p) *to++ = shade[image[p]];
    *to_targets++ = targets[i];
  }
  return out;
}

// --- text ---

namespace {

/// Length of the character that begins at `at`: the whole UTF-8 sequence, or 1 for a byte that
/// begins none.
size_t character_length(const std::string& text, size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  const size_t length = lead < 0x80                   ? 1
                        : lead >= 0xF0 && lead < 0xF8 ? 4
                        : lead >= 0xE0                ? 3
                        : lead >= 0xC0                ? 2
                                                      : 1;
  if (lead >= 0xF8 || at + length > text.size()) return 1;
  for (size_t i = 1; i < length; ++i)
    if ((static_cast<unsigned char>(text[at + i]) & 0xC0) != 0x80) return 1;
  return length;
}

std::vector<std::string> characters(const std::string& text) {
  std::vector<std::string> out;
  for (size_t at = 0; at < text.size(); at += out.back().size())
    out.push_back(text.substr(at, character_length(text, at)));
  return out;
}

std::string text_below(const std::filesystem::path& path) {
  if (!std::filesystem::is_directory(path)) return io::read_text(path);
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path))
    if (entry.is_regular_file()) files.push_back(entry.path());
  std::ranges::sort(files);
  std::string out;
  for (const auto& file : files) out += io::read_text(file);
  return out;
}

}  // namespace

TextCorpus::TextCorpus(const std::filesystem::path& path, const Options& options) {
  tokenise(text_below(path), options);
}

TextCorpus TextCorpus::from_text(const std::string& text, const Options& options) {
  TextCorpus out;
  out.tokenise(text, options);
  return out;
}

void TextCorpus::tokenise(const std::string& text, const Options& options) {
  options_ = options;
  if (options_.stride == 0) options_.stride = options_.block;
  check(options_.block > 0 && options_.stride > 0,
        "TextCorpus: block must be positive and stride not negative, got ", options.block, " and ",
        options.stride, ".");
  const std::vector<std::string> all = characters(text);
  check(static_cast<int64_t>(all.size()) > options_.block, "TextCorpus: the text has ", all.size(),
        " characters; a window of ", options_.block, " and the character behind it need more.");
  const std::set<std::string> different(all.begin(), all.end());
  vocabulary_.assign(different.begin(), different.end());
  std::vector<int64_t> tokens;
  for (const std::string& c : all)
    tokens.push_back(std::ranges::lower_bound(vocabulary_, c) - vocabulary_.begin());
  tokens_ = from_vector(tokens);
}

int64_t TextCorpus::size() const {
  return (tokens_.numel() - 1 - options_.block) / options_.stride + 1;
}

Example TextCorpus::get(int64_t index, Generator&) const {
  check_index(index);
  const int64_t begin = index * options_.stride;
  return {tokens_.narrow(0, begin, options_.block), tokens_.narrow(0, begin + 1, options_.block)};
}

std::vector<int64_t> TextCorpus::encode(const std::string& text) const {
  std::vector<int64_t> out;
  for (const std::string& c : characters(text)) {
    const auto it = std::ranges::lower_bound(vocabulary_, c);
    check(it != vocabulary_.end() && *it == c, "TextCorpus: the character '", c,
          "' is not in the text it was made from.");
    out.push_back(it - vocabulary_.begin());
  }
  return out;
}

std::string TextCorpus::decode(std::span<const int64_t> tokens) const {
  std::string out;
  for (const int64_t t : tokens) {
    check(t >= 0 && t < vocab_size(), "TextCorpus: there is no token ", t, "; the vocabulary has ",
          vocab_size(), ".");
    out += vocabulary_[static_cast<size_t>(t)];
  }
  return out;
}

}  // namespace grapnel::data
