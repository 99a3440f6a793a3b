#include "grapnel/functions/functions.h"

#include <doctest/doctest.h>

#include <array>
#include <string>

#include "grapnel/functions/factories.h"
#include "tests/ops/error_text.h"

using namespace grapnel;

namespace {

std::vector<double> values(const Tensor& t) {
  std::vector<double> out;
  const Tensor wide = t.to(kFloat64).contiguous();
  out.assign(wide.data_ptr<double>(), wide.data_ptr<double>() + wide.numel());
  return out;
}
using Values = std::vector<double>;

}  // namespace

TEST_CASE("two tensors with dimensions promote as in PyTorch") {
  constexpr DType b = kBool, u = kUInt8, i = kInt32, l = kInt64, h = kFloat16, g = kBFloat16,
                  f = kFloat32, d = kFloat64;
  constexpr DType types[] = {b, u, i, l, h, g, f, d};
  // Row and column in the order of `types`.
  constexpr DType expected[8][8] = {
      {b, u, i, l, h, g, f, d}, {u, u, i, l, h, g, f, d}, {i, i, i, l, h, g, f, d},
      {l, l, l, l, h, g, f, d}, {h, h, h, h, h, f, f, d}, {g, g, g, g, f, g, f, d},
      {f, f, f, f, f, f, f, d}, {d, d, d, d, d, d, d, d},
  };
  for (int x = 0; x < 8; ++x)
    for (int y = 0; y < 8; ++y) {
      CAPTURE(types[x]);
      CAPTURE(types[y]);
      CHECK(add(ones({2}, types[x]), ones({2}, types[y])).dtype() == expected[x][y]);
    }
}

TEST_CASE("0-dimensional tensors and numbers change the type only when their kind is higher") {
  const Tensor f = ones({2}), l = ones({2}, kInt64), h = ones({2}, kFloat16),
               mask = ones({2}, kBool), byte = ones({2}, kUInt8);
  CHECK((f + ones({}, kFloat64)).dtype() == kFloat32);
  CHECK((l + ones({}, kFloat64)).dtype() == kFloat64);
  CHECK((byte + ones({}, kInt64)).dtype() == kUInt8);
  CHECK((mask + ones({}, kInt64)).dtype() == kInt64);
  CHECK((h + 1.5).dtype() == kFloat16);
  CHECK((f + 1.5).dtype() == kFloat32);
  CHECK((l + 1).dtype() == kInt64);
  CHECK((byte + 1).dtype() == kUInt8);
  CHECK((l + 1.5).dtype() == kFloat32);
  CHECK((mask + 1).dtype() == kInt64);
  CHECK((mask + true).dtype() == kBool);
  CHECK((ones({}, kInt32) + 1.5).dtype() == kFloat32);
  CHECK((ones({}, kFloat64) + ones({}, kFloat32)).dtype() == kFloat64);
}

TEST_CASE("division of integers is true division, floor_divide stays with integers") {
  const Tensor a = tensor({7, -7, 6}), b = tensor({2, 2, 3});
  CHECK((a / b).dtype() == kFloat32);
  CHECK(values(a / b) == Values{3.5, -3.5, 2});
  CHECK(floor_divide(a, b).dtype() == kInt64);
  CHECK(values(floor_divide(a, b)) == Values{3, -4, 2});
  CHECK(values(remainder(a, b)) == Values{1, 1, 0});
  CHECK(values(fmod(a, b)) == Values{1, -1, 0});
}

TEST_CASE("comparisons compare in the common type and give bools") {
  const Tensor a = tensor({1, 2, 3});
  CHECK((a > 1.5).dtype() == kBool);
  CHECK(values(a > 1.5) == Values{0, 1, 1});
  CHECK(values(a == tensor({1.0, 2.5, 3.0})) == Values{1, 0, 1});
  CHECK(values(lt(2, a)) == Values{0, 0, 1});
  CHECK(values((a > 1) & (a < 3)) == Values{0, 1, 0});
  CHECK(values(!(a > 1)) == Values{1, 0, 0});
}

TEST_CASE("add and sub scale their second operand by alpha") {
  const Tensor a = tensor({1.0, 2.0}), b = tensor({10.0, 20.0});
  CHECK(values(a.add(b, 0.5)) == Values{6, 12});
  CHECK(values(sub(a, b, 2)) == Values{-19, -38});
  CHECK(values(a.clone().sub_(b, 0.5)) == Values{-4, -8});
  CHECK(error_text([] { add(tensor({1}), tensor({2}), 0.5); }) ==
        "add: alpha is 0.5 but the result is i64.\nAn integer result takes an integer alpha.");
}

TEST_CASE("bools add as or, and refuse subtraction and negation") {
  const Tensor yes = tensor({true}), no = tensor({false});
  CHECK((yes + yes).dtype() == kBool);
  CHECK(values(yes + yes) == Values{1});
  CHECK(values(no + no) == Values{0});
  CHECK(error_text([&] { yes - no; }) ==
        "sub: not defined for bool.\nUse logical_xor to find where masks differ, logical_not to "
        "invert one.");
  CHECK(error_text([&] { -yes; }) ==
        "neg: not defined for bool.\nTo invert a mask use logical_not.");
}

TEST_CASE("integers refuse what has no integer answer") {
  const Tensor a = tensor({{1, 2}, {3, 4}});
  CHECK(error_text([&] { floor_divide(a, tensor({{1, 1}, {0, 1}})); }) ==
        "floor_divide: the divisor is 0 at [1, 0], and integers have no infinity.\n"
        "Replace zeros first, or divide floating-point tensors.");
  CHECK(error_text([&] { a.remainder(0); }) ==
        "remainder: the divisor is 0, and integers have no infinity.\nReplace zeros first, or "
        "divide floating-point tensors.");
  CHECK(error_text([&] { a.clone().fmod_(0); }).starts_with("fmod: the divisor is 0"));
  CHECK(error_text([&] { pow(a, -1); }) ==
        "pow: the exponent is negative, and integers have no fractions.\nConvert the base first: "
        "x.to(kFloat32).");
  CHECK(values(pow(a, 3)) == Values{1, 8, 27, 64});
  CHECK(values(pow(a.to(kFloat32), -1))[1] == 0.5);
  CHECK(error_text([] { bitwise_and(tensor({1.0}), tensor({2})); }) ==
        "bitwise_and: needs integers or bools, got f32 and i64.");
}

TEST_CASE("shapes broadcast from the right, and the error names the dimension") {
  CHECK((ones({2, 1}) + ones({3})).shape() == Shape{2, 3});
  CHECK((ones({0}) + ones({1})).shape() == Shape{0});
  CHECK(error_text([] { ones({2, 3}) * ones({2, 4}); }) ==
        "mul: shapes [2, 3] and [2, 4] do not broadcast: sizes 3 and 4 differ at dimension "
        "1.\nSizes must be equal, or one of them 1.");
}

TEST_CASE("in place, a tensor keeps its type and its shape") {
  const Tensor whole = tensor({1, 2}), row = ones({3});
  CHECK(error_text([&] { whole.add_(0.5); }) ==
        "add_: a result of type f32 cannot be written into a tensor of type i64.");
  CHECK(error_text([&] { row.add_(ones({2, 3})); }) ==
        "add_: the result has shape [2, 3] but the tensor to write has shape [3].\nThe other "
        "operands must broadcast to it, not beyond it.");
  CHECK(values(row.mul_(ones({1}) * 2)) == Values{2, 2, 2});
  CHECK(values(ones({2}, kFloat16).add_(ones({2}, kFloat64))) == Values{2, 2});
}

TEST_CASE("in place, elements that share memory are refused") {
  const Tensor wide = ones({1}).expand({3});
  CHECK(error_text([&] { wide.add_(1); }) ==
        "add: elements of the tensor to write share memory (it was expanded: shape [3], strides "
        "[0]).\nWrite to a clone() instead.");
}

TEST_CASE("in place, an operand that overlaps the tensor is read as it was before") {
  const Tensor x = arange(6, kFloat32);
  x.slice(0, 1, 6).add_(x.slice(0, 0, 5));
  CHECK(values(x) == Values{0, 1, 3, 5, 7, 9});
  const Tensor square = arange(4, kFloat32).view({2, 2});
  square.add_(square.t());
  CHECK(values(square) == Values{0, 3, 3, 6});
  const Tensor same = arange(3, kFloat32);
  same.mul_(same);
  CHECK(values(same) == Values{0, 1, 4});
}

TEST_CASE("an in-place method returns the tensor it was called on") {
  Tensor x = ones({2});
  CHECK(&x.add_(1) == &x);
  x += 1;
  x -= ones({2});
  x *= 3;
  x /= 2;
  CHECK(values(x) == Values{3, 3});
}

TEST_CASE("where and masked_fill choose by a bool mask") {
  const Tensor x = tensor({-1.0, 2.0, -3.0});
  CHECK(values(where(x > 0, x, 0)) == Values{0, 2, 0});
  CHECK(values(where(x > 0, 1, x)) == Values{-1, 1, -3});
  CHECK(values(x.where(x > 0, -x)) == Values{1, 2, 3});
  CHECK(values(masked_fill(x, x < 0, 7)) == Values{7, 2, 7});
  CHECK(error_text([&] { where(x, x, 0); }) ==
        "where: the mask must be bool, got f32.\nMake one with a comparison: mask != 0.");
}

TEST_CASE("clamp takes a minimum, a maximum or both") {
  const Tensor x = tensor({-2.0, 0.5, 3.0});
  CHECK(values(clamp(x, -1, 1)) == Values{-1, 0.5, 1});
  CHECK(values(x.clamp_min(0)) == Values{0, 0.5, 3});
  CHECK(values(clamp(x, {}, 1)) == Values{-2, 0.5, 1});
  CHECK(error_text([&] { clamp(x); }) ==
        "clamp: neither bound is given.\nPass a minimum, a maximum or both.");
}

TEST_CASE("lerp reaches both ends exactly") {
  const Tensor a = tensor({0.1, 1e8}), b = tensor({0.3, -1e-8});
  CHECK(equal(lerp(a, b, 0), a));
  CHECK(equal(lerp(a, b, 1), b));
}

TEST_CASE("addcmul and addcdiv add a scaled product or quotient") {
  const Tensor x = tensor({1.0, 1.0}), a = tensor({2.0, 3.0}), b = tensor({4.0, 2.0});
  CHECK(values(addcmul(x, a, b, 0.5)) == Values{5, 4});
  CHECK(values(x.clone().addcdiv_(a, b, 2)) == Values{2, 4});
}

TEST_CASE("activations with parameters follow their formulas") {
  const Tensor x = tensor({-1.0, 0.0, 2.0}, kFloat64);
  CHECK(values(leaky_relu(x, 0.1)) == Values{-0.1, 0, 2});
  CHECK(allclose(elu(x, 2), tensor({2 * std::expm1(-1.0), 0.0, 2.0}, kFloat64)));
  CHECK(allclose(softplus(x), log1p(exp(x))));
  CHECK(values(softplus(x, 1, 1))[2] == 2);
  CHECK(allclose(gelu(x), 0.5 * x * (1 + erf(x / std::sqrt(2.0)))));
  CHECK(allclose(gelu(x, "tanh"), gelu(x), 1e-2));
  CHECK(error_text([&] { gelu(x, "fast"); }) ==
        "gelu: approximate is \"none\" or \"tanh\", got \"fast\".");
}

TEST_CASE("item gives the one element, and equal and allclose one answer") {
  CHECK(tensor({{2.5}}).item<double>() == 2.5);
  CHECK(tensor(7).item<int>() == 7);
  CHECK(tensor(true).item().is_bool());
  CHECK(error_text([] { ones({2, 3}).item(); }) ==
        "item: the tensor has 6 elements (shape [2, 3]), not one.\nSelect one first, e.g. "
        "t[0].item().");
  const Tensor nan = tensor({1.0, NAN}), inf = tensor({1.0, INFINITY});
  CHECK(equal(inf, inf));
  CHECK_FALSE(equal(nan, nan));
  CHECK_FALSE(equal(ones({2}), ones({1, 2})));
  CHECK(equal(ones({0}), ones({0})));
  CHECK(allclose(nan, nan, 1e-5, 1e-8, true));
  CHECK_FALSE(allclose(nan, nan));
  CHECK(allclose(inf, inf));
  CHECK_FALSE(allclose(inf, -inf));
  CHECK(allclose(tensor({1.0}), tensor({1.000001})));
  CHECK_FALSE(allclose(tensor({1.0}), tensor({1.001})));
}
