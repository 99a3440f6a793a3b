#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <string>

#include "grapnel/math/erf.h"
#include "grapnel/math/pow.h"
#include "tests/math/ulp.h"

using namespace grapnel;
using namespace grapnel::test;

namespace {

using F = Num<float, IsaBaseline>;
using D = Num<double, IsaBaseline>;

/// One function as a type that the compiler sees through: f(S) and MPFR's version of it.
#define FUNCTION(f)                                                                         \
  struct Fn_##f {                                                                           \
    static constexpr const char* name = #f;                                                 \
    template <class S>                                                                      \
    GRAPNEL_INLINE static S of(S x) {                                                       \
      return grapnel::f(x);                                                                 \
    }                                                                                       \
    static int exact(mpfr_ptr y, mpfr_srcptr x, mpfr_rnd_t r) { return mpfr_##f(y, x, r); } \
  }
// clang-format off
FUNCTION(exp); FUNCTION(exp2); FUNCTION(expm1); FUNCTION(log); FUNCTION(log2); FUNCTION(log10);
FUNCTION(log1p); FUNCTION(sinh); FUNCTION(cosh); FUNCTION(tanh); FUNCTION(erf); FUNCTION(erfc);
// clang-format on
#undef FUNCTION

template <class Visit>
void for_each_function(Visit visit) {
  const auto all = [&]<class... Fn>() { (visit(Fn{}), ...); };
  all.template operator()<Fn_exp, Fn_exp2, Fn_expm1, Fn_log, Fn_log2, Fn_log10, Fn_log1p, Fn_sinh,
                          Fn_cosh, Fn_tanh, Fn_erf, Fn_erfc>();
}

/// Worst error allowed: what long sweeps have shown, and a little. exp, log, log1p, tanh and erf of
/// floats have been swept exhaustively.
struct Bound {
  double f32, f64;
};
const std::map<std::string, Bound> bounds = {
    {"exp", {1.03, 1.1}}, {"exp2", {0.9, 1.1}},  {"expm1", {1.2, 1.4}}, {"log", {1.0, 0.9}},
    {"log2", {1.0, 0.8}}, {"log10", {1.0, 0.8}}, {"log1p", {1.1, 0.9}}, {"sinh", {1.3, 1.4}},
    {"cosh", {1.3, 1.4}}, {"tanh", {1.0, 1.0}},  {"erf", {1.1, 1.1}},   {"erfc", {0.53, 1.8}},
};

/// Where range reductions switch, results over- or underflow, and branches meet.
// clang-format off
const std::vector<double> turning_points = {
    0.17328679513998633, 0.34657359027997264, 1.0397207708399179, 0.41421356237309503, 1.0, 2.0,
    4.0, 5.9, 6.0, 8.66, 9.0, 9.19, 10.0, 10.05, 10.2, 17.3, 18.7, 19.06, 20.0, 26.54, 27.22, 28.0,
    36.7, 40.0, 64.0, 87.33, 88.02, 88.37, 88.722839, 89.0, 89.415985, 89.5, 103.278929, 103.97208,
    104.0, 126.0, 127.5, 149.0, 150.0, 354.9, 708.396, 709.782712893384, 710.0, 710.4758600739439,
    710.5, 744.4400719213812, 745.1332191019411, 746.0, 1022.0, 1023.5, 1074.0, 1075.0};
// clang-format on

template <class T>
std::uint64_t pattern(T x) {
  if (std::isnan(x)) return ~std::uint64_t{0};  // Equal up to the payload.
  if constexpr (sizeof(T) == 4) return std::bit_cast<std::uint32_t>(x);
  else return std::bit_cast<std::uint64_t>(x);
}

template <class T>
const std::vector<T>& arguments() {
  static const std::vector<T> all = [] {
    std::vector<T> x = hard_points<T>(turning_points);
    std::mt19937_64 random(7);
    for (int i = 0; i < 20'000; ++i) {
      const std::uint64_t bits = random();
      x.push_back(static_cast<T>(std::ldexp(static_cast<double>(static_cast<std::int64_t>(bits)),
                                            -63 + static_cast<int>(bits % 8))));
    }
    return x;
  }();
  return all;
}

#define KERNEL(attribute, name, Isa)                                                       \
  template <class Fn, class T>                                                             \
  attribute void name(const T* __restrict x, T* __restrict y, std::size_t n) {             \
    for (std::size_t i = 0; i < n; ++i) y[i] = Fn::of(Num<T, Isa>::of(x[i])).v;            \
  }                                                                                        \
  template <class T>                                                                       \
  attribute void name##_pow(const T* __restrict x, const T* __restrict y, T* __restrict z, \
                            std::size_t n) {                                               \
    for (std::size_t i = 0; i < n; ++i)                                                    \
      z[i] = grapnel::pow(Num<T, Isa>::of(x[i]), Num<T, Isa>::of(y[i])).v;                 \
  }
KERNEL([[gnu::noinline]], run_baseline, IsaBaseline)
#if defined(__x86_64__)
KERNEL([[gnu::noinline]] [[gnu::target("avx2,fma")]], run_avx2, IsaAvx2)
KERNEL([[gnu::noinline]] [[gnu::target("avx2,fma,avx512f,avx512dq,avx512bw,avx512vl")]], run_avx512,
       IsaAvx512)
#endif

/// A number for the bits of all results, the same for equal bits.
template <class T>
std::uint64_t fingerprint(const std::vector<T>& y) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (T v : y) hash = (hash ^ pattern(v)) * 0x100000001b3;
  return hash;
}

/// Fingerprints of `run(kernel, out)` for each instruction set that this processor has.
template <class T, class Run>
std::vector<std::uint64_t> fingerprints(std::size_t size, Run baseline, Run avx2, Run avx512) {
  std::vector<T> y(size);
  std::vector<std::uint64_t> all;
  const auto add = [&](Run run) {
    run(y.data());
    all.push_back(fingerprint(y));
  };
  add(baseline);
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) add(avx2);
  if (__builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl"))
    add(avx512);
#endif
  return all;
}

template <class Fn, class T>
std::vector<std::uint64_t> fingerprints_of() {
  using Run = void (*)(T*);
  const Run baseline = [](T* y) {
    run_baseline<Fn>(arguments<T>().data(), y, arguments<T>().size());
  };
#if defined(__x86_64__)
  const Run avx2 = [](T* y) { run_avx2<Fn>(arguments<T>().data(), y, arguments<T>().size()); };
  const Run avx512 = [](T* y) { run_avx512<Fn>(arguments<T>().data(), y, arguments<T>().size()); };
#else
  const Run avx2 = baseline, avx512 = baseline;
#endif
  return fingerprints<T>(arguments<T>().size(), baseline, avx2, avx512);
}

/// Arguments for pow: every pair of remarkable numbers, and random pairs of which most have a
/// finite power.
template <class T>
struct Pairs {
  std::vector<T> x, y;
};
template <class T>
const Pairs<T>& pairs() {
  static const Pairs<T> all = [] {
    Pairs<T> p;
    using L = std::numeric_limits<T>;
    std::vector<T> special = {T(0),
                              T(1),
                              T(2),
                              T(3),
                              T(0.5),
                              T(1.5),
                              T(10),
                              L::infinity(),
                              L::quiet_NaN(),
                              L::max(),
                              L::min(),
                              L::denorm_min(),
                              L::epsilon(),
                              1 / L::epsilon(),
                              2 / L::epsilon(),
                              2 / L::epsilon() - 1,
                              1 / L::epsilon() - T(0.5),
                              std::nextafter(T(1), T(0)),
                              std::nextafter(T(1), T(2)),
                              T(1023),
                              T(1024),
                              T(126),
                              T(127),
                              T(128),
                              T(149),
                              T(150),
                              T(1074),
                              T(1075),
                              T(0.1),
                              T(1e-5),
                              T(1e5),
                              T(33),
                              T(1) / 3};
    for (std::size_t i = special.size(); i-- > 0;) special.push_back(-special[i]);
    const auto add = [&](T x, T y) { p.x.push_back(x), p.y.push_back(y); };
    for (T x : special)
      for (T y : special) add(x, y);
    std::mt19937_64 random(11);
    constexpr double reach = L::max_exponent * 1.1;
    const auto uniform = [&] { return std::ldexp(static_cast<double>(random()), -64); };
    for (int i = 0; i < 60'000; ++i) {
      // A base of any size, then one near 1; exponents that land anywhere between zero and
      // infinity.
      const T any = static_cast<T>(
          std::ldexp(1 + uniform(),
                     static_cast<int>(random() % (2 * L::max_exponent - 8)) - L::max_exponent + 4));
      const T near = static_cast<T>(
          1 + std::ldexp(uniform() - 0.5, -static_cast<int>(random() % (L::digits - 2))));
      for (T x : {any, near}) {
        if (x == 1) continue;
        add(x, static_cast<T>((2 * uniform() - 1) * reach / log2(D(static_cast<double>(x))).v));
      }
      add(static_cast<T>(20 * uniform() - 10),
          static_cast<T>(static_cast<int>(random() % 80) - 40));
    }
    return p;
  }();
  return all;
}

template <class T>
UlpReport sweep_pow() {
  UlpMeter<T> meter;
  const Pairs<T>& p = pairs<T>();
  std::vector<T> got(p.x.size());
  run_baseline_pow(p.x.data(), p.y.data(), got.data(), got.size());
  for (std::size_t i = 0; i < got.size(); ++i) meter.judge(p.x[i], p.y[i], got[i], mpfr_pow);
  return meter.report;
}

template <class T>
std::vector<std::uint64_t> pow_fingerprints() {
  using Run = void (*)(T*);
  const Run baseline = [](T* z) {
    run_baseline_pow(pairs<T>().x.data(), pairs<T>().y.data(), z, pairs<T>().x.size());
  };
#if defined(__x86_64__)
  const Run avx2 = [](T* z) {
    run_avx2_pow(pairs<T>().x.data(), pairs<T>().y.data(), z, pairs<T>().x.size());
  };
  const Run avx512 = [](T* z) {
    run_avx512_pow(pairs<T>().x.data(), pairs<T>().y.data(), z, pairs<T>().x.size());
  };
#else
  const Run avx2 = baseline, avx512 = baseline;
#endif
  return fingerprints<T>(pairs<T>().x.size(), baseline, avx2, avx512);
}

}  // namespace

TEST_CASE("exponentials, logarithms, hyperbolics and error functions of doubles are within 2 ulp") {
  for_each_function([]<class Fn>(Fn) {
    const UlpReport r =
        sweep_f64([](double x) __attribute__((always_inline)) { return Fn::of(D::of(x)).v; },
                  Fn::exact, turning_points);
    CHECK_MESSAGE(r.worst <= bounds.at(Fn::name).f64, Fn::name, ": ", r);
  });
}

TEST_CASE(
    "exponentials, logarithms, hyperbolics and error functions of floats are within 1.5 ulp") {
  // Screened by our own double versions, which the case above holds against MPFR.
  for_each_function([]<class Fn>(Fn) {
    const UlpReport r = sweep_f32(
        [](float x) __attribute__((always_inline)) { return Fn::of(F::of(x)).v; }, Fn::exact,
        [](double x) __attribute__((always_inline)) { return Fn::of(D::of(x)).v; }, turning_points);
    CHECK_MESSAGE(r.worst <= bounds.at(Fn::name).f32, Fn::name, ": ", r);
    if (exhaustive()) MESSAGE(Fn::name, ": ", r);
  });
}

TEST_CASE(
    "pow is within 0.54 ulp for floats and 1.2 ulp for doubles, all special cases of C included") {
  const UlpReport f32 = sweep_pow<float>();
  CHECK_MESSAGE(f32.worst <= 0.54, f32);
  const UlpReport f64 = sweep_pow<double>();
  CHECK_MESSAGE(f64.worst <= 1.2, f64);
}

TEST_CASE(
    "the bits of exp, log, pow and friends do not depend on instruction set, compiler or "
    "optimisation") {
  // Fingerprints of all results; they change only when a formula or a coefficient does.
  struct Golden {
    std::uint64_t f32, f64;
  };
  const std::map<std::string, Golden> golden = {
      {"exp", {0x922cea1f5ec84433, 0xa3f106e6aa1defdc}},
      {"exp2", {0x9720a62d24693bd8, 0xcbf4b0419c1b9605}},
      {"expm1", {0xb2fc7ea01b0b5866, 0xbd44bac19c2f55cb}},
      {"log", {0x3bb505af8d38f4ec, 0x0df618ee373b8f3f}},
      {"log2", {0x8c6973d8ec5e39c5, 0x5b46827fa19871ed}},
      {"log10", {0xcfb2e58ef093f099, 0xed8ae8f102f43740}},
      {"log1p", {0x28fbf54f65bc43f4, 0xfe9ec912e0cfece0}},
      {"sinh", {0x80f1cb0f8e5c709d, 0x86de29a17fa4f91d}},
      {"cosh", {0x4508625f9f4b6815, 0x3f3072d84b7f9670}},
      {"tanh", {0xadf616ce1a23f9e4, 0xdbb19ad8ad2f8469}},
      {"erf", {0x565b0387fdc8499f, 0xec1ca37786ada1a1}},
      {"erfc", {0x8dddd82e7a2bc183, 0x3115a556e6594f7e}},
      {"pow", {0x2712726bba85fa0b, 0xfc5d76e9fe09d475}},
  };
  const auto check = [&](const std::string& name, const auto& f32, const auto& f64) {
    for (std::uint64_t hash : f32) CHECK_MESSAGE(hash == golden.at(name).f32, name, " f32: ", hash);
    for (std::uint64_t hash : f64) CHECK_MESSAGE(hash == golden.at(name).f64, name, " f64: ", hash);
  };
  for_each_function([&]<class Fn>(Fn) {
    check(Fn::name, fingerprints_of<Fn, float>(), fingerprints_of<Fn, double>());
  });
  check("pow", pow_fingerprints<float>(), pow_fingerprints<double>());
}

TEST_CASE(
    "exact results are exact: whole powers of two, their logarithms, and zeros with their sign") {
  for (int k = -149; k < 128; ++k) {
    CHECK(exp2(F(k)).v == std::ldexp(1.0f, k));
    CHECK(log2(F::of(std::ldexp(1.0f, k))).v == static_cast<float>(k));
    CHECK(pow(F(2.0), F(k)).v == std::ldexp(1.0f, k));
  }
  for (int k = -1074; k < 1024; ++k) {
    CHECK(exp2(D(k)).v == std::ldexp(1.0, k));
    CHECK(log2(D::of(std::ldexp(1.0, k))).v == k);
    CHECK(pow(D(2.0), D(k)).v == std::ldexp(1.0, k));
  }
  CHECK(exp(F(0.0)).v == 1.0f);
  CHECK(cosh(D(0.0)).v == 1.0);
  CHECK(erfc(D(0.0)).v == 1.0);
  CHECK(erfc(F(-0.0)).v == 1.0f);
  CHECK(pattern(log(D(1.0)).v) == pattern(0.0));
  for (double zero : {0.0, -0.0}) {
    CHECK(pattern(expm1(D(zero)).v) == pattern(zero));
    CHECK(pattern(log1p(D(zero)).v) == pattern(zero));
    CHECK(pattern(sinh(D(zero)).v) == pattern(zero));
    CHECK(pattern(tanh(D(zero)).v) == pattern(zero));
    CHECK(pattern(erf(D(zero)).v) == pattern(zero));
  }
}

TEST_CASE("floor, ceil, trunc and round_even agree with the C library, signs of zero included") {
  const auto agree = []<class T>(const std::vector<T>& xs) {
    using S = Num<T, IsaBaseline>;
    for (T x : xs) {
      for (T y : {x, x + T(0.5), x / 2, 1 / x}) {
        const S s = S::of(y);
        const bool same = pattern(floor(s).v) == pattern(std::floor(y)) &&
                          pattern(ceil(s).v) == pattern(std::ceil(y)) &&
                          pattern(trunc(s).v) == pattern(std::trunc(y)) &&
                          pattern(round_even(s).v) == pattern(std::nearbyint(y));
        if (!same) FAIL_CHECK("rounding ", y);
      }
    }
  };
  agree(arguments<float>());
  agree(arguments<double>());
  CHECK(floor(Num<std::int64_t, IsaBaseline>(-3.0)).v == -3);
}
