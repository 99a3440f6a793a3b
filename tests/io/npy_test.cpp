/// NumPy's files, there and back, and what is wrong with others.
#include "grapnel/io/npy.h"

#include <doctest/doctest.h>

#include <cstring>

#include "grapnel/grapnel.h"
#include "grapnel/io/file.h"
#include "tests/io/temporary_folder.h"
#include "tests/ops/error_text.h"

using namespace grapnel;

namespace {
void write(const std::filesystem::path& path, const std::string& bytes) {
  io::AtomicFile file(path);
  file.write(bytes);
  file.commit();
}
std::string npy(const std::string& header, const std::string& data) {
  std::string out("\x93NUMPY\x01\x00", 8);
  out += static_cast<char>(header.size());
  out += '\0';
  return out + header + data;
}
std::string refused(const std::string& bytes) {
  return error_text([&] { io::parse_npy(std::as_bytes(std::span(bytes)), "file"); });
}
}  // namespace

TEST_CASE("arrays that NumPy wrote are read, in any order of bytes and dimensions") {
  const Tensor a = arange(6).view({2, 3});
  CHECK(io::load_npy("tests/io/plain.npy").equal(a.to(kFloat32)));
  CHECK(io::load_npy("tests/io/fortran.npy").equal(a.to(kInt32)));
  const auto stored = io::load_npz("tests/io/stored.npz");
  CHECK(stored.keys() == std::vector<std::string>{"a", "flags"});
  CHECK(stored["a"].equal(a.to(kFloat32)));
  CHECK(stored["flags"].equal(tensor({true, false})));
  const auto packed = io::load_npz("tests/io/packed.npz");
  CHECK(packed["zeros"].equal(zeros({100, 10}, kFloat64)));
  CHECK(packed["scalar"].equal(full({}, 0.5, kFloat16)));
}

TEST_CASE("tensors come back from .npy and .npz with equal bits") {
  const TemporaryFolder folder;
  io::NamedTensors all;
  for (const DType t : {kBool, kUInt8, kInt32, kInt64, kFloat16, kFloat32, kFloat64})
    all.insert(str(t), arange(24).view({2, 3, 4}).to(t).transpose(0, 2));
  all.insert("scalar", full({}, 3));
  all.insert("row", ones({5}));
  all.insert("empty", zeros({0, 2}));
  for (const auto& item : all) {
    io::save_npy(folder / "one.npy", item.value());
    CHECK(io::load_npy(folder / "one.npy").equal(item.value()));
  }
  for (const bool compressed : {false, true}) {
    io::save_npz(folder / "all.npz", all, {.compressed = compressed});
    const auto back = io::load_npz(folder / "all.npz");
    CHECK(back.keys() == all.keys());
    for (const auto& item : all) CHECK(back[item.key()].equal(item.value()));
  }
  CHECK(error_text([&] {
          io::save_npy(folder / "x", ones({1}, kBFloat16));
        }).ends_with("x: NumPy has no type for bf16.\nConvert it first: t.to(kFloat32)."));
}

TEST_CASE("a malformed .npy file is refused with the reason") {
  const std::string good = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }";
  CHECK(refused(npy(good, std::string(8, '\0'))).empty());
  CHECK(refused("PK") == "file: is no .npy file: it does not begin with \\x93NUMPY.");
  CHECK(refused(npy(good, "1234")) ==
        "file: an array of shape [2] and type <f4 needs 8 bytes, the file has 4.\nIt was cut off; "
        "copy or "
        "download it again.");
  CHECK(refused(npy(good, std::string(9, '\0'))) ==
        "file: an array of shape [2] and type <f4 needs 8 bytes, the file has 9.");
  CHECK(refused(npy("{'descr': '<U7', 'fortran_order': False, 'shape': (2,), }", ""))
            .starts_with("file: holds elements of type '<U7', which Grapnel has no type for."));
  CHECK(refused(npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }", ""))
            .find("Arrays of records and of objects cannot be read.") != std::string::npos);
  CHECK(refused(npy("{'descr': '<f4', 'shape': (2,), }", ""))
            .starts_with("file: the header lacks descr, fortran_order or shape"));
  CHECK(refused(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-2,), }", ""))
            .starts_with("file: the header is damaged"));
  CHECK(refused(npy("{'descr': '<f8', 'fortran_order': False, 'shape': (4611686018427387904, 8), }",
                    ""))
            .find("is too large") != std::string::npos);
  for (const char* shape : {"0, 4611686018427387904, 4", "4611686018427387904, 0, 4"})
    CHECK(refused(npy(str("{'descr': '<f4', 'fortran_order': False, 'shape': (", shape, "), }"),
                      ""))
              .find("is too large") != std::string::npos);
  for (size_t n = 0; n < good.size(); ++n) CHECK_FALSE(refused(npy(good.substr(0, n), "")).empty());
}

TEST_CASE("entries of an .npz file that share bytes are refused: it cannot grow without end") {
  const TemporaryFolder folder;
  io::NamedTensors one;
  one.insert("a", zeros({1 << 16}));
  io::save_npz(folder / "one", one, {.compressed = true});
  const std::string good = io::read_text(folder / "one");
  // The same entry under many names: its line of the directory, again and again.
  const size_t line = good.find("PK\1\2"), end = good.find("PK\5\6");
  REQUIRE(end != std::string::npos);
  const uint16_t count = 1000;
  std::string bomb = good.substr(0, line);
  for (int i = 0; i < count; ++i) bomb += good.substr(line, end - line);
  std::string tail = good.substr(end);
  std::memcpy(tail.data() + 8, &count, 2);
  std::memcpy(tail.data() + 10, &count, 2);
  bomb += tail;
  CHECK(error_text([&] { io::parse_npz(std::as_bytes(std::span(bomb)), "file"); }) ==
        "file: is damaged: 'a.npy' and 'a.npy' overlap.");
}

TEST_CASE("a damaged .npz file is refused, wherever the damage is") {
  const TemporaryFolder folder;
  io::NamedTensors all;
  all.insert("a", arange(100));
  for (const bool compressed : {false, true}) {
    io::save_npz(folder / "good", all, {.compressed = compressed});
    const std::string good = io::read_text(folder / "good");
    for (size_t size = 0; size < good.size(); size += 7) {
      write(folder / "cut", good.substr(0, size));
      CHECK_FALSE(error_text([&] { io::load_npz(folder / "cut"); }).empty());
    }
    int accepted = 0;
    for (size_t at = 0; at < good.size(); at += 3) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ 0x41);
      write(folder / "bad", bad);
      // Times and versions mean nothing; whatever is accepted is right.
      io::NamedTensors loaded;
      if (!error_text([&] { loaded = io::load_npz(folder / "bad"); }).empty()) continue;
      ++accepted;
      REQUIRE(loaded.size() == 1);
      CHECK(loaded.values()[0].equal(all["a"]));
    }
    CHECK(accepted < 40);
  }
}
