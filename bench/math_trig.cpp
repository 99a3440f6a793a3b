/// How fast are our trigonometric functions, beside SLEEF's 1 ulp functions and glibc's vector
/// library?
///
/// One line per function and range of arguments: nanoseconds per element over 4096-element blocks
/// that stay in the first cache, the best of many runs on one core. `full` takes any argument,
/// `common` is what a kernel may run on a block in common reach. Results are compared with the C
/// library before anything is timed. Build with the kernels' own flags, once for -mavx2 -mfma and
/// once for -march=x86-64-v4 -mprefer-vector-width=512.
#include <immintrin.h>
#include <sleef.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "grapnel/math/trig.h"

using namespace grapnel;

namespace {

constexpr int n = 4096;
#if defined(__AVX512F__)
using Isa = IsaAvx512;
#else
using Isa = IsaAvx2;
#endif

template <class T>
struct Data {
  alignas(64) T x[n], x2[n], y[n];
};
Data<float> f32;
Data<double> f64;

template <class T>
Data<T>& data() {
  if constexpr (sizeof(T) == 4) return f32;
  else return f64;
}

template <class Run>
double ns(Run run) {
  double best = 1e30;
  for (int i = 0; i < 60; ++i) {
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

/// Stops the program unless all of y is close to the C library's answer.
template <class T, class Reference>
void check(const char* what, Reference reference) {
  const Data<T>& d = data<T>();
  for (int i = 0; i < n; ++i) {
    const double want = reference(static_cast<double>(d.x[i]), static_cast<double>(d.x2[i]));
    const double got = static_cast<double>(d.y[i]);
    const double tolerance = sizeof(T) == 4 ? 2e-7 : 5e-16;
    if (std::abs(got - want) <= tolerance * std::abs(want)) continue;
    std::printf("%s(%.17g, %.17g) = %.17g, but the C library has %.17g\n", what,
                static_cast<double>(d.x[i]), static_cast<double>(d.x2[i]), got, want);
    std::exit(1);
  }
}

template <class T, class Fn>
[[gnu::noinline]] void map(Fn fn) {
  Data<T>& d = data<T>();
  using S = Num<T, Isa>;
  for (int i = 0; i < n; ++i) d.y[i] = fn(S::of(d.x[i]), S::of(d.x2[i])).v;
}

template <class T, class Fn, class Reference>
double ours(const char* what, Fn fn, Reference reference) {
  map<T>(fn);
  check<T>(what, reference);
  return ns([&] { map<T>(fn); });
}

#if defined(__AVX512F__)
#define SLEEF_F32(name) Sleef_##name##f16_u10avx512f
#define SLEEF_F64(name) Sleef_##name##d8_u10avx512f
using VF = __m512;
using VD = __m512d;
#else
#define SLEEF_F32(name) Sleef_##name##f8_u10avx2
#define SLEEF_F64(name) Sleef_##name##d4_u10avx2
using VF = __m256;
using VD = __m256d;
#endif

// The vector functions of glibc, under the names that compilers call them by.
extern "C" {
#if defined(__AVX512F__)
#define LIBMVEC_F32(name) _ZGVeN16v_##name##f
#define LIBMVEC_F64(name) _ZGVeN8v_##name
#define LIBMVEC2_F32(name) _ZGVeN16vv_##name##f
#define LIBMVEC2_F64(name) _ZGVeN8vv_##name
#else
#define LIBMVEC_F32(name) _ZGVdN8v_##name##f
#define LIBMVEC_F64(name) _ZGVdN4v_##name
#define LIBMVEC2_F32(name) _ZGVdN8vv_##name##f
#define LIBMVEC2_F64(name) _ZGVdN4vv_##name
#endif
#define DECLARE(f)       \
  VF LIBMVEC_F32(f)(VF); \
  VD LIBMVEC_F64(f)(VD);
DECLARE(sin)
DECLARE(cos) DECLARE(tan) DECLARE(asin) DECLARE(acos) DECLARE(atan) VF LIBMVEC2_F32(atan2)(VF, VF);
VD LIBMVEC2_F64(atan2)(VD, VD);
}

template <class T, class V, class Fn>
double vectors(Fn fn) {
  constexpr int lanes = sizeof(V) / sizeof(T);
  Data<T>& d = data<T>();
  return ns([&] {
    for (int i = 0; i < n; i += lanes) {
      const V out = fn(*reinterpret_cast<const V*>(d.x + i), *reinterpret_cast<const V*>(d.x2 + i));
      *reinterpret_cast<V*>(d.y + i) = out;
    }
  });
}

void fill(double largest, double largest2) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> unit(-1, 1);
  for (int i = 0; i < n; ++i) {
    f64.x[i] = f32.x[i] = static_cast<float>(largest * unit(random));
    f64.x2[i] = f32.x2[i] = static_cast<float>(largest2 * unit(random));
  }
}

// The one-argument functions have a second argument that they ignore.
#define ROW(T, V, f, common_call, label, sleef, libmvec)                                       \
  do {                                                                                         \
    const auto reference = [](double a, double b) {                                            \
      (void)b;                                                                                 \
      return std::f CALL(a, b);                                                                \
    };                                                                                         \
    using S = Num<T, Isa>;                                                                     \
    const double full = ours<T>(                                                               \
        #f,                                                                                    \
        [](S a, S b) __attribute__((always_inline)) {                                          \
          (void)b;                                                                             \
          return grapnel::f CALL(a, b);                                                        \
        },                                                                                     \
        reference);                                                                            \
    const double common = common_call;                                                         \
    const double other = vectors<T, V>([](V a, V b) {                                          \
      (void)b;                                                                                 \
      return sleef CALL(a, b);                                                                 \
    });                                                                                        \
    const double glibc = vectors<T, V>([](V a, V b) {                                          \
      (void)b;                                                                                 \
      return libmvec CALL(a, b);                                                               \
    });                                                                                        \
    std::printf("%-6s %-4s %-14s %8.3f %8s %8.3f %8.3f\n", #f, sizeof(T) == 4 ? "f32" : "f64", \
                label, full,                                                                   \
                common < 0 ? "-" : (std::snprintf(text, sizeof text, "%.3f", common), text),   \
                other, glibc);                                                                 \
  } while (false)

#define BOTH(f, label)                                          \
  ROW(float, VF, f, -1.0, label, SLEEF_F32(f), LIBMVEC_F32(f)); \
  ROW(double, VD, f, -1.0, label, SLEEF_F64(f), LIBMVEC_F64(f))
#define COMMON(T, f)                                                                          \
  ours<T>(                                                                                    \
      #f, [](S a, S) __attribute__((always_inline)) { return grapnel::f<Reach::common>(a); }, \
      [](double a, double) { return std::f(a); })
#define BOTH_COMMON(f, label)                                               \
  ROW(float, VF, f, COMMON(float, f), label, SLEEF_F32(f), LIBMVEC_F32(f)); \
  ROW(double, VD, f, COMMON(double, f), label, SLEEF_F64(f), LIBMVEC_F64(f))

}  // namespace

int main() {
  char text[32];
  std::printf("%-6s %-4s %-14s %8s %8s %8s %8s   ns per element\n", "", "", "|x| up to", "full",
              "common", "sleef", "libmvec");
#define CALL(a, b) (a)
  fill(3, 1);
  BOTH_COMMON(sin, "3");
  BOTH_COMMON(cos, "3");
  BOTH_COMMON(tan, "3");
  fill(10000, 1);
  BOTH_COMMON(sin, "10^4");
  fill(1e30, 1);
  BOTH(sin, "10^30");
  BOTH(cos, "10^30");
  BOTH(tan, "10^30");
  fill(1, 1);
  BOTH(asin, "1");
  BOTH(acos, "1");
  fill(5, 1);
  BOTH(atan, "5");
#undef CALL
#define CALL(a, b) (a, b)
  ROW(float, VF, atan2, -1.0, "5", SLEEF_F32(atan2), LIBMVEC2_F32(atan2));
  ROW(double, VD, atan2, -1.0, "5", SLEEF_F64(atan2), LIBMVEC2_F64(atan2));
}
