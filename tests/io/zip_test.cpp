/// Archives near the limits of their format, without files of that size.
#include "grapnel/io/zip.h"

#include <doctest/doctest.h>
#include <zlib.h>

#include <cstring>

#include "grapnel/grapnel.h"
#include "tests/ops/error_text.h"

using namespace grapnel;

namespace {

constexpr uint64_t kMost = 0xfffffffe;  // one more stands for "elsewhere"

uint32_t number_at(const std::string& header, size_t at) {
  uint32_t out;
  std::memcpy(&out, header.data() + at, sizeof out);
  return out;
}

}  // namespace

TEST_CASE("headers of an archive say sizes and places up to 4 GiB, and refuse what is larger") {
  io::ZipEntry entry{.name = "a.npy", .packed = kMost, .size = kMost - 1, .offset = kMost - 2};
  const std::string header = io::zip_header(entry, "file"), line = io::zip_line(entry, "file");
  CHECK(number_at(header, 18) == kMost);
  CHECK(number_at(header, 22) == kMost - 1);
  CHECK(number_at(line, 20) == kMost);
  CHECK(number_at(line, 42) == kMost - 2);
  CHECK(header.ends_with("a.npy"));
  CHECK(line.ends_with("a.npy"));

  // Compression may make an array larger than it is.
  entry.packed = kMost + 1;
  CHECK(error_text([&] { io::zip_header(entry, "file"); }) ==
        "file: does not fit in an .npz file: the packed size of an array would be 4294967295, and "
        "the most is 4294967294.\nUse safetensors.");
  entry.packed = 10, entry.size = kMost + 7;
  CHECK(error_text([&] { io::zip_line(entry, "file"); }).find("the size of an array would be") !=
        std::string::npos);
  entry.size = 10, entry.offset = kMost + 1;
  CHECK(error_text([&] { io::zip_line(entry, "file"); }).find("the place of an array would be") !=
        std::string::npos);
  entry.offset = 0, entry.name = std::string(65535, 'a');
  CHECK(error_text([&] { io::zip_header(entry, "file"); }).find("the length of a name would be") !=
        std::string::npos);
}

TEST_CASE("the directory of an archive begins below 4 GiB") {
  CHECK(number_at(io::zip_end(3, 100, kMost, "file"), 16) == kMost);
  CHECK(error_text([] { io::zip_end(3, 100, kMost + 1, "file"); })
            .find("the place of the directory would be 4294967295") != std::string::npos);
  CHECK(error_text([] { io::zip_end(3, kMost + 1, 0, "file"); })
            .find("the size of the directory would be") != std::string::npos);
  CHECK(error_text([] { io::zip_end(65535, 100, 100, "file"); })
            .find("the number of arrays would be 65535") != std::string::npos);
}

TEST_CASE("bytes are deflated in pieces of any size") {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += std::to_string(i * i % 977);
  std::string noise(5000, '\0');  // gets longer
  uint32_t state = 1;
  for (char& c : noise) c = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  for (const std::string& bytes : {text, noise, std::string()})
    for (const uint64_t piece : {1, 7, 4096, 1 << 30}) {
      const std::string packed = io::deflated(bytes, "file", piece);
      std::string back(bytes.size() + 1, '\0');
      z_stream stream{};
      REQUIRE(inflateInit2(&stream, -MAX_WBITS) == Z_OK);
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
      stream.avail_in = static_cast<uInt>(packed.size());
      stream.next_out = reinterpret_cast<Bytef*>(back.data());
      stream.avail_out = static_cast<uInt>(back.size());
      CHECK(inflate(&stream, Z_FINISH) == Z_STREAM_END);
      CHECK(stream.avail_in == 0);
      back.resize(stream.total_out);
      inflateEnd(&stream);
      CHECK(back == bytes);
    }
}
