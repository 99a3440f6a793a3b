/// How fast are our exponential and logarithmic functions, beside SLEEF's and those of glibc's
/// vector library?
///
/// One line per function and type: nanoseconds per element over 4096-element blocks that stay in
/// the first cache, the best of many runs on one core. Our results are compared with the C library
/// before anything is timed. Build with the kernels' own flags, -O3 -ffp-contract=off
/// -fno-trapping-math -fno-math-errno, once with -mavx2 -mfma and once with -march=x86-64-v4
/// -mprefer-vector-width=512, and link -lsleef -lmvec.
#include <immintrin.h>
#include <sleef.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "grapnel/math/erf.h"
#include "grapnel/math/pow.h"

namespace {

constexpr int n = 4096;

#if defined(__AVX512F__)
using Isa = grapnel::IsaAvx512;
using VF = __m512;
using VD = __m512d;
#define SLEEF_F32(name, ulp) Sleef_##name##f16_##ulp##avx512f
#define SLEEF_F64(name, ulp) Sleef_##name##d8_##ulp##avx512f
#define LIBMVEC_F32(name, args) _ZGVeN16##args##_##name##f
#define LIBMVEC_F64(name, args) _ZGVeN8##args##_##name
#else
using Isa = grapnel::IsaAvx2;
using VF = __m256;
using VD = __m256d;
#define SLEEF_F32(name, ulp) Sleef_##name##f8_##ulp##avx2
#define SLEEF_F64(name, ulp) Sleef_##name##d4_##ulp##avx2
#define LIBMVEC_F32(name, args) _ZGVdN8##args##_##name##f
#define LIBMVEC_F64(name, args) _ZGVdN4##args##_##name
#endif

// The vector functions of glibc, under the names that compilers call them by.
extern "C" {
#define DECLARE(f)          \
  VF LIBMVEC_F32(f, v)(VF); \
  VD LIBMVEC_F64(f, v)(VD)
// clang-format off
DECLARE(exp); DECLARE(exp2); DECLARE(expm1); DECLARE(log); DECLARE(log2); DECLARE(log10);
DECLARE(log1p); DECLARE(sinh); DECLARE(cosh); DECLARE(tanh); DECLARE(erf); DECLARE(erfc);
// clang-format on
VF LIBMVEC_F32(pow, vv)(VF, VF);
VD LIBMVEC_F64(pow, vv)(VD, VD);
}

template <class T>
struct Vector {
  using type = VF;
};
template <>
struct Vector<double> {
  using type = VD;
};

template <class T>
struct Block {
  alignas(64) T x[n], x2[n], y[n];
};
template <class T>
Block<T> block;

/// Nanoseconds per element of a run over one block.
template <class Run>
double ns(Run run) {
  double best = 1e30;
  for (int i = 0; i < 100; ++i) {
    const auto start = std::chrono::steady_clock::now();
    for (int k = 0; k < 10; ++k) {
      run();
      asm volatile("" ::: "memory");
    }
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
    best = std::min(best, took.count() / (10.0 * n));
  }
  return best;
}

template <class T, class Fn>
[[gnu::noinline]] void map(Fn fn) {
  using S = grapnel::Num<T, Isa>;
  Block<T>& b = block<T>;
  for (int i = 0; i < n; ++i) b.y[i] = fn(S::of(b.x[i]), S::of(b.x2[i])).v;
}

template <class T, class Fn, class Reference>
double ours(const char* name, Fn fn, Reference reference) {
  map<T>(fn);
  const Block<T>& b = block<T>;
  const double tolerance = sizeof(T) == 4 ? 2e-7 : 4e-16;
  for (int i = 0; i < n; ++i) {
    const double want = reference(b.x[i], b.x2[i]);
    const double got = b.y[i];
    if (std::abs(got - want) <= tolerance * std::abs(want)) continue;
    std::printf("%s(%.17g, %.17g) = %.17g, but the C library has %.17g\n", name, double(b.x[i]),
                double(b.x2[i]), got, want);
    std::exit(1);
  }
  return ns([&] { map<T>(fn); });
}

template <class T, class Fn>
double vectors(Fn fn) {
  using V = typename Vector<T>::type;
  Block<T>& b = block<T>;
  return ns([&] {
    for (int i = 0; i < n; i += int(sizeof(V) / sizeof(T)))
      *reinterpret_cast<V*>(b.y + i) =
          fn(*reinterpret_cast<const V*>(b.x + i), *reinterpret_cast<const V*>(b.x2 + i));
  });
}

template <class T, class Ours, class Reference, class Sleef, class Libmvec>
void row(const char* name, double lo, double hi, Ours mine, Reference reference, Sleef sleef,
         Libmvec libmvec) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> x(lo, hi), x2(-3, 3);
  for (int i = 0; i < n; ++i) {
    block<T>.x[i] = static_cast<T>(x(random));
    block<T>.x2[i] = static_cast<T>(x2(random));
  }
  const double grapnel = ours<T>(name, mine, reference);
  std::printf("%-6s %-4s %5g .. %-5g %8.3f %8.3f %8.3f\n", name, sizeof(T) == 4 ? "f32" : "f64", lo,
              hi, grapnel, vectors<T>(sleef), vectors<T>(libmvec));
}

// Functions of one argument are given a second one and ignore it.
#define ROW(T, f, lo, hi, sleef, libmvec)                                                \
  row<T>(                                                                                \
      #f, lo, hi, [](auto x, auto) { return grapnel::f(x); },                            \
      [](double x, double) { return std::f(x); }, [](auto x, auto) { return sleef(x); }, \
      [](auto x, auto) { return libmvec(x); })
#define BOTH(f, lo, hi, ulp)                                   \
  ROW(float, f, lo, hi, SLEEF_F32(f, ulp), LIBMVEC_F32(f, v)); \
  ROW(double, f, lo, hi, SLEEF_F64(f, ulp), LIBMVEC_F64(f, v))
#define ROW2(T, f, lo, hi, sleef, libmvec)                                                         \
  row<T>(                                                                                          \
      #f, lo, hi, [](auto x, auto y) { return grapnel::f(x, y); },                                 \
      [](double x, double y) { return std::f(x, y); }, [](auto x, auto y) { return sleef(x, y); }, \
      [](auto x, auto y) { return libmvec(x, y); })

}  // namespace

int main() {
  std::printf("%-6s %-4s %14s %8s %8s %8s   ns per element\n", "", "", "x", "grapnel", "sleef",
              "libmvec");
  BOTH(exp, -10, 10, u10);
  BOTH(exp2, -10, 10, u10);
  BOTH(expm1, -10, 10, u10);
  BOTH(log, 0.01, 100, u10);
  BOTH(log2, 0.01, 100, u10);
  BOTH(log10, 0.01, 100, u10);
  BOTH(log1p, -0.9, 100, u10);
  BOTH(sinh, -10, 10, u10);
  BOTH(cosh, -10, 10, u10);
  BOTH(tanh, -4, 4, u10);
  BOTH(erf, -4, 4, u10);
  BOTH(erfc, -4, 4, u15);
  ROW2(float, pow, 0.01, 100, SLEEF_F32(pow, u10), LIBMVEC_F32(pow, vv));
  ROW2(double, pow, 0.01, 100, SLEEF_F64(pow, u10), LIBMVEC_F64(pow, vv));
}
