/// PackedArgs: what is packed comes back, for the attributes of every op and every kind of member
/// (K6 of compiled-hooks.md).
#include "grapnel/ops/packed_args.h"

#include <cstring>
#include <map>

#include "grapnel/ops/list.h"
#include "tests/compile/modes.h"

using namespace grapnel;

namespace {

/// Attributes as text.
struct Text final : AttrVisitor {
  std::string text;
  void on(std::string_view name, bool v) override { text += str(name, "=", v, ";"); }
  void on(std::string_view name, int64_t v) override { text += str(name, "=", v, ";"); }
  void on(std::string_view name, double v) override { text += str(name, "=", v, ";"); }
  void on(std::string_view name, DType v) override { text += str(name, "=", v, ";"); }
  void on(std::string_view name, const Shape& v) override { text += str(name, "=", v, ";"); }
};
std::string text_of(const Op& op, const void* attrs) {
  Text text;
  op.visit_attrs(attrs, text);
  return text.text;
}

}  // namespace

TEST_CASE("the attributes of every op survive packing and unpacking (K6)") {
  int packed = 0;
  for (const Op* op : all_ops()) {
    if (op->attrs_size == 0 || !op->samples) continue;
    CAPTURE(op->name);
    for (const Sample& sample : op->samples()) {
      if (!sample.attrs) continue;
      PackedArgs args;
      args.pack_attrs(*op, sample.attrs.get());
      // Other values first, so that nothing stays by chance.
      std::vector<std::max_align_t> memory(op->attrs_size / sizeof(std::max_align_t) + 1);
      std::memcpy(memory.data(), sample.attrs.get(), op->attrs_size);
      args.unpack_attrs(*op, memory.data());
      CHECK(text_of(*op, memory.data()) == text_of(*op, sample.attrs.get()));
      packed += args.size() > 0;
    }
  }
  CHECK(packed > 20);
}

TEST_CASE(
    "every kind of member survives packing and unpacking, in order, and only as what it was (K6)") {
  PackedArgs args;
  const Tensor t = ones({2});
  const std::map<std::string, IValue> saved{
      {"alpha", 2.0}, {"name", "x"}, {"sizes", std::vector<int64_t>{1, 2}}};
  args.pack(t);
  args.pack(std::optional<Tensor>());
  args.pack(std::vector<Tensor>{t, Tensor()});
  args.pack(Shape{2, 3});
  args.pack(SlotMeta{{2, 3}, kBFloat16});
  args.pack(std::vector<bool>{true, false});
  args.pack(TensorOptions(kFloat64));
  args.pack(saved);
  args.pack(std::string("end"));
  CHECK(args.unpack<Tensor>().is_same(t));
  CHECK_THROWS_AS(args.unpack<Tensor>(), Error);
  CHECK(!args.unpack<std::optional<Tensor>>().has_value());
  CHECK(args.unpack<std::vector<Tensor>>()[0].is_same(t));
  CHECK(args.unpack<Shape>() == Shape{2, 3});
  CHECK(args.unpack<SlotMeta>().dtype == kBFloat16);
  CHECK(args.unpack<std::vector<bool>>() == std::vector<bool>{true, false});
  CHECK(args.unpack<TensorOptions>().dtype() == kFloat64);
  CHECK(args.unpack<std::map<std::string, IValue>>().at("alpha").toDouble() == 2.0);
  CHECK(args.unpack<std::string>() == "end");
  CHECK_THROWS_WITH_AS(args.unpack<int>(), "PackedArgs: all 9 values have been unpacked already.",
                       Error);
}
