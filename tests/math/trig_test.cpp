#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "grapnel/math/trig.h"
#include "tests/math/ulp.h"

namespace grapnel {
namespace {

using test::sweep_f32;
using test::sweep_f64;
using test::UlpReport;

using F = Num<float, IsaBaseline>;
using D = Num<double, IsaBaseline>;

constexpr float inf_f = std::numeric_limits<float>::infinity();
constexpr double inf_d = std::numeric_limits<double>::infinity();
const double pi = 3.14159265358979323846;

/// Doubles next to multiples of pi/2, small and huge; `screen` and MPFR see their 64 neighbours
/// too.
std::vector<double> near_multiples(double largest) {
  std::vector<double> points;
  for (int n = 1; n <= 40; ++n) points.push_back(n * (pi / 2));
  for (double n = 64; n * pi < largest; n *= 3.7) points.push_back(std::nearbyint(n) * (pi / 2));
  return points;
}

/// The doubles closest of all to a multiple of pi/2, down to 2^-61 away: whole Q with Q 2^e /
/// (pi/2) all but whole are the denominators of the continued fraction of 2^e / (pi/2).
std::vector<double> closest_doubles() {
  std::vector<double> points;
  mpfr_t half_pi, ratio;
  mpfr_init2(half_pi, 2400);
  mpfr_init2(ratio, 2400);
  mpfr_const_pi(half_pi, MPFR_RNDN);
  mpfr_div_2ui(half_pi, half_pi, 1, MPFR_RNDN);
  for (int e = -10; e <= 970; ++e) {
    mpfr_ui_div(ratio, 1, half_pi, MPFR_RNDN);
    mpfr_mul_2si(ratio, ratio, e, MPFR_RNDN);
    double q0 = 0, q1 = 1;
    mpfr_t rest, whole;
    mpfr_init2(rest, 2400);
    mpfr_init2(whole, 2400);
    mpfr_set(rest, ratio, MPFR_RNDN);
    mpfr_frac(rest, rest, MPFR_RNDN);
    while (q1 < 0x1p53 && !mpfr_zero_p(rest)) {
      mpfr_ui_div(rest, 1, rest, MPFR_RNDN);
      mpfr_floor(whole, rest);
      const double a = mpfr_get_d(whole, MPFR_RNDN);
      mpfr_sub(rest, rest, whole, MPFR_RNDN);
      const double q2 = a * q1 + q0;
      q0 = q1;
      q1 = q2;
      if (q1 > 0x1p40 && q1 < 0x1p53) points.push_back(std::ldexp(q1, e));
    }
    mpfr_clear(rest);
    mpfr_clear(whole);
  }
  mpfr_clear(half_pi);
  mpfr_clear(ratio);
  return points;
}

template <class Fn, class Judge>
void add_points(UlpReport& report, const std::vector<double>& points, Fn&& fn, Judge&& judge) {
  test::UlpMeter<double> meter;
  for (double x : points) {
    meter.judge(x, fn(x), judge);
    meter.judge(-x, fn(-x), judge);
  }
  report.count += meter.report.count;
  if (meter.report.worst > report.worst) {
    const auto count = report.count;
    report = meter.report;
    report.count = count;
  }
}

#define CHECK_F32(function, ...)                                                                 \
  do {                                                                                           \
    const UlpReport r = sweep_f32([](float x) { return function(F::of(x)).v; }, mpfr_##function, \
                                  [](double x) { return std::function(x); }, __VA_ARGS__);       \
    MESSAGE(#function " f32: " << r);                                                            \
    CHECK_MESSAGE(r.worst <= 1.5, r);                                                            \
  } while (false)

#define CHECK_F64(function, samples, near, points)                 \
  do {                                                             \
    const auto fn = [](double x) { return function(D::of(x)).v; }; \
    UlpReport r = sweep_f64(fn, mpfr_##function, near, samples);   \
    add_points(r, points, fn, mpfr_##function);                    \
    MESSAGE(#function " f64: " << r);                              \
    CHECK_MESSAGE(r.worst <= 2.0, r);                              \
  } while (false)

TEST_CASE("sin of a float is within 1.5 ulp everywhere") { CHECK_F32(sin, near_multiples(3e38)); }
TEST_CASE("cos of a float is within 1.5 ulp everywhere") { CHECK_F32(cos, near_multiples(3e38)); }
TEST_CASE("tan of a float is within 1.5 ulp everywhere") { CHECK_F32(tan, near_multiples(3e38)); }

TEST_CASE("asin, acos and atan of a float are within 1.5 ulp everywhere") {
  const std::vector<double> near = {0.5, 1.0, std::sqrt(0.5), 0.25, 0.75};
  CHECK_F32(asin, near);
  CHECK_F32(acos, near);
  CHECK_F32(atan, near);
}

TEST_CASE("sin, cos and tan of a double are within 2 ulp up to the largest double") {
  const std::vector<double> near = near_multiples(1e300);
  const std::vector<double> closest = closest_doubles();
  CHECK(closest.size() > 5000);
  CHECK_F64(sin, 70'000, near, closest);
  CHECK_F64(cos, 70'000, near, closest);
  CHECK_F64(tan, 70'000, near, closest);
}

TEST_CASE("asin, acos and atan of a double are within 2 ulp everywhere") {
  const std::vector<double> near = {0.5, 1.0, std::sqrt(0.5), 0.25, 0.75};
  CHECK_F64(asin, 70'000, near, {});
  CHECK_F64(acos, 70'000, near, {});
  CHECK_F64(atan, 70'000, near, {});
}

template <class T, class Fn>
UlpReport sweep_atan2(Fn&& fn, int samples) {
  test::UlpMeter<T> meter;
  std::mt19937_64 random(7);
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  std::uniform_real_distribution<double> unit(-1, 1);
  const auto visit = [&](T y, T x) { meter.judge(y, x, fn(y, x), mpfr_atan2); };
  for (int i = 0; i < samples; ++i) {
    visit(std::bit_cast<T>(static_cast<Bits>(random())),
          std::bit_cast<T>(static_cast<Bits>(random())));
    visit(static_cast<T>(unit(random)), static_cast<T>(unit(random)));
    const T x = static_cast<T>(unit(random));
    visit(static_cast<T>(x * static_cast<T>(1 + 1e-3 * unit(random))), x);
    visit(static_cast<T>(std::ldexp(x, -static_cast<int>(random() % 40))), x);
  }
  using L = std::numeric_limits<T>;
  const T special[] = {0,        1,        L::infinity(),   L::quiet_NaN(),
                       L::max(), L::min(), L::denorm_min(), T(3) * L::denorm_min()};
  for (T y : special)
    for (T x : special)
      for (int signs = 0; signs < 4; ++signs) visit(signs & 1 ? -y : y, signs & 2 ? -x : x);
  return meter.report;
}

TEST_CASE("atan2 is within 1.5 ulp in f32 and 2 in f64, in every quadrant and on the axes") {
  const UlpReport f32 =
      sweep_atan2<float>([](float y, float x) { return atan2(F::of(y), F::of(x)).v; }, 100'000);
  MESSAGE("atan2 f32: " << f32);
  CHECK_MESSAGE(f32.worst <= 1.5, f32);
  const UlpReport f64 =
      sweep_atan2<double>([](double y, double x) { return atan2(D::of(y), D::of(x)).v; }, 60'000);
  MESSAGE("atan2 f64: " << f64);
  CHECK_MESSAGE(f64.worst <= 2.0, f64);
}

/// Equal to the bit, NaN being equal to NaN.
template <class T>
bool same(T a, T b) {
  return std::isnan(a) ? std::isnan(b) : a == b && std::signbit(a) == std::signbit(b);
}

TEST_CASE("atan2 takes all the special values of C99") {
  const auto at = [](double y, double x) { return atan2(D::of(y), D::of(x)).v; };
  CHECK(same(at(0.0, -0.0), pi));
  CHECK(same(at(-0.0, -0.0), -pi));
  CHECK(same(at(0.0, 0.0), 0.0));
  CHECK(same(at(-0.0, 0.0), -0.0));
  CHECK(same(at(-0.0, 1.0), -0.0));
  CHECK(same(at(-0.0, -1.0), -pi));
  CHECK(same(at(-1.0, 0.0), -pi / 2));
  CHECK(same(at(1.0, -inf_d), pi));
  CHECK(same(at(-1.0, inf_d), -0.0));
  CHECK(same(at(inf_d, 5.0), pi / 2));
  CHECK(same(at(inf_d, -inf_d), 0x1.2d97c7f3321d2p+1));
  CHECK(same(at(-inf_d, inf_d), -0x1.921fb54442d18p-1));
  CHECK(std::isnan(at(NAN, 1.0)));
  CHECK(std::isnan(at(1.0, NAN)));
}

TEST_CASE("zeros keep their sign, and infinity has no sine") {
  CHECK(same(sin(F(-0.0)).v, -0.0f));
  CHECK(same(tan(F(-0.0)).v, -0.0f));
  CHECK(same(asin(F(-0.0)).v, -0.0f));
  CHECK(same(atan(D(-0.0)).v, -0.0));
  CHECK(same(sin(D(-0.0)).v, -0.0));
  CHECK(same(tan(D(-0.0)).v, -0.0));
  CHECK(same(cos(F(0.0)).v, 1.0f));
  CHECK(same(cos(D(0.0)).v, 1.0));
  CHECK(same(acos(D(1.0)).v, 0.0));
  for (float x : {inf_f, -inf_f, NAN}) {
    CHECK(std::isnan(sin(F::of(x)).v));
    CHECK(std::isnan(cos(F::of(x)).v));
    CHECK(std::isnan(tan(F::of(x)).v));
  }
  for (double x : {inf_d, -inf_d, double(NAN)}) {
    CHECK(std::isnan(sin(D::of(x)).v));
    CHECK(std::isnan(cos(D::of(x)).v));
    CHECK(std::isnan(tan(D::of(x)).v));
  }
  CHECK(std::isnan(asin(D(1.0000001)).v));
  CHECK(std::isnan(acos(F(-1.5)).v));
}

template <class S, class Fn>
void check_unit_bound(Fn&& fn) {
  using T = typename S::value_type;
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> unit(-1, 1);
  bool bounded = true;
  for (int i = 0; i < 200'000; ++i) {
    // Near the tops of the wave, where rounding could push past one.
    const T x = static_cast<T>((random() % 1000) * (pi / 2) +
                               std::ldexp(unit(random), -static_cast<int>(random() % 28)));
    bounded &= std::abs(fn(S::of(x)).v) <= T(1);
  }
  CHECK(bounded);
}

TEST_CASE("sin and cos never exceed one") {
  check_unit_bound<F>([](F x) { return sin(x); });
  check_unit_bound<F>([](F x) { return cos(x); });
  check_unit_bound<D>([](D x) { return sin(x); });
  check_unit_bound<D>([](D x) { return cos(x); });
}

template <class S>
void check_reaches_agree() {
  using T = typename S::value_type;
  std::mt19937_64 random(11);
  bool equal = true;
  for (int i = 0; i < 200'000; ++i) {
    const double spread = std::ldexp(1.0, static_cast<int>(random() % 60) - 44);
    const T x = static_cast<T>(spread * std::uniform_real_distribution<double>(-1, 1)(random));
    if (!in_common_reach(S::of(x))) continue;
    equal &= same(sin<Reach::common>(S::of(x)).v, sin(S::of(x)).v);
    equal &= same(cos<Reach::common>(S::of(x)).v, cos(S::of(x)).v);
    equal &= same(tan<Reach::common>(S::of(x)).v, tan(S::of(x)).v);
  }
  CHECK(equal);
}

TEST_CASE("within the common reach the short way gives the same bits as the full one") {
  check_reaches_agree<F>();
  check_reaches_agree<D>();
}

}  // namespace
}  // namespace grapnel
