/// The demo's data: Fashion-MNIST where it is installed, otherwise generated images of ten classes.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>

#include "grapnel/data/idx.h"
#include "grapnel/grapnel.h"

namespace examples {

struct Images {
  grapnel::Tensor pixels;  ///< f32 [count, 784], mean near 0 and deviation near 1
  grapnel::Tensor labels;  ///< i64 [count], 0 to 9
  int64_t count() const { return labels.size(0); }
};

struct ImageSets {
  Images train, test;
};

inline constexpr int64_t image_side = 28, image_pixels = image_side * image_side, class_count = 10;

/// One pair of files: `train` or `t10k`.
inline Images load_images(const std::filesystem::path& folder, const std::string& part) {
  using namespace grapnel;
  const auto images_path = folder / (part + "-images-idx3-ubyte.gz"),
             labels_path = folder / (part + "-labels-idx1-ubyte.gz");
  data::IdxArray images = data::read_idx(images_path), labels = data::read_idx(labels_path);
  check(images.sizes.size() == 3 && images.sizes[1] == image_side && images.sizes[2] == image_side,
        images_path.string(), ": has sizes ", IntArrayRef(images.sizes),
        "; images of 28 x 28 pixels are [count, 28, 28].");
  check(labels.sizes.size() == 1 && labels.sizes[0] == images.sizes[0], labels_path.string(), ": has sizes ",
        IntArrayRef(labels.sizes), " for ", images.sizes[0], " images; one label per image is needed.");
  const auto largest = *std::max_element(labels.bytes.begin(), labels.bytes.end());
  check(largest < class_count, labels_path.string(), ": holds label ", int{largest},
        "; the classes are 0 to 9.");

  const int64_t count = labels.sizes[0];
  const Tensor raw = from_blob(images.bytes.data(), {count, image_pixels}, kUInt8);
  // Mean and deviation of the training images, known for this data set.
  return {(raw.to(kFloat32) / 255.0 - 0.2860) / 0.3530,
          from_blob(labels.bytes.data(), {count}, kUInt8).to(kInt64)};
}

inline ImageSets load_image_sets(const std::filesystem::path& folder) {
  return {load_images(folder, "train"), load_images(folder, "t10k")};
}

/// Ten random patterns; an image is one of them, weakened, under noise that also differs in strength from image to image.
/// Always the same images, whatever was drawn before.
inline Images generate_images(const grapnel::Tensor& patterns, int64_t count, grapnel::Generator generator) {
  using namespace grapnel;
  const Tensor labels = randint(0, class_count, {count}, generator);
  const Tensor strength = 0.1 + 0.2 * rand({count, 1}, generator);
  return {strength * patterns.index_select(0, labels) + randn({count, image_pixels}, generator), labels};
}

inline ImageSets generate_image_sets() {
  grapnel::Generator generator(2017);
  const grapnel::Tensor patterns = grapnel::randn({class_count, image_pixels}, generator);
  return {generate_images(patterns, 60000, generator), generate_images(patterns, 10000, generator)};
}

}  // namespace examples
