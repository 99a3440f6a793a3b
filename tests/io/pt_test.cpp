// The reader of torch.save's files: what it makes of data, and what it refuses.
#include "grapnel/io/pt.h"

#include <doctest/doctest.h>

#include <bit>
#include <fstream>

#include "grapnel/grapnel.h"
#include "tests/io/pt_file.h"
#include "tests/io/temporary_folder.h"

using namespace grapnel;
using io::PtValue;

namespace {

PtValue parse(const std::string& bytes) {
  return io::parse_pt(std::as_bytes(std::span(bytes)), "f.pt");
}
PtValue value_of(const PickleText& pickle) { return parse(pt_of(pickle.end())); }

std::string refusal(const std::string& bytes) {
  try {
    parse(bytes);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}
std::string refusal(const PickleText& pickle,
                    const std::map<std::string, std::string>& memory = {}) {
  return refusal(pt_of(pickle.end(), memory));
}
bool says(const std::string& message, const char* part) {
  const bool found = message.find(part) != message.npos;
  if (!found) MESSAGE(message);
  return found;
}

const std::string six = bytes_of<float>({0, 1, 2, 3, 4, 5});

}  // namespace

TEST_CASE("pt: numbers, texts and containers") {
  PickleText p;
  p.raw("}(").text("none").raw("N").text("yes").raw("\x88").text("small").raw("K\xff").text("two");
  p.raw("M").number<uint16_t>(65535).text("minus").integer(-7).text("long").raw("\x8a\x06");
  p.raw(std::string_view("\x00\x00\x00\x00\x00\x80", 6)).text("half").raw("G");
  p.number(__builtin_bswap64(std::bit_cast<uint64_t>(0.5))).text("list").raw("](").integer(1);
  p.raw("N").raw("e").text("pair").integer(1).integer(2).raw("\x86").text("size");
  p.name("torch", "Size").integers({2, 3}).raw("\x85R").text("dtype").name("torch", "int8");
  p.text("device").name("torch", "device").text("cuda").integer(1).raw("\x86R").text("bytes");
  p.name("_codecs", "encode").text("a\xc3\xbf").text("latin1").raw("\x86R").text("set");
  p.name("__builtin__", "set").raw("](").integer(4).raw("e\x85R").raw("u");
  const PtValue v = value_of(p);
  CHECK(v["none"].is_none());
  CHECK(v["yes"].to_bool());
  CHECK(v["small"].to_int() == 255);
  CHECK(v["two"].to_int() == 65535);
  CHECK(v["minus"].to_int() == -7);
  CHECK(v["long"].to_int() == -(int64_t{1} << 47));
  CHECK(v["half"].to_double() == 0.5);
  CHECK(v["minus"].to_double() == -7);
  CHECK(v["list"].items().size() == 2);
  CHECK(v["pair"].kind() == PtValue::Kind::tuple);
  CHECK(v["size"].items()[1].to_int() == 3);
  CHECK(v["dtype"].text() == "torch.int8");
  CHECK(v["device"].text() == "cuda:1");
  CHECK(v["bytes"].text() == "a\xff");
  CHECK(v["set"].items()[0].to_int() == 4);
  CHECK(v.contains("half"));
  CHECK_FALSE(v.contains("other"));
  CHECK_THROWS_WITH_AS(v["other"], doctest::Contains("none of them is 'other'"), Error);
  CHECK_THROWS_WITH_AS(v["half"].to_int(), doctest::Contains("the number 0.5 where a whole"),
                       Error);
  CHECK_THROWS_AS(v["half"].items(), Error);
  CHECK_THROWS_AS(v["list"].tensor(), Error);
  CHECK_THROWS_AS(v["list"].entries(), Error);
  CHECK_THROWS_AS(v["list"].text(), Error);
  CHECK_THROWS_AS(v["list"].to_bool(), Error);
  CHECK_THROWS_AS(v["list"].to_double(), Error);
}

TEST_CASE("pt: tensors of all types, with strides and offsets") {
  PickleText p;
  p.raw("}(").text("plain").tensor("FloatStorage", "0", 0, {2, 3}, {3, 1}).text("turned");
  p.tensor("FloatStorage", "0", 0, {3, 2}, {1, 3}, true).text("row");
  p.tensor("FloatStorage", "0", 3, {3}, {1}).text("one").tensor("FloatStorage", "0", 5, {}, {});
  p.text("wide").tensor("FloatStorage", "0", 1, {4}, {0}).text("empty");
  p.tensor("FloatStorage", "0", 0, {0, 7}, {7, 1})
      .text("i64")
      .tensor("LongStorage", "1", 0, {1}, {1});
  p.text("bool").tensor("BoolStorage", "2", 0, {3}, {1}).text("f16");
  p.tensor("HalfStorage", "3", 0, {1}, {1})
      .text("bf16")
      .tensor("BFloat16Storage", "4", 0, {1}, {1});
  p.text("parameter").name("torch._utils", "_rebuild_parameter").raw("(");
  p.tensor("DoubleStorage", "5", 0, {1}, {1}).raw("\x88").name("collections", "OrderedDict");
  p.raw(")RtR").raw("u");
  const std::map<std::string, std::string> memory{{"0", six},
                                                  {"1", bytes_of<int64_t>({-9})},
                                                  {"2", std::string("\x00\x01\x7f", 3)},
                                                  {"3", std::string("\x00\x3c", 2)},
                                                  {"4", std::string("\x80\x3f", 2)},
                                                  {"5", bytes_of<double>({0.25})}};
  for (const bool packed : {false, true}) {
    const PtValue v = parse(pt_of(p.end(), memory, packed));
    const Tensor plain = v["plain"].tensor();
    CHECK(equal(plain, arange(6, kFloat32).reshape({2, 3})));
    CHECK(equal(v["turned"].tensor().detach(), plain.t()));
    CHECK(v["turned"].tensor().requires_grad());
    CHECK(equal(v["row"].tensor(), plain[1]));
    CHECK(v["one"].tensor().item<float>() == 5);
    CHECK(equal(v["wide"].tensor(), ones({4})));
    CHECK(v["empty"].tensor().shape() == Shape{0, 7});
    CHECK(v["i64"].tensor().item<int64_t>() == -9);
    CHECK(equal(v["bool"].tensor(), tensor({false, true, true})));
    CHECK(v["bf16"].tensor().item<float>() == 1);
    CHECK(v["parameter"].tensor().requires_grad());
    plain.fill_(8);  // one memory
    CHECK(v["one"].tensor().item<float>() == 8);
    CHECK(v.tensors().size() == 11);
  }
}

TEST_CASE("pt: what was one object is one object, and state dicts have dotted names") {
  PickleText p;
  p.raw("}(").text("model").name("collections", "OrderedDict").raw(")Rq\x01(").text("fc.weight");
  p.tensor("FloatStorage", "0", 0, {6}, {1}).raw("q\x02u}(").text("_metadata").raw("}ub");
  p.text("state").raw("}(").integer(0).raw("}(").text("exp_avg").raw("h\x02uu").text("again");
  p.raw("h\x01u");
  const PtValue v = parse(pt_of(p.end(), {{"0", six}}));
  CHECK(v["model"].node() == v["again"].node());
  CHECK(v["model"].entries().size() == 1);
  CHECK(
      v["state"].entries()[0].second["exp_avg"].tensor().is_same(v["model"]["fc.weight"].tensor()));
  const auto names = v.tensors().keys();
  CHECK(names == std::vector<std::string>{"model.fc.weight", "state.0.exp_avg", "again.fc.weight"});
  PickleText one;
  one.tensor("FloatStorage", "0", 0, {6}, {1});
  CHECK(parse(pt_of(one.end(), {{"0", six}})).tensors().contains("value"));
}

TEST_CASE("pt: an object of LibTorch's is a dict of its fields") {
  PickleText p;
  p.name("__torch__", "Net").raw(")\x81}(").text("weight").tensor("FloatStorage", "0", 0, {6}, {1});
  p.text("names").name("torch.jit._pickle", "restore_type_tag").raw("](").text("a").raw("e");
  p.text("List[str]").raw("\x86R").raw("ub");
  const PtValue v = parse(pt_of(p.end(), {{"0", six}}));
  CHECK(v["weight"].tensor().numel() == 6);
  CHECK(v["names"].items()[0].text() == "a");
}

TEST_CASE("pt: a module takes what was saved") {
  const TemporaryFolder folder;
  nn::Linear net(3, 2);
  PickleText p;
  p.raw("}(").text("weight").tensor("FloatStorage", "0", 0, {2, 3}, {3, 1}).text("bias");
  p.tensor("FloatStorage", "0", 0, {2}, {3}).raw("u");
  const std::string bytes = pt_of(p.end(), {{"0", six}});
  std::ofstream(folder / "net.pt", std::ios::binary) << bytes;
  net->load_state_dict(io::load_pt(folder / "net.pt").tensors());
  CHECK(equal(net->bias.detach(), tensor({0.f, 3.f})));
  nn::Linear other(3, 2);
  load(*other, folder / "net.pt");
  CHECK(equal(other->weight, net->weight));
  Tensor one;
  CHECK_THROWS_WITH_AS(load(one, folder / "net.pt"), doctest::Contains("holds 2 tensors"), Error);
  PickleText single;
  single.tensor("FloatStorage", "0", 0, {6}, {1});
  std::ofstream(folder / "one.pt", std::ios::binary) << pt_of(single.end(), {{"0", six}});
  load(one, folder / "one.pt");
  CHECK(one.numel() == 6);
  CHECK_FALSE(io::is_pt(folder / "none.pt"));
  CHECK_THROWS_WITH_AS(io::load_pt(folder / "none.pt"), doctest::Contains("none.pt"), Error);
}

TEST_CASE("pt: code is refused by name and never run") {
  for (const auto& [module, name] : {std::pair{"os", "system"},
                                     {"builtins", "eval"},
                                     {"torch.nn.modules.linear", "Linear"},
                                     {"builtins", "getattr"},
                                     {"torch", "load"},
                                     {"__torchX__", "Net"}}) {
    PickleText p;
    p.name(module, name).text("echo").raw("\x85R");
    CHECK(says(refusal(p), str("asks for '", module, ".", name, "', which is code").c_str()));
    PickleText made;
    made.name(module, name).raw(")\x81");
    CHECK(says(refusal(made), "which is code"));
    PickleText alone;
    alone.name(module, name);
    CHECK(says(refusal(alone), "which is no data"));
  }
  CHECK(says(refusal(PickleText().raw("i")), "asks for operation 105"));
  CHECK(says(refusal(PickleText().raw("\x82\x01")), "which makes no data"));
  PickleText nested;
  for (int i = 0; i < 2; ++i) nested.name("torch._tensor", "_rebuild_from_type_v2").raw("(");
  nested.name("torch", "Tensor").raw(")}tR");
  CHECK(says(refusal(nested), "a tensor is made by"));
}

TEST_CASE("pt: made-up tensors") {
  const auto tensor = [](const char* type, std::vector<int32_t> sizes, std::vector<int32_t> strides,
                         int32_t offset = 0, const char* key = "0") {
    PickleText p;
    p.tensor(type, key, offset, sizes, strides);
    return refusal(p, {{"0", six}});
  };
  CHECK(says(tensor("FloatStorage", {7}, {1}), "reaches beyond its memory"));
  CHECK(says(tensor("FloatStorage", {1}, {1}, 6), "reaches beyond its memory"));
  CHECK(says(tensor("FloatStorage", {1}, {1}, -1), "begins at -1"));
  CHECK(says(tensor("FloatStorage", {-1}, {1}), "size or stride -1"));
  CHECK(says(tensor("FloatStorage", {2}, {-1}), "size or stride -1"));
  CHECK(says(tensor("FloatStorage", {2, 2}, {1}), "has the strides"));
  CHECK(says(tensor("FloatStorage", {2147483647, 2147483647, 2147483647}, {0, 0, 0}),
             "has the strides"));
  CHECK(says(tensor("FloatStorage", {2147483647, 2}, {2147483647, 2147483647}), "reaches beyond"));
  CHECK(says(tensor("FloatStorage", std::vector<int32_t>(99, 1), std::vector<int32_t>(99, 1)),
             "more than"));
  CHECK(says(tensor("FloatStorage", {1}, {1}, 0, "9"), "the memory '9' of a tensor is missing"));
  CHECK(says(tensor("CharStorage", {1}, {1}), "torch.CharStorage, and Grapnel has no such type"));
  CHECK(says(tensor("UntypedStorage", {1}, {1}), "a tensor has no type"));
  PickleText two;
  two.tensor("FloatStorage", "0", 0, {1}, {1}).tensor("IntStorage", "0", 0, {1}, {1}).raw("\x86");
  CHECK(says(refusal(two, {{"0", six}}), "is said to hold f32 and i32"));
  CHECK(says(refusal(two, {{"0", "abc"}}), "no whole number of f32"));
  PickleText grad;
  grad.tensor("LongStorage", "0", 0, {1}, {1}, true);
  CHECK(says(refusal(grad, {{"0", six}}), "a tensor of i64 requires grad"));
  PickleText storage;
  storage.raw("(")
      .text("storage")
      .name("torch", "FloatStorage")
      .text("0")
      .text("cpu")
      .integer(1)
      .raw("tQ");
  CHECK(says(refusal(storage, {{"0", six}}), "the memory of a tensor by itself"));
  CHECK(says(refusal(PickleText().integer(1).raw("Q")), "refers to the whole number 1"));
}

TEST_CASE("pt: damaged pickles") {
  for (const char* bytes :
       {"",         "0",     "1",    "2",    "a",      "s",     "t",          "u",
        "e",        "b",     "R",    "\x81", "\x86",   "q\x01", "h\x01",      "Na",
        "]u",       "](NuN", "}(Nu", "NNb",  "NN\x93", "N)R",   "cos\nx\nNR", "X\xff\xff\xff\xff",
        "\x8a\x09", "J",     "cos",  "N(",   "(",      "NN",    "\x8d\xff"})
    CHECK_MESSAGE(!refusal(PickleText().raw(bytes)).empty(), bytes);
  CHECK(says(refusal(PickleText().raw("\x80\x07")), "protocol 7"));
  PickleText ring;
  ring.raw("]q\x01h\x01").raw("a");
  CHECK(says(refusal(ring), "a value contains itself"));
  PickleText lost;  // the ring is not in the result
  lost.raw(
      "]q\x01h\x01"
      "a0N");
  CHECK(value_of(lost).is_none());
  std::string deep(1'000'000, ']');
  deep += std::string(999'999, 'a');
  CHECK(says(refusal(PickleText().raw(deep)), "nested more than 200 deep"));
  PickleText lost_depth;
  lost_depth.raw(deep).raw("0N");
  CHECK(value_of(lost_depth).is_none());
}

TEST_CASE("pt: a value that is shared many times stays small, and so does what is made of it") {
  PickleText p;
  p.raw("}q").raw(std::string_view("\x00", 1));
  for (int i = 0; i < 150; ++i) {
    const char level[] = {static_cast<char>(i), 'q', static_cast<char>(i + 1)};
    p.raw("0}(").text("a").raw("h").raw({level, 1}).text("b").raw("h").raw({level, 1}).raw("u");
    p.raw({level + 1, 2});
  }
  const PtValue v = value_of(p);
  CHECK(v["a"].node() == v["b"].node());
  CHECK_THROWS_WITH_AS(v.tensors(), doctest::Contains("names"), Error);
}

TEST_CASE("pt: other files") {
  const std::string good = pt_of(PickleText().raw("N").end());
  CHECK(parse(good).is_none());
  CHECK(says(refusal("nothing of the kind"), "f.pt: is no file of torch.save, or it was cut off"));
  CHECK(says(refusal(good.substr(0, good.size() - 1)), "was cut off"));
  CHECK(says(refusal(zip_of({{"a.npy", "x"}})), "holds no data.pkl"));
  CHECK(says(refusal("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.rest"),
             "before version 1.6"));
  CHECK(says(refusal(zip_of({{"a/data.pkl", PickleText().raw("N").end()}, {"a/byteorder", "big"}})),
             "another order of bytes"));
  CHECK(says(refusal(zip_of({{"a/data.pkl", std::string(20 << 20, 'N')}}, true)), "is compressed"));
  for (size_t i = 0; i < good.size(); ++i) {
    std::string changed = good;
    changed[i] = static_cast<char>(changed[i] ^ 0x55);
    refusal(changed);  // no crash, whatever it says
  }
}
