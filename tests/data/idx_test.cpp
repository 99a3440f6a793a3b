// The reader of IDX files accepts whole files only.
#include "grapnel/data/idx.h"

#include <doctest/doctest.h>
#include <unistd.h>
#include <zlib.h>

#include <fstream>
#include <iterator>
#include <string>

#include "grapnel/base/error.h"

namespace {

namespace fs = std::filesystem;
using grapnel::data::read_idx;
using Bytes = std::vector<uint8_t>;

/// A folder that is gone after the test.
struct Folder {
  Folder() : path(fs::temp_directory_path() / ("grapnel_idx_" + std::to_string(getpid()))) {
    fs::create_directories(path);
  }
  ~Folder() { fs::remove_all(path); }
  fs::path plain(const std::string& name, const Bytes& bytes) const {
    std::ofstream(path / name, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    return path / name;
  }
  fs::path gzip(const std::string& name, const Bytes& bytes) const {
    gzFile file = gzopen((path / name).c_str(), "wb");
    REQUIRE(gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())) ==
            static_cast<int>(bytes.size()));
    REQUIRE(gzclose(file) == Z_OK);
    return path / name;
  }
  static Bytes bytes_of(const fs::path& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
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

std::string error_of(const fs::path& file) {
  try {
    read_idx(file);
  } catch (const grapnel::Error& e) {
    return e.what();
  }
  return "no error";
}
bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("an IDX file is read with its sizes, compressed or not") {
  const Folder folder;
  for (const fs::path& file :
       {folder.plain("a", idx({2, 3}, 6)), folder.gzip("a.gz", idx({2, 3}, 6))}) {
    const grapnel::data::IdxArray array = read_idx(file);
    CHECK(array.sizes == std::vector<int64_t>{2, 3});
    CHECK(array.bytes == Bytes{0, 1, 2, 3, 4, 5});
  }
  CHECK(read_idx(folder.gzip("large.gz", idx({3000, 1000}, 3000000))).bytes.size() == 3000000);
}

TEST_CASE("a file that is missing, empty or cut off is an error that names it") {
  const Folder folder;
  CHECK(has(error_of(folder.path / "absent"), "absent: cannot be opened: No such file"));
  CHECK(has(error_of(folder.plain("empty", {})),
            "empty: ends inside the magic number: 0 of 4 bytes"));
  CHECK(has(error_of(folder.plain("magic", {0, 0, 8})), "ends inside the magic number: 3 of 4"));
  CHECK(has(error_of(folder.plain("sizes", {0, 0, 8, 2, 0, 0, 0, 2, 0, 0})),
            "ends inside the sizes: 2 of 4"));
  CHECK(has(error_of(folder.plain("short", idx({2, 3}, 5))), "ends inside the elements: 5 of 6"));
  CHECK(has(error_of(folder.plain("long", idx({2, 3}, 7))), "goes on after its 6 elements"));
}

TEST_CASE("a damaged header is an error before memory is asked for") {
  const Folder folder;
  CHECK(has(error_of(folder.plain("text", {'#', '!', '/', 'b'})),
            "not an IDX file: it starts with bytes 35 and 33"));
  CHECK(has(error_of(folder.plain("type", idx({4}, 4, 0x0D))), "holds elements of type 13"));
  CHECK(has(error_of(folder.plain("rank", {0, 0, 8, 0})), "has 0 dimensions"));
  CHECK(has(error_of(folder.plain("rank9", {0, 0, 8, 9})), "has 9 dimensions"));
  CHECK(has(error_of(folder.plain("zero", idx({2, 0}, 0))), "dimension 1 claims 0 entries"));
  CHECK(has(error_of(folder.plain("huge", idx({0xFFFFFFFF, 0xFFFFFFFF}, 9))),
            "dimension 1 claims 4294967295 entries"));
  CHECK(has(error_of(folder.plain("lie", idx({0x80000000}, 9))),
            "ends inside the elements: 9 of 2147483648"));
}

TEST_CASE("a damaged compressed file is an error, wherever the damage is") {
  const Folder folder;
  const Bytes good = Folder::bytes_of(folder.gzip("good.gz", idx({20, 30}, 600)));
  REQUIRE(error_of(folder.plain("again.gz", good)) == "no error");
  for (size_t cut = 1; cut < good.size(); ++cut) {
    const std::string error = error_of(
        folder.plain("cut.gz", Bytes(good.begin(), good.begin() + static_cast<ptrdiff_t>(cut))));
    CHECK_MESSAGE(error != "no error", "cut after ", cut, " of ", good.size(), " bytes");
    CHECK(has(error, "cut.gz: "));
  }
  // The header's time stamp and system (bytes 4 to 9) mean nothing; everything else is checked.
  for (size_t at = 10; at < good.size(); ++at) {
    Bytes bad = good;
    bad[at] ^= 0x55;
    CHECK_MESSAGE(error_of(folder.plain("bad.gz", bad)) != "no error", "damaged at byte ", at);
  }
}
