/// Losses, activations and norms where they are flat or infinite: gradients are what the formula
/// says, and first and second ones are finite.
#include <cmath>
#include <limits>

#include "grapnel/grapnel.h"
#include "tests/ops/values.h"

using namespace grapnel;
namespace F = nn::functional;

namespace {

constexpr DType kTypes[] = {kFloat16, kBFloat16, kFloat32, kFloat64};
constexpr double inf = std::numeric_limits<double>::infinity();
using Fn = std::function<Tensor(const Tensor&)>;

bool finite(const Tensor& t) { return isfinite(t).all().item<bool>(); }

/// The gradient of fn(x).sum(); checks that it and the gradient of its sum of squares are finite.
Tensor finite_gradient(const Tensor& at, const Fn& fn) {
  const Tensor x = at.detach().clone().set_requires_grad(true);
  const Tensor g = autograd::grad({fn(x).sum()}, {x}, {}, true, true)[0];
  CHECK(finite(g));
  if (g.requires_grad()) {
    const Tensor second = autograd::grad({g.sum()}, {x}, {}, {}, false, true)[0];
    if (second.defined()) CHECK(finite(second));
  }
  return g.detach();
}

struct Activation {
  const char* name;
  Fn fn;
  std::function<double(double)> slope;
};

double sigmoid_of(double z) {
  return z >= 0 ? 1 / (1 + std::exp(-z)) : std::exp(z) / (1 + std::exp(z));
}
double softplus_of(double z) { return std::max(z, 0.0) + std::log1p(std::exp(-std::abs(z))); }
double density(double z) { return std::exp(-z * z / 2) / std::sqrt(2 * M_PI); }

const Activation activations[] = {
    {"sigmoid", [](const Tensor& x) { return sigmoid(x); },
     [](double z) { return sigmoid_of(z) * sigmoid_of(-z); }},
    {"tanh", [](const Tensor& x) { return tanh(x); },
     [](double z) {
       return 1 /
              (std::cosh(std::min(std::abs(z), 300.0)) * std::cosh(std::min(std::abs(z), 300.0)));
     }},
    {"relu", [](const Tensor& x) { return relu(x); }, [](double z) { return double(z > 0); }},
    {"relu6", [](const Tensor& x) { return nn::ReLU6()(x); },
     [](double z) { return double(z > 0 && z < 6); }},
    {"hardtanh", [](const Tensor& x) { return nn::Hardtanh()(x); },
     [](double z) { return double(std::abs(z) < 1); }},
    {"leaky_relu", [](const Tensor& x) { return leaky_relu(x); },
     [](double z) { return z > 0 ? 1 : 0.01; }},
    {"elu", [](const Tensor& x) { return elu(x); },
     [](double z) { return z > 0 ? 1 : std::exp(z); }},
    {"selu", [](const Tensor& x) { return nn::SELU()(x); },
     [](double z) { return 1.0507009873554805 * (z > 0 ? 1 : 1.6732632423543772 * std::exp(z)); }},
    {"silu", [](const Tensor& x) { return silu(x); },
     [](double z) { return sigmoid_of(z) * (1 + z * sigmoid_of(-z)); }},
    {"mish", [](const Tensor& x) { return nn::Mish()(x); },
     [](double z) {
       const double t = std::tanh(softplus_of(z));
       return t + z * (1 - t * t) * sigmoid_of(z);
     }},
    {"gelu", [](const Tensor& x) { return gelu(x); },
     [](double z) { return 0.5 * std::erfc(-z / std::sqrt(2)) + z * density(z); }},
    {"gelu tanh", [](const Tensor& x) { return gelu(x, "tanh"); },
     [](double z) {
       const double k = std::sqrt(2 / M_PI), t = std::tanh(k * (z + 0.044715 * z * z * z));
       return 0.5 * (1 + t) + 0.5 * z * (1 - t * t) * k * (1 + 3 * 0.044715 * z * z);
     }},
    {"softplus", [](const Tensor& x) { return softplus(x); }, sigmoid_of},
    {"log sigmoid", [](const Tensor& x) { return nn::LogSigmoid()(x); },
     [](double z) { return sigmoid_of(-z); }},
    {"softsign", [](const Tensor& x) { return nn::Softsign()(x); },
     [](double z) { return 1 / ((1 + std::abs(z)) * (1 + std::abs(z))); }},
    {"prelu", [](const Tensor& x) { return nn::PReLU()(x); },
     [](double z) { return z > 0 ? 1 : 0.25; }},
    {"glu", [](const Tensor& x) { return nn::GLU(0)(cat({ones_like(x), x})); },
     [](double z) { return sigmoid_of(z) * sigmoid_of(-z); }},
};

}  // namespace

TEST_CASE("activations: the gradient is the formula's, however far out the input is") {
  const Tensor far = tensor(
      {-1e4, -300.0, -200.0, -104.0, -90.0, -18.0, 18.0, 90.0, 104.0, 200.0, 300.0, 1e4}, kFloat64);
  for (const Activation& a : activations)
    for (const DType type : kTypes) {
      const std::string name = a.name;
      CAPTURE(name);
      CAPTURE(type);
      // Beside 0, in every type.
      const Tensor near = tensor({-1e-30, 1e-30}, kFloat64) * (type == kFloat16 ? 1e24 : 1.0);
      const Tensor x = cat({far, near}).to(type);
      const Values got = values(finite_gradient(x, a.fn)), points = values(x);
      const double tolerance = type == kBFloat16  ? 0.05
                               : type == kFloat16 ? 5e-3
                               : type == kFloat32 ? 1e-4
                                                  : 1e-9;
      for (size_t i = 0; i < got.size(); ++i) {
        CAPTURE(points[i]);
        CHECK(got[i] == doctest::Approx(a.slope(points[i])).epsilon(tolerance));
      }
    }
}

TEST_CASE("log sigmoid is exact in f64 as well") {
  CHECK(nn::LogSigmoid()(tensor({-21.0}, kFloat64)).item<double>() ==
        doctest::Approx(-softplus_of(21)).epsilon(1e-15));
}

TEST_CASE("binary cross entropy: logarithms end at -100, and the gradient at 1e12") {
  for (const DType type : {kFloat32, kFloat64})
    for (const double p : {0.0, 1e-45, 1e-13, 0.25, 1.0})
      for (const double t : {0.0, 0.5, 1.0}) {
        CAPTURE(type);
        CAPTURE(p);
        CAPTURE(t);
        const Tensor x = tensor({p}, type), target = tensor({t}, type);
        const double q = x.item<double>();
        const double loss =
            -(t * std::max(std::log(q), -100.0) + (1 - t) * std::max(std::log1p(-q), -100.0));
        CHECK(binary_cross_entropy(x, target).item<double>() ==
              doctest::Approx(loss).epsilon(1e-5));
        const Tensor g =
            finite_gradient(x, [&](const Tensor& v) { return binary_cross_entropy(v, target); });
        CHECK(g.item<double>() ==
              doctest::Approx((q - t) / std::max(q * (1 - q), 1e-12)).epsilon(1e-5));
        const Tensor h =
            finite_gradient(target, [&](const Tensor& v) { return binary_cross_entropy(x, v); });
        CHECK(std::abs(h.item<double>()) <= 100);
      }
  CHECK(std::isnan(binary_cross_entropy(tensor({1.5}), tensor({1.0})).item<double>()));
}

TEST_CASE("binary cross entropy of a sigmoid that has gone flat trains on") {
  // In f16 the gradient of 1e12 is infinite; the form with logits is for that.
  for (const DType type : {kBFloat16, kFloat32, kFloat64})
    for (const double z : {-1e4, -200.0, -104.0, 17.5, 40.0, 1e4})
      for (const double t : {0.0, 1.0}) {
        CAPTURE(type);
        CAPTURE(z);
        const Tensor target = tensor({t}, type);
        const Tensor g = finite_gradient(
            tensor({z}, type), [&](const Tensor& v) { return nn::BCELoss()(sigmoid(v), target); });
        CHECK(std::abs(g.item<double>()) <= 1.01);
        CHECK(finite(finite_gradient(tensor({z}, type), [&](const Tensor& v) {
          return binary_cross_entropy_with_logits(v, target);
        })));
      }
  const Tensor z = tensor({200.0, -200.0}).set_requires_grad(true);
  nn::BCELoss()(sigmoid(z), tensor({1.0, 0.0})).backward();
  CHECK(values(z.grad()) == Values{0, 0});
}

TEST_CASE("binary cross entropy and its gradients agree with differences") {
  const variable_list in = {tensor({0.1, 0.5, 0.9}, kFloat64).set_requires_grad(true),
                            tensor({0.3, 1.0, 0.0}, kFloat64).set_requires_grad(true)};
  const autograd::CheckedFunction f = [](const variable_list& v) {
    return variable_list{binary_cross_entropy(v[0], v[1], tensor({1.0, 2.0, 3.0}, kFloat64))};
  };
  CHECK(autograd::gradcheck(f, in));
  CHECK(autograd::gradgradcheck(f, in));
}

TEST_CASE("losses of differences: the gradient is bounded where the difference is not") {
  for (const DType type : kTypes) {
    const Tensor x = tensor({-1e30, -3.0, -0.5, 0.0, 0.5, 3.0, 1e30, inf}, type),
                 zero = zeros({8}, type);
    const auto slopes = [&](const Fn& loss) { return values(finite_gradient(x, loss)); };
    CHECK(slopes([&](const Tensor& v) { return l1_loss(v, zero, Reduce::sum); }) ==
          Values{-1, -1, -1, 0, 1, 1, 1, 1});
    CHECK(slopes([&](const Tensor& v) { return F::smooth_l1_loss(v, zero, Reduce::sum); }) ==
          Values{-1, -1, -0.5, 0, 0.5, 1, 1, 1});
    CHECK(slopes([&](const Tensor& v) { return F::huber_loss(v, zero, Reduce::sum, 2.0); }) ==
          Values{-2, -2, -0.5, 0, 0.5, 2, 2, 2});
  }
}

TEST_CASE("scores at the ends of their range: probabilities of 0 and 1, and impossible classes") {
  for (const DType type : kTypes) {
    const Tensor x = tensor({{1e4, -1e4, 0.0}, {-inf, 0.0, 0.0}, {90.0, 90.0, -90.0}}, type);
    const Tensor t = tensor({1, 2, 0});
    const Values want = {1, -1, 0, 0, 0.5, -0.5, -0.5, 0.5, 0};
    for (const Fn& loss :
         {Fn([&](const Tensor& v) { return cross_entropy(v, t, {}, Reduce::sum); }),
          Fn([&](const Tensor& v) { return nll_loss(log_softmax(v, 1), t, {}, Reduce::sum); })}) {
      const Values got = values(finite_gradient(x, loss));
      for (size_t i = 0; i < want.size(); ++i)
        CHECK(got[i] == doctest::Approx(want[i]).epsilon(1e-6));
    }
    CHECK(finite(finite_gradient(x, [](const Tensor& v) { return softmax(v, 1).square(); })));
    CHECK(finite(finite_gradient(x, [](const Tensor& v) { return v.logsumexp({1}); })));
    const Tensor p = tensor({{0.0, 1.0}, {0.5, 0.5}}, type);
    CHECK(values(finite_gradient(tensor({{-200.0, 0.0}, {-1e4, 3.0}}, type), [&](const Tensor& v) {
            return F::kl_div(v, p, F::KLReduce::sum);
          })) == Values{0, -1, -0.5, -0.5});
  }
}

TEST_CASE("an outcome that never happens has no part in the gradients of kl_div") {
  for (const DType type : kTypes) {
    CAPTURE(type);
    const Tensor x = tensor({-1.0, -0.5, -3.0}, type), p = tensor({0.0, 1.0, 0.5}, type);
    CHECK(values(finite_gradient(x, [&](const Tensor& v) {
            return F::kl_div(v, p, F::KLReduce::sum);
          })) == Values{0, -1, -0.5});
    const Values slope = values(
        finite_gradient(p, [&](const Tensor& v) { return F::kl_div(x, v, F::KLReduce::sum); }));
    CHECK(slope[0] == 0);
    CHECK(slope[1] == 1.5);
    CHECK(slope[2] == doctest::Approx(std::log(0.5) + 1 + 3).epsilon(0.01));
  }
}

TEST_CASE("norms of what does not vary have finite gradients") {
  for (const DType type : kTypes)
    for (const double c : {0.0, 3.0, 1e4}) {
      CAPTURE(type);
      CAPTURE(c);
      const Tensor x = full({4, 6}, c, type), w = counting({6}, type);
      const Fn norms[] = {
          [&](const Tensor& v) { return layer_norm(v, {6}, w); },
          [&](const Tensor& v) { return F::group_norm(v, 2, w, w); },
          [&](const Tensor& v) { return F::rms_norm(v, {6}, w); },
          [&](const Tensor& v) { return batch_norm(v, w, w, {}, {}, true) * w; },
          [&](const Tensor& v) { return v.std({0}) * w; },
          [&](const Tensor& v) { return v.var({0}) * w; },
      };
      for (size_t i = 0; i < std::size(norms); ++i) {
        CAPTURE(i);
        const Tensor v = x.detach().clone().set_requires_grad(true);
        norms[i](v).sum().backward();
        CHECK(finite(v.grad()));
      }
    }
  for (const double p : {1.0, 1.5, 2.0, 3.0, inf}) {
    CAPTURE(p);
    const Tensor v = zeros({2, 3}).set_requires_grad(true);
    v.norm(p, {1}).sum().backward();
    CHECK(values(v.grad()) == Values(6, 0.0));
  }
}
