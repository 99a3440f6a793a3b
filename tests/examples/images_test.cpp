// The demo's images: real ones that belong to their labels, or generated ones.
#include "examples/support/images.h"

#include <doctest/doctest.h>
#include <unistd.h>
#include <zlib.h>

#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<uint8_t>;

/// A folder that is gone after the test.
struct Folder {
  Folder() : path(fs::temp_directory_path() / ("grapnel_idx_" + std::to_string(getpid()))) {
    fs::create_directories(path);
  }
  ~Folder() { fs::remove_all(path); }
  fs::path gzip(const std::string& name, const Bytes& bytes) const {
    gzFile file = gzopen((path / name).c_str(), "wb");
    REQUIRE(gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())) ==
            static_cast<int>(bytes.size()));
    REQUIRE(gzclose(file) == Z_OK);
    return path / name;
  }
  fs::path path;
};

/// Magic number, sizes, and `count` elements 0, 1, 2, ...
Bytes idx(std::vector<uint32_t> sizes, size_t count, uint8_t type = 8) {
  Bytes out = {0, 0, type, static_cast<uint8_t>(sizes.size())};
  for (uint32_t size : sizes)
    for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<uint8_t>(size >> shift));
  for (size_t i = 0; i < count; ++i) out.push_back(static_cast<uint8_t>(i));
  return out;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("images and labels that do not belong together are refused") {
  const Folder folder;
  const auto error = [&](const Bytes& images, const Bytes& labels) -> std::string {
    folder.gzip("t-images-idx3-ubyte.gz", images);
    folder.gzip("t-labels-idx1-ubyte.gz", labels);
    try {
      examples::load_images(folder.path, "t");
    } catch (const grapnel::Error& e) {
      return e.what();
    }
    return "no error";
  };
  CHECK(error(idx({2, 28, 28}, 2 * 784), idx({2}, 2)) == "no error");
  CHECK(has(error(idx({2, 14, 56}, 2 * 784), idx({2}, 2)), "images of 28 x 28 pixels"));
  CHECK(has(error(idx({2, 28, 28}, 2 * 784), idx({3}, 3)), "for 2 images"));
  CHECK(has(error(idx({11, 28, 28}, 11 * 784), idx({11}, 11)), "holds label 10"));

  const examples::Images images =
      examples::load_images((error(idx({2, 28, 28}, 2 * 784), idx({2}, 2)), folder.path), "t");
  CHECK(images.labels.equal(grapnel::tensor({0, 1})));
  CHECK(images.pixels.index_select(1, grapnel::tensor({255})).select(0, 0).item<double>() ==
        doctest::Approx((1 - 0.2860) / 0.3530));
}

TEST_CASE("generated images are the same every time, and every class is there") {
  grapnel::Generator a(5), b(5);
  const grapnel::Tensor patterns = grapnel::randn({10, examples::image_pixels});
  const examples::Images first = examples::generate_images(patterns, 500, a);
  grapnel::randn({3});
  const examples::Images second = examples::generate_images(patterns, 500, b);
  CHECK(first.pixels.equal(second.pixels));
  CHECK(first.labels.equal(second.labels));
  CHECK(grapnel::one_hot(first.labels, 10).sum({0}).min().item<int64_t>() > 20);
}
