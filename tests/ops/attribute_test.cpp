/// Attributes and operands that no function of the library would give to an op, but a graph read
/// from text, or run on other inputs than it was traced with, may. Every op, every attribute.
#include <functional>
#include <limits>
#include <variant>

#include "grapnel/grapnel.h"
#include "tests/ops/error_text.h"
#include "tests/ops/sweep.h"
#include "tests/ops/values.h"

using namespace grapnel;

namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
constexpr int64_t kVast = int64_t{1} << 62;
/// Small ones next to what fits, and so large ones that no memory is ever tried.
constexpr int64_t kHostile[] = {-1, 0, 1, 2, 3, 7, 12, 13, 100, kVast, -kVast, kMax, kMin, kMax - 1};

using Attribute = std::variant<bool, int64_t, double, DType, Shape>;

class Collect final : public AttrVisitor {
 public:
  std::vector<Attribute> values;
  void on(std::string_view, bool v) override { values.push_back(v); }
  void on(std::string_view, int64_t v) override { values.push_back(v); }
  void on(std::string_view, double v) override { values.push_back(v); }
  void on(std::string_view, DType v) override { values.push_back(v); }
  void on(std::string_view, const Shape& v) override { values.push_back(v); }
};

class Give final : public AttrReader {
 public:
  explicit Give(const std::vector<Attribute>& values) : values_(values) {}
  void on(std::string_view, bool& v) override { v = std::get<bool>(values_[next_++]); }
  void on(std::string_view, int64_t& v) override { v = std::get<int64_t>(values_[next_++]); }
  void on(std::string_view, double& v) override { v = std::get<double>(values_[next_++]); }
  void on(std::string_view, DType& v) override { v = std::get<DType>(values_[next_++]); }
  void on(std::string_view, Shape& v) override { v = std::get<Shape>(values_[next_++]); }

 private:
  const std::vector<Attribute>& values_;
  size_t next_ = 0;
};

std::vector<Attribute> attributes_of(const Op& op, const Sample& sample) {
  Collect collect;
  if (op.attrs_size > 0) op.visit_attrs(sample.attrs.get(), collect);
  return collect.values;
}

std::string text_of(const std::vector<Attribute>& values) {
  std::string text;
  for (const Attribute& a : values)
    text += std::visit([](const auto& v) { return str(v, "; "); }, a);
  return text;
}

/// Everything that `value` may be changed to.
std::vector<Attribute> changed(const Attribute& value) {
  std::vector<Attribute> out;
  if (const bool* flag = std::get_if<bool>(&value)) out.push_back(!*flag);
  if (std::holds_alternative<int64_t>(value))
    for (const int64_t h : kHostile) out.push_back(h);
  if (std::holds_alternative<double>(value))
    for (const double h : {0.0, -1.0, 1e300, std::nan("")}) out.push_back(h);
  if (const Shape* shape = std::get_if<Shape>(&value)) {
    out.push_back(Shape{});
    out.push_back(Shape::filled(kMaxRank, 1));
    for (int i = 0; i < shape->size(); ++i) {
      Shape less = *shape, twice = *shape;
      less.erase(i);
      out.push_back(less);
      twice.insert(i, (*shape)[i]);
      out.push_back(twice);
      for (const int64_t h : kHostile) {
        Shape other = *shape;
        other[i] = h;
        out.push_back(other);
      }
    }
    for (const int64_t h : kHostile) {
      Shape more = *shape;
      more.push_back(h);
      out.push_back(more);
    }
  }
  return out;
}

/// Looks at every element that is there, so that memory beyond the tensor would be touched.
void look_at(const Tensor& t) {
  if (t.defined() && t.numel() < 100000) t.clone();
}

/// Runs the op, and its gradient where there is one. An Error is as good as a result.
void survives(const Op& op, const std::vector<Tensor>& inputs, const std::vector<Attribute>& values) {
  std::vector<std::max_align_t> attrs(op.attrs_size / sizeof(std::max_align_t) + 1);
  if (op.attrs_size > 0) {
    Give give(values);
    op.read_attrs(attrs.data(), give);
  }
  std::vector<Tensor> list;
  for (const Tensor& t : inputs) {
    list.push_back(t.defined() && !t.impl().wrapped_number ? t.detach() : t);
    if (op.differentiable && t.defined() && t.is_floating_point() && !t.impl().wrapped_number)
      list.back().set_requires_grad(true);
  }
  try {
    const Outputs out = run_op(op, list, attrs.data());
    std::vector<Tensor> roots, seeds;
    for (const Tensor& t : out) {
      look_at(t);
      if (!t.requires_grad() || t.numel() > 100000) continue;
      roots.push_back(t);
      seeds.push_back(ones_like(t));
    }
    if (!roots.empty()) autograd::backward(roots, seeds);
    for (const Tensor& t : list)
      if (t.defined()) look_at(t.grad());
  } catch (const Error&) {
  }
}

/// Other tensors in the place of `t`.
std::vector<Tensor> replaced(const Tensor& t) {
  std::vector<Tensor> out{Tensor(), zeros({0}), zeros({0}, kInt64), ones({}), ones({2, 0, 3})};
  if (!t.defined() || t.impl().wrapped_number) return out;
  for (const DType type : {kBool, kInt64, kInt32, kFloat32, kBFloat16})
    if (type != t.dtype()) out.push_back(t.to(type));
  out.push_back(t.unsqueeze(0));
  out.push_back(t.unsqueeze(-1));
  out.push_back(t.reshape({-1}));
  out.push_back((t.to(kInt64) * 1000).to(t.dtype()));
  out.push_back(t.reshape(Shape::filled(kMaxRank, 1).size() && t.numel() == 1
                              ? Shape::filled(kMaxRank, 1)
                              : Shape{t.numel()}));
  for (int64_t d = 0; d < t.dim(); ++d) {
    if (t.size(d) == 0) continue;
    out.push_back(t.narrow(d, 0, t.size(d) - 1));
    out.push_back(t.select(d, 0));
    const Tensor twice[] = {t, t};
    out.push_back(cat(twice, d));
  }
  return out;
}

void for_each_op_and_sample(const std::function<void(const Op&, const Sample&)>& fn) {
  for (const Op* op : all_ops())
    for (const Sample& sample : op->samples()) fn(*op, sample);
}

}  // namespace

TEST_CASE("every op: an attribute that does not fit is an error or gives a result, nothing else") {
  for_each_op_and_sample([](const Op& op, const Sample& sample) {
    const std::vector<Attribute> good = attributes_of(op, sample);
    for (size_t i = 0; i < good.size(); ++i)
      for (const Attribute& other : changed(good[i])) {
        std::vector<Attribute> values = good;
        values[i] = other;
        const std::string call = str(op.name, ": ", text_of(values));
        CAPTURE(call);
        CHECK_NOTHROW(survives(op, sample.inputs, values));
      }
  });
}

TEST_CASE("every op: operands that do not fit are an error or give a result, nothing else") {
  for_each_op_and_sample([](const Op& op, const Sample& sample) {
    const std::vector<Attribute> good = attributes_of(op, sample);
    for (size_t i = 0; i < sample.inputs.size(); ++i)
      for (const Tensor& other : replaced(sample.inputs[i])) {
        std::vector<Tensor> inputs = sample.inputs;
        inputs[i] = other;
        const std::string call =
            str(op.name, ", input ", i, " ",
                other.defined() ? str(other.dtype(), other.shape()) : "none");
        CAPTURE(call);
        CHECK_NOTHROW(survives(op, inputs, good));
      }
    if (op.arity < 0) CHECK_NOTHROW(survives(op, {}, good));
  });
}

TEST_CASE("views refuse attributes that lead outside, also where nobody wrapped them") {
  const Tensor x = ones({2, 3});
  const auto refused = [&](auto call) { return error_text(call); };
  CHECK(refused([&] { apply<Transpose>({0, 2}, x); }) ==
        "transpose: dimension 2 is out of range for 2 dimensions.");
  CHECK(refused([&] { apply<Permute>({{0, 0}}, x); }) ==
        "permute: dimension 0 appears twice in [0, 0].");
  CHECK(refused([&] { apply<Squeeze>({{1}}, x); }) ==
        "squeeze: dimension 1 has size 3, not 1 (shape [2, 3]).");
  CHECK(refused([&] { apply<SliceView>({1, 2, 5, 1}, x); }) ==
        "slice: elements 2 to 5 are asked for, but dimension 1 has 3 (shape [2, 3]).");
  CHECK(refused([&] { apply<SliceView>({1, 0, 1, 0}, x); }) ==
        "slice: the step must be positive, got 0.");
  CHECK(refused([&] { apply<Select>({0, 2}, x); }) ==
        "select: index 2 is out of range for dimension 0 with size 2 (shape [2, 3]).");
  CHECK(refused([&] { apply_all<Split>({0, 0}, x); }) ==
        "split: the size of a part must be positive, got 0.");
  CHECK(refused([&] { apply<Sum>({{1, 9}, false}, x); }) ==
        "sum: dimensions [1, 9] are not ascending or out of range for 2 dimensions.");
}

// --- sizes and counts that users choose ---

TEST_CASE("a step beyond the dimension leaves its first element") {
  const Tensor x = arange(10.0);
  CHECK(x.slice(0, 0, 10, kMax).equal(tensor({0.0})));
  CHECK(x.slice(0, 3, 10, kMax - 1).equal(tensor({3.0})));
  CHECK(x.slice(0, 3, 10, kMax).slice(0, 0, 1, kMax).unsqueeze(0).diagonal().equal(tensor({3.0})));
  CHECK(x.reshape({1, 10}).slice(1, 0, 10, kVast).as_strided({1}, {1}).equal(tensor({0.0})));
}

TEST_CASE("as_strided refuses layouts whose end does not fit in 64 bits") {
  const Tensor x = arange(4.0);
  CHECK_THROWS_AS(x.as_strided({1}, {1}, kMax), Error);
  CHECK_THROWS_AS(x.as_strided({3}, {kVast + 1000000}, 0), Error);
  CHECK_THROWS_AS(x.as_strided({kVast, kVast}, {0, 0}, 0), Error);
  CHECK_THROWS_AS(x.as_strided({2, 2}, {kMax, kMax}, 2), Error);
  CHECK_THROWS_AS(x.as_strided({0, 2}, {1, kVast}, 0), Error);
}

TEST_CASE("sizes of parts are added without wrapping around") {
  CHECK_THROWS_WITH_AS(
      arange(10.0).split_with_sizes({kMax, kMax, 12}, 0),
      "split_with_sizes: 9223372036854775807 + 9223372036854775807 does not fit in 64 bits.", Error);
  std::vector<int64_t> many(20, kMax);
  CHECK_THROWS_AS(arange(10.0).split_with_sizes(many, 0), Error);
}

TEST_CASE("numbers of parts that no memory holds are errors") {
  CHECK(arange(3.0).chunk(kMax).size() == 3);
  CHECK_THROWS_AS(zeros({0}).chunk(kMax), Error);
  CHECK_THROWS_AS(ones({1}).expand({kVast}).unbind(), Error);
  CHECK_THROWS_AS(ones({1}).expand({kVast}).split(1), Error);
  CHECK(ones({1}).expand({kVast}).split(kMax).size() == 1);
}

TEST_CASE("shapes whose sizes do not multiply are refused, whether or not one of them is 0") {
  for (const Shape& sizes : {Shape{kVast, 4}, Shape{0, kVast, 4}, Shape{kVast, 4, 0}}) {
    CHECK_THROWS_AS(empty(sizes), Error);
    CHECK_THROWS_AS(zeros({0}).reshape(sizes), Error);
    CHECK_THROWS_AS(from_blob(nullptr, sizes), Error);
    CHECK_THROWS_AS(empty_strided(sizes, Shape::filled(sizes.size(), 1)), Error);
  }
  CHECK(zeros({0}).reshape({0, 5, 4}).shape() == Shape{0, 5, 4});
}

TEST_CASE("a diagonal far outside of a matrix is like the nearest one that is") {
  const Tensor x = ones({3, 4});
  for (const int64_t far : {int64_t{100}, kVast, kMax}) {
    CHECK(x.tril(far).equal(x));
    CHECK(x.triu(far).equal(zeros({3, 4})));
  }
  for (const int64_t far : {int64_t{-100}, -kVast, kMin}) {
    CHECK(x.tril(far).equal(zeros({3, 4})));
    CHECK(x.triu(far).equal(x));
  }
}

TEST_CASE("windows that are wider than any image end at once") {
  const Tensor x = randn({1, 1, 6, 6});
  const int64_t wide = int64_t{1} << 30;
  CHECK(max_pool2d(x, {wide}, {wide}, {wide / 2}).equal(x.amax().reshape({1, 1, 1, 1})));
  CHECK(avg_pool2d(x, {wide}, {wide}, {wide / 2}).dim() == 4);
  for (const int64_t beyond : {int64_t{1} << 33, kVast, kMax}) {
    CHECK_THROWS_AS(max_pool2d(x, {beyond}, {1}, {beyond / 2}), Error);
    CHECK_THROWS_AS(avg_pool2d(x, {beyond}, {beyond}, {beyond / 2}), Error);
    CHECK_THROWS_AS(max_pool2d(x, {2}, {beyond}), Error);
    CHECK_THROWS_AS(max_pool2d(x, {2}, {1}, {0}, {beyond}), Error);
  }
}

TEST_CASE("stride, padding and dilation of a convolution beyond 32 bits are the caller's error") {
  const Tensor x = randn({1, 2, 5, 5}), w = randn({2, 2, 3, 3});
  for (const int64_t beyond : {int64_t{1} << 31, int64_t{1} << 33, kVast, kMax}) {
    CHECK_THROWS_WITH_AS(conv2d(x, w, {}, {beyond}),
                         doctest::Contains("conv2d: stride must be at least 1 and at most"), Error);
    CHECK_THROWS_AS(conv2d(x, w, {}, {1}, {beyond}), Error);
    CHECK_THROWS_AS(conv2d(x, w, {}, {1}, {0}, {beyond}), Error);
    CHECK_THROWS_AS(conv2d(x, w, {}, {1}, {0}, {1}, beyond), Error);
  }
  CHECK(conv2d(x, w, {}, {0x7fffffff}).shape() == Shape{1, 2, 1, 1});
}
