#include "grapnel/functions/factories.h"

#include <doctest/doctest.h>

#include "grapnel/functions/functions.h"
#include "tests/ops/error_text.h"

using namespace grapnel;

TEST_CASE("braces become dimensions") {
  const Tensor t = tensor({{1, 2, 3}, {4, 5, 6}});
  CHECK(t.shape() == Shape{2, 3});
  CHECK(t.accessor<int64_t, 2>()[1][0] == 4);
  CHECK(tensor(1.5).shape() == Shape{});
  CHECK(tensor({1.5}).shape() == Shape{1});
  CHECK(tensor({{1.5}}).shape() == Shape{1, 1});
  CHECK(tensor({}).shape() == Shape{0});
  CHECK(tensor({{{1}, {2}}}).shape() == Shape{1, 2, 1});
}

TEST_CASE("the elements decide the type unless the options do") {
  CHECK(tensor({1, 2}).dtype() == kInt64);
  CHECK(tensor({1.0, 2.0}).dtype() == kFloat32);
  CHECK(tensor({1.0f}).dtype() == kFloat32);
  CHECK(tensor({true, false}).dtype() == kBool);
  CHECK(tensor({Half(1.0f)}).dtype() == kFloat16);
  CHECK(tensor({1, 2.5}).dtype() == kFloat32);
  CHECK(tensor({1.7, -1.7}, kInt32).data_ptr<int32_t>()[1] == -1);
  CHECK(tensor({1, 0}, kBool).dtype() == kBool);
  set_default_dtype(kFloat64);
  CHECK(tensor({1.0f}).dtype() == kFloat64);
  set_default_dtype(kFloat32);
}

TEST_CASE("vectors, spans and arrays are copied") {
  std::vector<float> v{1, 2, 3};
  const Tensor t = tensor(v);
  v[0] = 9;
  CHECK(t.data_ptr<float>()[0] == 1);
  CHECK(tensor(std::span<const float>(v)).shape() == Shape{3});
  CHECK(tensor(std::array<int64_t, 2>{4, 5}).data_ptr<int64_t>()[1] == 5);
  CHECK(tensor(std::vector<bool>{true, false}).dtype() == kBool);
  CHECK(tensor(std::vector<std::vector<double>>{{1, 2}, {3, 4}}).shape() == Shape{2, 2});
}

TEST_CASE("ragged braces are an error that says where") {
  CHECK(error_text([] { tensor({{1, 2}, {3}}); }) ==
        "tensor: the lists are ragged: [1] has shape [1] but [0] has shape [2].\nAll lists of one "
        "level must have the same length.");
  CHECK(error_text([] { tensor({{{1}, {2}}, {{3}, {4, 5}}}); })
            .starts_with(
                "tensor: the lists are ragged: [1][1] has shape [2] but [1][0] has shape [1]."));
  CHECK(error_text([] {
          tensor({{1, 2}, 3});
        }).starts_with("tensor: the lists are ragged: [1] has shape [] but [0] has shape [2]."));
}

TEST_CASE("large integers keep every digit") {
  const int64_t big = 9007199254740993;  // 2^53 + 1
  CHECK(tensor({big}).item<int64_t>() == big);
  CHECK(full({1}, big).item<int64_t>() == big);
  CHECK(arange(big, big + 2).data_ptr<int64_t>()[1] == big + 1);
}

TEST_CASE("constant factories fill with their constant") {
  CHECK(equal(zeros({2, 2}), tensor({{0, 0}, {0, 0}})));
  CHECK(zeros({2}).dtype() == kFloat32);
  CHECK(equal(ones({2}, kBool), tensor({true, true})));
  CHECK(full({2}, 3).dtype() == kInt64);
  CHECK(full({2}, true).dtype() == kBool);
  CHECK(full({2}, 0.5).dtype() == kFloat32);
  CHECK(full({2}, 2, kFloat64).dtype() == kFloat64);
  CHECK(equal(eye(2, 3), tensor({{1, 0, 0}, {0, 1, 0}})));
  CHECK(scalar_tensor(2).shape() == Shape{});
}

TEST_CASE("arange stops before its end, linspace at it") {
  CHECK(equal(arange(3), tensor({0, 1, 2})));
  CHECK(arange(3).dtype() == kInt64);
  CHECK(equal(arange(5, 0, -2), tensor({5, 3, 1})));
  CHECK(equal(arange(0.0, 1.0, 0.25), tensor({0.0, 0.25, 0.5, 0.75})));
  CHECK(arange(0).shape() == Shape{0});
  const int64_t least = std::numeric_limits<int64_t>::min(), quarter = int64_t{1} << 62;
  CHECK(equal(arange(least, std::numeric_limits<int64_t>::max(), quarter),
              tensor({least, -quarter, int64_t{0}, quarter})));
  CHECK(equal(linspace(0, 1, 5), tensor({0.0, 0.25, 0.5, 0.75, 1.0})));
  CHECK(linspace(0, 0.3, 4, kFloat64).data_ptr<double>()[3] == 0.3);
  CHECK(linspace(2, 5, 1).item<double>() == 2);
  CHECK(error_text([] { arange(0, 5, -1); }) == "arange: steps of -1 lead from 0 away from 5.");
  CHECK(error_text([] { arange(0, 5, 0); }) ==
        "arange: from 0 to 5 in steps of 0 is no finite sequence.");
}

TEST_CASE("like factories copy shape and type") {
  const Tensor x = ones({2, 3}, kFloat16);
  CHECK(zeros_like(x).dtype() == kFloat16);
  CHECK(ones_like(x, kInt64).dtype() == kInt64);
  CHECK(full_like(x, 2).shape() == x.shape());
  CHECK(randn_like(x).dtype() == kFloat16);
  CHECK(rand_like(x, requires_grad()).requires_grad());
  CHECK_FALSE(zeros_like(ones({2}, requires_grad())).requires_grad());
}

TEST_CASE("requires_grad makes a leaf that wants a gradient") {
  const Tensor x = tensor({2.0}, requires_grad());
  CHECK(x.requires_grad());
  CHECK(x.is_leaf());
  CHECK(randn({2}, dtype(kFloat64).requires_grad(true)).requires_grad());
  CHECK_FALSE(error_text([] { ones({2}, dtype(kInt64).requires_grad(true)); }).empty());
}

TEST_CASE("from_blob borrows memory and gives it back once") {
  double data[] = {1, 2, 3, 4, 5, 6};
  int calls = 0;
  {
    const Tensor t = from_blob(data, {2, 3}, [&](void* p) { calls += p == data; }, kFloat64);
    t.data_ptr<double>()[0] = 7;
    const Tensor other = t;
  }
  CHECK(calls == 1);
  CHECK(data[0] == 7);
  const Tensor columns = from_blob(data, {3, 2}, {1, 3}, kFloat64);
  CHECK(equal(columns, tensor({{7, 4}, {2, 5}, {3, 6}})));
  CHECK(error_text([&] { from_blob(data, {2}, {1, 1}, kFloat64); }) ==
        "from_blob: 1 sizes [2] but 2 strides [1, 1].");
  CHECK(error_text([&] {
          from_blob(data, {2}, {-1}, kFloat64);
        }).starts_with("from_blob: strides must not be negative, got [-1]."));
  CHECK(error_text([] { from_blob(nullptr, {2}); }) ==
        "from_blob: the memory is null, but a tensor of shape [2] has elements.");
}

TEST_CASE("empty_strided reserves what its strides reach") {
  const Tensor t = empty_strided({2, 3}, {1, 4}, kFloat64);
  CHECK(t.strides() == IntArrayRef{1, 4});
  CHECK(t.impl().storage->bytes() == 10 * sizeof(double));
  CHECK(empty_strided({0, 3}, {3, 1}).numel() == 0);
}

TEST_CASE("sizes that cannot be are refused") {
  CHECK(error_text([] { zeros({2, -1}); }).find("sizes must not be negative, got [2, -1]") !=
        std::string::npos);
  CHECK_FALSE(error_text([] { zeros({int64_t{1} << 40, int64_t{1} << 40}); }).empty());
}
