/// safetensors files: what goes in comes out, Python's files are read, and no made-up file does
/// harm.
#include "grapnel/io/safetensors.h"

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <limits>

#include "grapnel/grapnel.h"
#include "grapnel/io/file.h"
#include "tests/io/temporary_folder.h"
#include "tests/ops/error_text.h"

using namespace grapnel;

namespace {

io::NamedTensors one_of_each() {
  io::NamedTensors out;
  for (const DType t : {kBool, kUInt8, kInt32, kInt64, kFloat16, kBFloat16, kFloat32, kFloat64})
    out.insert(str("a ", t), arange(6).view({2, 3}).to(t));
  out.insert("empty", zeros({0, 3}));
  out.insert("scalar", full({}, 2.5));
  out.insert("strided", arange(6).view({2, 3}).t());
  out.insert("ünïcode \"quoted\"", ones({1}));
  return out;
}

/// A file from a header and `data` bytes of zeros.
std::string made(const std::string& header, size_t data, std::optional<uint64_t> claimed = {}) {
  const uint64_t size = claimed.value_or(header.size());
  std::string out(reinterpret_cast<const char*>(&size), 8);
  return out + header + std::string(data, '\0');
}

std::string refused(const std::string& bytes) {
  return error_text([&] { io::parse_safetensors(std::as_bytes(std::span(bytes)), "file"); });
}

}  // namespace

TEST_CASE("tensors of every type, shape and layout come back with equal bits") {
  const TemporaryFolder folder;
  const io::NamedTensors tensors = one_of_each();
  io::save_safetensors(folder / "all.safetensors", tensors,
                       {{"made by", "a test"}, {"text", "{\"nested\": 1}"}});
  const io::Safetensors back = io::load_safetensors(folder / "all.safetensors");
  CHECK(back.tensors.keys() == tensors.keys());
  for (const auto& item : tensors) {
    CHECK(back.tensors[item.key()].dtype() == item->dtype());
    CHECK(back.tensors[item.key()].equal(item.value()));
  }
  CHECK(back.metadata == io::TextMap{{"made by", "a test"}, {"text", "{\"nested\": 1}"}});

  const Tensor odd = tensor(
      {std::numeric_limits<double>::quiet_NaN(), -0.0, std::numeric_limits<double>::infinity()});
  io::NamedTensors bits;
  bits.insert("odd", odd);
  io::save_safetensors(folder / "odd", bits);
  CHECK(std::memcmp(io::load_safetensors(folder / "odd").tensors["odd"].data_ptr(), odd.data_ptr(),
                    12) == 0);
}

TEST_CASE("an empty collection is a file, too") {
  const TemporaryFolder folder;
  io::save_safetensors(folder / "none", io::NamedTensors());
  CHECK(io::load_safetensors(folder / "none").tensors.is_empty());
}

TEST_CASE("a file of tensors is a state dict") {
  const TemporaryFolder folder;
  const nn::Linear from(3, 2), to(3, 2);
  io::save_safetensors(folder / "net", from->state_dict());
  to->load_state_dict(io::load_safetensors(folder / "net").tensors);
  CHECK(equal(to->weight, from->weight));
  CHECK(equal(to->bias, from->bias));
}

TEST_CASE("files that Python's safetensors wrote are read") {
  const io::Safetensors file = io::load_safetensors("tests/io/from_python.safetensors");
  CHECK(file.metadata == io::TextMap{{"format", "pt"}, {"note", "tools/record_torch.py"}});
  const auto& t = file.tensors;
  CHECK(t["bool"].equal(tensor({true, false, true})));
  CHECK(t["u8"].equal(tensor({0, 128, 255}, kUInt8)));
  CHECK(t["i32"].equal(tensor({-1, 2}, kInt32)));
  CHECK(t["i64"].equal(tensor({{-1, 2}, {3, 1LL << 40}})));
  CHECK(t["f16"].equal(tensor({0.5, -2.0}, kFloat16)));
  CHECK(t["bf16"].equal(tensor({0.5, -2.0}, kBFloat16)));
  CHECK(t["f32"].equal(tensor({{0.1, 0.2, 0.3}}, kFloat32)));
  CHECK(t["f64"].equal(tensor({0.1, 1e300}, kFloat64)));
  CHECK(t["scalar"].shape() == Shape{});
  CHECK(t["empty"].shape() == Shape{0, 4});
}

TEST_CASE("tensors of types that Grapnel lacks are left out and named; the rest is read") {
  std::string warned;
  set_warning_handler([&](const std::string& text) { warned += text; });
  const io::Safetensors python = io::load_safetensors("tests/io/i16_from_python.safetensors");
  CHECK(python.left_out == io::TextMap{{"small", "I16"}});
  CHECK(warned ==
        "tests/io/i16_from_python.safetensors: 1 tensor was left out, since Grapnel has no such "
        "type: 'small' (I16).\nConvert where the file is made, e.g. to F32 or I64.");

  warned.clear();
  std::string header = "{", comma;
  for (int i = 0; i < 10; ++i) {
    header += str(comma, "\"q", i, R"(":{"dtype":"I8","shape":[4],"data_offsets":[)", 4 * i, ",",
                  4 * i + 4, "]}");
    comma = ",";
  }
  header += R"(,"w":{"dtype":"F32","shape":[1],"data_offsets":[40,44]}})";
  const std::string bytes = made(header, 44);
  const io::Safetensors file = io::parse_safetensors(std::as_bytes(std::span(bytes)), "file");
  set_warning_handler(nullptr);
  CHECK(file.tensors.keys() == std::vector<std::string>{"w"});
  CHECK(file.left_out.size() == 10);
  CHECK(warned.starts_with("file: 10 tensors were left out"));
  CHECK(warned.find("'q7' (I8) and 2 more.") != std::string::npos);
  // Their places are checked like those of all others.
  CHECK(refused(made(R"({"a":{"dtype":"I8","shape":[4],"data_offsets":[0,3]}})", 3))
            .find("needs 4 bytes") != std::string::npos);
}

TEST_CASE("a malformed file is refused with the reason") {
  CHECK(
      refused("") ==
      "file: is no safetensors file: it has 0 bytes, and the length of the header alone takes 8.");
  CHECK(refused(made("{}", 0, uint64_t{1} << 60))
            .starts_with("file: is no safetensors file: its first 8 bytes ask for a header of "
                         "1152921504606846976 bytes"));
  CHECK(refused("PK\3\4 and so on") ==
        "file: is a zip file, as torch.save and LibTorch's torch::save write it, and no "
        "safetensors file.\n"
        "Read it with io::load_pt; docs/porting-from-libtorch.md shows how.");
  CHECK(refused(made("{}", 0, 99)) ==
        "file: the header should have 99 bytes, but only 2 are left in the file.\nIt was cut off, "
        "or it is "
        "no safetensors file.");
  CHECK(refused(made("{\"a\"", 0)).starts_with("file: the header is no JSON at byte"));
  CHECK(refused(made("", 0)).starts_with("file: the header is no JSON at byte"));
  CHECK(refused(made("[1]", 0)) == "file: the header has a list, where none belongs.");
  CHECK(refused(made("17", 0)) == "file: the header has a number, where none belongs.");
  CHECK(refused(made("{} {}", 0)).starts_with("file: the header is no JSON"));
  CHECK(refused(made(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4)) ==
        "file: the tensor 'a' of type F32 and shape [2] needs 8 bytes, but its place is from byte "
        "0 to 4.");
  CHECK(
      refused(made(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8)) ==
      "file: the tensor 'a' begins at byte 4, where byte 0 is next: there is a gap or an overlap.");
  CHECK(
      refused(made(
          R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
          4)) ==
      "file: the tensor 'b' begins at byte 0, where byte 4 is next: there is a gap or an overlap.");
  CHECK(refused(made(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})", 15)) ==
        "file: the header describes 16 bytes of elements, the file has 15.\nIt was cut off; copy "
        "or download "
        "it again.");
  CHECK(refused(made("{}", 3)) ==
        "file: the header describes 0 bytes of elements, the file has 3.");
  CHECK(refused(made(R"({"a":{"dtype":"Q9","shape":[],"data_offsets":[0,4]}})", 4)) ==
        "file: the tensor 'a' has the unknown type 'Q9'.");
  CHECK(refused(made(R"({"a":{"dtype":"F32","shape":[]}})", 0)) ==
        "file: the tensor 'a' has no data_offsets.");
  CHECK(refused(made(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4)) ==
        "file: the header has a negative number at 'shape', where none belongs.");
  CHECK(refused(made(R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", 4)) ==
        "file: the header has a fraction at 'shape', where none belongs.");
  CHECK(refused(made(R"({"a":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}})", 4)) ==
        "file: the header has a list at 'shape', where none belongs.");
  CHECK(refused(made(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,2,4]}})", 4)) ==
        "file: data_offsets of 'a' must be two numbers, got 3.");
  CHECK(
      refused(
          made(
              R"({"a":{"dtype":"F32","shape":[4611686018427387904,4611686018427387904],"data_offsets":[0,4]}})",
              4))
          .find("has too many elements") != std::string::npos);
  CHECK(
      refused(
          made(R"({"a":{"dtype":"F32","shape":[0,9223372036854775807],"data_offsets":[0,0]}})", 0))
          .empty());
  // Without elements, too: strides are made of the other sizes.
  for (const char* shape :
       {"[0,4611686018427387904,4]", "[4611686018427387904,0,4]", "[4,4611686018427387904,0]"})
    CHECK(refused(made(str(R"({"a":{"dtype":"F32","shape":)", shape, R"(,"data_offsets":[0,0]}})"),
                       0))
              .find("has too many elements") != std::string::npos);
  CHECK(refused(made(
            R"({"a":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]}})",
            4)) == "file: the tensor 'a' has more than 12 dimensions.");
  CHECK(
      refused(made(
          R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
          8)) == "file: the tensor 'a' is there twice.");
  CHECK(refused(made(R"({"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                     4)) == "file: the tensor 'a' has dtype twice.");
  CHECK(refused(made(R"({"__metadata__":{"n":1}})", 0)) ==
        "file: the header has a number at 'n', where none belongs.");
  CHECK(refused(made("{\"a\xff\":{}}", 0)).starts_with("file: the header is no JSON"));
  // Deep nesting costs nothing: the second level ends it.
  CHECK_FALSE(refused(made(std::string(1'000'000, '['), 0)).empty());
  CHECK_FALSE(refused(made("{\"a\":" + std::string(1'000'000, '{'), 0)).empty());
}

TEST_CASE("every cut of a file, and every flip of a byte of its header, is an error or a file") {
  const TemporaryFolder folder;
  io::save_safetensors(folder / "good", one_of_each());
  const std::string good = io::read_text(folder / "good");
  for (size_t size = 0; size < good.size(); ++size)
    CHECK_FALSE(refused(good.substr(0, size)).empty());
  for (size_t at = 0; at < 300; ++at)
    for (const char flip : {'\x01', '\x20', '\x80'}) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ flip);
      refused(bad);
    }
}

TEST_CASE("bytes that are no truth values are read as true") {
  const std::string bytes = made(R"({"a":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}})", 0) +
                            "\x07" + std::string(1, '\0');
  CHECK(io::parse_safetensors(std::as_bytes(std::span(bytes)))
            .tensors["a"]
            .equal(tensor({true, false})));
}

TEST_CASE("a write that fails leaves the old file as it was and nothing beside it") {
  const TemporaryFolder folder;
  io::NamedTensors small, large;
  small.insert("a", ones({4}));
  large.insert("a", ones({1 << 16}));
  io::save_safetensors(folder / "file", small);
  // A limit on the size of files stands for a full disk.
  struct rlimit before;
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  struct rlimit tight = before;
  tight.rlim_cur = 10'000;
  REQUIRE(setrlimit(RLIMIT_FSIZE, &tight) == 0);
  const std::string message = error_text([&] { io::save_safetensors(folder / "file", large); });
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, old_handler);
  CHECK(message.find("cannot be written: File too large (after 10000 bytes).\nWhat was there "
                     "before is unchanged.") != std::string::npos);
  CHECK(io::load_safetensors(folder / "file").tensors["a"].numel() == 4);
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);

  io::save_safetensors(folder / "file", large);
  CHECK(io::load_safetensors(folder / "file").tensors["a"].numel() == 1 << 16);
}

TEST_CASE("what a killed writer left behind is overwritten, and two writers at once are refused") {
  const TemporaryFolder folder;
  std::ofstream(folder / "file.partial") << std::string(100'000, 'x');
  io::NamedTensors tensors;
  tensors.insert("a", ones({4}));
  io::save_safetensors(folder / "file", tensors);
  CHECK(io::load_safetensors(folder / "file").tensors["a"].numel() == 4);
  CHECK_FALSE(std::filesystem::exists(folder / "file.partial"));

  io::AtomicFile busy(folder / "file");
  CHECK(error_text([&] {
          io::save_safetensors(folder / "file", tensors);
        }).ends_with("cannot be written: someone else is writing it at this moment."));
}

TEST_CASE("what cannot be opened or written says so") {
  CHECK(error_text([] { io::load_safetensors("no/such/file"); }) ==
        "no/such/file: cannot be opened: No such file or directory.");
  CHECK(error_text([] { io::load_safetensors("tests"); }) ==
        "tests: cannot be read: it is not a plain file.");
  CHECK(error_text([] {
          io::save_safetensors("no/such/file", io::NamedTensors());
        }).starts_with("no/such/file: cannot be created: No such file or directory"));
  io::NamedTensors undefined;
  undefined.insert("gone", Tensor());
  CHECK(error_text([&] { io::save_safetensors("file", undefined); }) ==
        "file: the tensor 'gone' is undefined and cannot be saved.");
}
