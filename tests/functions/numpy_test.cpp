/// Our ops against what NumPy says (numpy_values.h).
#include <doctest/doctest.h>

#include <cstring>
#include <functional>
#include <map>

#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"
#include "tests/functions/numpy_values.h"

using namespace grapnel;
using recorded::Array;

namespace {

Tensor tensor_of(const Array& a) { return tensor(a.values, kFloat64).reshape(a.sizes).to(a.dtype); }

using Fn = std::function<Tensor(const std::vector<Tensor>&)>;
struct Ours {
  Fn fn;
  double ulps = 0;  ///< how far from NumPy's number ours may be
};

/// How many doubles lie between two.
double distance(double a, double b) {
  if (std::isnan(a) && std::isnan(b)) return 0;
  if (std::isnan(a) || std::isnan(b)) return INFINITY;
  auto place = [](double x) {
    int64_t bits;
    std::memcpy(&bits, &x, sizeof x);
    return bits < 0 ? INT64_MIN - bits : bits;
  };
  return std::fabs(static_cast<double>(place(a)) - static_cast<double>(place(b)));
}

std::map<std::string_view, Ours> our_functions() {
  std::map<std::string_view, Ours> ours;
#define UNARY(name, ulps) \
  ours[#name] = {[](const std::vector<Tensor>& in) { return name(in[0]); }, ulps}
#define BINARY(name, ulps) \
  ours[#name] = {[](const std::vector<Tensor>& in) { return name(in[0], in[1]); }, ulps}
  // clang-format off
  UNARY(exp, 2); UNARY(exp2, 2); UNARY(expm1, 2); UNARY(log, 2); UNARY(log2, 2); UNARY(log10, 2);
  UNARY(log1p, 2); UNARY(sqrt, 0); UNARY(sin, 2); UNARY(cos, 2); UNARY(tan, 2); UNARY(asin, 2);
  UNARY(acos, 2); UNARY(atan, 2); UNARY(sinh, 3); UNARY(cosh, 3); UNARY(tanh, 3); UNARY(erf, 3);
  UNARY(erfc, 4); UNARY(sigmoid, 4); UNARY(reciprocal, 0); UNARY(square, 0); UNARY(abs, 0);
  UNARY(sign, 0); UNARY(floor, 0); UNARY(ceil, 0); UNARY(trunc, 0); UNARY(round, 0);
  UNARY(isnan, 0); UNARY(isinf, 0); UNARY(isfinite, 0); UNARY(logical_not, 0);
  BINARY(pow, 2); BINARY(atan2, 2); BINARY(maximum, 0); BINARY(minimum, 0); BINARY(fmod, 0);
  BINARY(floor_divide, 0); BINARY(remainder, 0); BINARY(add, 0); BINARY(div, 0); BINARY(mul, 0);
  BINARY(eq, 0); BINARY(lt, 0); BINARY(ge, 0); BINARY(bitwise_and, 0); BINARY(bitwise_xor, 0);
  // Sums are rounded in another order than NumPy's.
  UNARY(sum, 16); UNARY(prod, 32); BINARY(matmul, 64); BINARY(outer, 0); UNARY(tril, 0);
  // clang-format on
#undef UNARY
#undef BINARY
  ours["std"] = {[](const std::vector<Tensor>& in) { return in[0].std(); }, 16};
  ours["flip"] = {[](const std::vector<Tensor>& in) { return flip(in[0], {1}); }};
  ours["einsum ij,jk->ki"] = {[](const std::vector<Tensor>& in) { return einsum("ij,jk->ki", in); },
                              64};
  ours["logsumexp"] = {[](const std::vector<Tensor>& in) { return logsumexp(in[0], {-1}); }, 8};
  ours["softmax"] = {[](const std::vector<Tensor>& in) { return softmax(in[0], -1); }, 8};
  ours["linspace"] = {[](const std::vector<Tensor>&) { return linspace(0, 1, 7, kFloat64); }, 1};
  ours["arange"] = {[](const std::vector<Tensor>&) { return arange(-1, 1, 0.3, kFloat64); }, 1};
  constexpr std::string_view along[][3] = {
      {"sum 0", "sum 1", "sum 2"},          {"mean 0", "mean 1", "mean 2"},
      {"amax 0", "amax 1", "amax 2"},       {"var 0", "var 1", "var 2"},
      {"argmax 0", "argmax 1", "argmax 2"}, {"cumsum 0", "cumsum 1", "cumsum 2"},
      {"sort 0", "sort 1", "sort 2"},       {"argsort 0", "argsort 1", "argsort 2"}};
  for (int64_t d = 0; d < 3; ++d) {
    const auto at = static_cast<size_t>(d);
    ours[along[0][at]] = {[d](const std::vector<Tensor>& in) { return sum(in[0], {d}); }, 8};
    ours[along[1][at]] = {[d](const std::vector<Tensor>& in) { return mean(in[0], {d}); }, 8};
    ours[along[2][at]] = {[d](const std::vector<Tensor>& in) { return amax(in[0], {d}); }};
    ours[along[3][at]] = {[d](const std::vector<Tensor>& in) { return var(in[0], IntArrayRef(d)); },
                          16};
    ours[along[4][at]] = {[d](const std::vector<Tensor>& in) { return argmax(in[0], d); }};
    ours[along[5][at]] = {[d](const std::vector<Tensor>& in) { return cumsum(in[0], d); }, 8};
    ours[along[6][at]] = {
        [d](const std::vector<Tensor>& in) { return std::get<0>(sort(in[0], d)); }};
    ours[along[7][at]] = {
        [d](const std::vector<Tensor>& in) { return std::get<1>(sort(in[0], d)); }};
  }
  return ours;
}

}  // namespace

TEST_CASE("ops agree with NumPy") {
  const auto ours = our_functions();
  for (const recorded::Case& c : recorded::cases) {
    CAPTURE(c.name);
    REQUIRE(ours.contains(c.name));
    const auto& [fn, ulps] = ours.at(c.name);
    std::vector<Tensor> inputs;
    for (const Array& a : c.inputs) inputs.push_back(tensor_of(a));
    const Tensor result = fn(inputs);
    CHECK(result.shape() == Shape(std::span<const int64_t>(c.result.sizes)));
    CHECK(result.dtype() == c.result.dtype);
    const Tensor wide = result.to(kFloat64).contiguous();
    for (size_t i = 0; i < c.result.values.size(); ++i) {
      const double mine = wide.data_ptr<double>()[i], theirs = c.result.values[i];
      CAPTURE(i);
      CAPTURE(mine);
      CAPTURE(theirs);
      CHECK(distance(mine, theirs) <= ulps);
    }
  }
}
