#include "grapnel/functions/random.h"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <set>

#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"
#include "grapnel/functions/generator.h"
#include "tests/ops/error_text.h"
#include "tests/ops/sweep.h"

using namespace grapnel;

namespace {

struct Moments {
  double mean = 0, variance = 0;
};
Moments moments(const Tensor& t) {
  const Tensor x = converted_to(t, kFloat64);
  const auto n = static_cast<double>(x.numel());
  Moments m;
  for (int64_t i = 0; i < x.numel(); ++i) m.mean += x.data_ptr<double>()[i] / n;
  for (int64_t i = 0; i < x.numel(); ++i)
    m.variance += std::pow(x.data_ptr<double>()[i] - m.mean, 2) / n;
  return m;
}

/// Every kind of fill, by name.
const std::pair<const char*, std::function<Tensor(DType)>> kFills[] = {
    {"uniform", [](DType t) { return empty({100'003}, t).uniform_(-1, 2); }},
    {"normal", [](DType t) { return empty({100'003}, t).normal_(1, 3); }},
    {"exponential", [](DType t) { return empty({100'003}, t).exponential_(2); }},
    {"bernoulli", [](DType t) { return empty({100'003}, t).bernoulli_(0.3); }},
    {"random", [](DType t) { return empty({100'003}, t).random_(0, 100); }},
};

}  // namespace

TEST_CASE("the same seed gives the same numbers") {
  manual_seed(3);
  const Tensor a = rand({5}), b = rand({5});
  manual_seed(3);
  CHECK(equal(rand({5}), a));
  CHECK(equal(rand({5}), b));
  CHECK_FALSE(equal(a, b));
  manual_seed(4);
  CHECK_FALSE(equal(rand({5}), a));
}

TEST_CASE("draws depend neither on threads nor on the instruction set") {
  for (const auto& [name, fill] : kFills)
    for (const DType dtype : {kFloat16, kBFloat16, kFloat32, kFloat64}) {
      CAPTURE(name);
      CAPTURE(dtype);
      Tensor expected;
      for (const base::Isa isa : available_isas())
        for (const int threads : {1, 2}) {
          const IsaScope scope(isa);
          const ThreadsScope count(threads);
          manual_seed(11);
          const Tensor t = fill(dtype);
          if (!expected.defined()) expected = t;
          CHECK(same_bits(t, expected));
        }
    }
}

TEST_CASE("element i depends on the seed, the offset and i only") {
  for (const DType dtype : {kFloat32, kFloat64}) {
    manual_seed(5);
    const Tensor longer = randn({1000}, dtype);
    manual_seed(5);
    const Tensor shorter = randn({77}, dtype);
    for (int64_t i = 0; i < 77; ++i) CHECK(shorter[i].item<double>() == longer[i].item<double>());
  }
  manual_seed(5);
  const Tensor straight = randn({4, 6});
  manual_seed(5);
  const Tensor turned = empty({6, 4}).t();
  turned.normal_();
  CHECK(equal(straight, turned));
}

TEST_CASE("a fill moves the generator by its number of elements, whatever the type") {
  Generator g(1);
  rand({10}, g);
  CHECK(g.state() == GeneratorState{1, 10});
  randn({3, 4}, g, kFloat64);
  randint(0, 9, {5}, g);
  randperm(7, g);
  CHECK(g.state() == GeneratorState{1, 34});
}

TEST_CASE("a generator's state can be kept and put back, also as a tensor") {
  Generator g(8);
  rand({3}, g);
  const Tensor state = g.get_state();
  const Tensor a = rand({4}, g);
  g.set_state(state);
  CHECK(equal(rand({4}, g), a));
  Generator copy = g.clone();
  CHECK(equal(rand({4}, g), rand({4}, copy)));
  Generator handle = g;
  rand({4}, handle);
  CHECK(g.state() == handle.state());
  CHECK(error_text([&] { g.set_state(ones({2})); }) ==
        "Generator::set_state: a state is i64[2], got f32[2].\nPass what get_state() returned.");
  const uint64_t fresh = g.seed();
  CHECK(g.state() == GeneratorState{fresh, 0});
}

TEST_CASE("a generator of one's own leaves the default one alone") {
  manual_seed(1);
  const Tensor a = rand({4});
  manual_seed(1);
  Generator g(2);
  rand({100}, g);
  CHECK(equal(rand({4}), a));
}

TEST_CASE("distributions have the mean and the variance they should") {
  manual_seed(2);
  for (const DType dtype : {kFloat16, kBFloat16, kFloat32, kFloat64}) {
    CAPTURE(dtype);
    const double tolerance = dtype == kBFloat16 ? 0.02 : 0.01;
    const Moments u = moments(rand({200'000}, dtype));
    CHECK(u.mean == doctest::Approx(0.5).epsilon(tolerance));
    CHECK(u.variance == doctest::Approx(1.0 / 12).epsilon(2 * tolerance));
    const Moments n = moments(randn({200'000}, dtype));
    CHECK(std::fabs(n.mean) < tolerance);
    CHECK(n.variance == doctest::Approx(1).epsilon(2 * tolerance));
    const Moments e = moments(empty({200'000}, dtype).exponential_(4));
    CHECK(e.mean == doctest::Approx(0.25).epsilon(tolerance));
    CHECK(e.variance == doctest::Approx(1.0 / 16).epsilon(4 * tolerance));
    CHECK(moments(empty({200'000}, dtype).bernoulli_(0.2)).mean ==
          doctest::Approx(0.2).epsilon(0.02));
  }
}

TEST_CASE("normal numbers have the tails of the bell curve") {
  manual_seed(6);
  for (const DType dtype : {kFloat32, kFloat64}) {
    const Tensor x = converted_to(randn({1'000'000}, dtype), kFloat64);
    for (const double z : {0.5, 1.0, 2.0, 3.0}) {
      int64_t beyond = 0;
      for (int64_t i = 0; i < x.numel(); ++i) beyond += std::fabs(x.data_ptr<double>()[i]) > z;
      const double expected = std::erfc(z / std::sqrt(2.0)) * 1e6;
      CHECK(std::fabs(static_cast<double>(beyond) - expected) < 4 * std::sqrt(expected));
    }
  }
}

TEST_CASE("uniform numbers stay below the end of their interval in every type") {
  manual_seed(9);
  for (const DType dtype : {kFloat16, kBFloat16, kFloat32, kFloat64})
    for (const auto& [low, high] :
         {std::pair(0.0, 1.0), std::pair(1000.0, 1001.0), std::pair(-3.0, -2.9)}) {
      CAPTURE(dtype);
      const Tensor x = empty({50'000}, dtype).uniform_(low, high);
      const Tensor wide = converted_to(x, kFloat64);
      CHECK((wide >= low).all().item<bool>());
      CHECK((wide < high).all().item<bool>());
    }
}

TEST_CASE("whole numbers fill every type that holds them") {
  manual_seed(1);
  for (const DType dtype : kAllDTypes) {
    CAPTURE(dtype);
    const int64_t high = dtype == kBool ? 2 : 5;
    const Tensor x = converted_to(randint(0, high, {1000}, dtype), kInt64);
    std::set<int64_t> seen(x.data_ptr<int64_t>(), x.data_ptr<int64_t>() + 1000);
    CHECK(static_cast<int64_t>(seen.size()) == high);
    CHECK(*seen.begin() == 0);
  }
  CHECK(randint(10, {3}).dtype() == kInt64);
}

TEST_CASE("randperm holds every number once") {
  manual_seed(1);
  const Tensor p = randperm(1000);
  std::set<int64_t> seen(p.data_ptr<int64_t>(), p.data_ptr<int64_t>() + 1000);
  CHECK(seen.size() == 1000);
  CHECK(*seen.rbegin() == 999);
  CHECK_FALSE(equal(p, arange(1000)));
  CHECK(randperm(0).numel() == 0);
  CHECK(randperm(5, kInt32).dtype() == kInt32);
}

TEST_CASE("probabilities 0 and 1 are certain") {
  CHECK(equal(empty({1000}).bernoulli_(0), zeros({1000})));
  CHECK(equal(empty({1000}).bernoulli_(1), ones({1000})));
}

TEST_CASE("a random fill is an in-place change: the version moves and leaves are protected") {
  const Tensor x = ones({3});
  x.uniform_();
  CHECK(x._version() == 1);
  const Tensor leaf = ones({3}, requires_grad());
  CHECK_FALSE(error_text([&] { leaf.normal_(); }).empty());
}

TEST_CASE("arguments without meaning are refused") {
  const Tensor x = ones({2});
  CHECK(error_text([] { rand({2}, kInt64); }) ==
        "rand: in uniform_: the numbers are fractions, which i64 cannot hold.\nUse a "
        "floating-point type, "
        "or random_ for whole numbers.");
  CHECK(error_text([&] { x.uniform_(2, 1); }) ==
        "uniform_: [2, 1) is no interval of finite length.");
  CHECK(error_text([&] { x.normal_(0, -1); }) ==
        "normal_: the standard deviation must not be negative, got -1.");
  CHECK(error_text([&] { x.bernoulli_(1.5); }) ==
        "bernoulli_: a probability lies between 0 and 1, got 1.5.");
  CHECK(error_text([&] { x.exponential_(0); }) ==
        "exponential_: the rate must be positive, got 0.");
  CHECK(error_text([&] { x.random_(3, 3); }) == "random_: no number lies in [3, 3).");
  CHECK(error_text([] { randint(0, 300, {2}, kUInt8); }) ==
        "randint: in random_: [0, 300) goes beyond what u8 holds, 0 to 255.");
}
