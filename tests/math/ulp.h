/// How far a function is from the true value, in units in the last place, with MPFR as the judge.
///
///     const UlpReport r = sweep_f32([](float x) { return ...; }, mpfr_exp,
///                                   [](double x) { return std::exp(x); });
///     CHECK_MESSAGE(r.worst <= 1.5, r);
///
/// A float sweep is screened by a double precision function (the C library's or our own, if it has
/// been swept), some 2^28 times finer than a float; every new worst is measured with MPFR, and so
/// is each 64th argument, so the number reported is MPFR's. GRAPNEL_EXHAUSTIVE=1 in the environment
/// turns float sweeps into all 2^32 arguments. A wrong sign of zero, a NaN that should not be one
/// or is missing, and an infinity in place of a number that is not next to overflow count as
/// infinitely wrong.
#pragma once

#include <mpfr.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <ostream>
#include <random>
#include <vector>

namespace grapnel::test {

struct UlpReport {
  double worst = 0;     ///< error of the worst argument, in ulp of the true value
  double argument = 0;  ///< where it is
  double second = 0;    ///< the second argument, for functions of two
  double got = 0;
  double want = 0;
  std::uint64_t count = 0;

  friend std::ostream& operator<<(std::ostream& out, const UlpReport& r) {
    const auto precision = out.precision(17);
    out << r.worst << " ulp at " << r.argument << " (second argument " << r.second << "): got "
        << r.got << ", want " << r.want << "; " << r.count << " arguments";
    out.precision(precision);
    return out;
  }
};

/// One arbitrary precision number that cleans up after itself.
struct Mp {
  explicit Mp(mpfr_prec_t bits) { mpfr_init2(v, bits); }
  Mp(const Mp&) = delete;
  Mp& operator=(const Mp&) = delete;
  ~Mp() { mpfr_clear(v); }
  mpfr_t v;
};

/// The gap between neighbours of type T around x, x finite, is two to this power.
template <class T>
int ulp_exponent(double x) {
  using L = std::numeric_limits<T>;
  return (x == 0 ? L::min_exponent : std::max(std::ilogb(x) + 1, L::min_exponent)) - L::digits;
}

/// Distance of `got` from the true value `want`, in ulp of T. `want` is the true value rounded to
/// T.
template <class T>
double ulp_distance(T got, mpfr_srcptr truth, T want) {
  constexpr double wrong = std::numeric_limits<double>::infinity();
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got) ? 0 : wrong;
  if (mpfr_inf_p(truth)) return got == want ? 0 : wrong;
  if (std::isinf(got) && std::isinf(want)) return got == want ? 0 : wrong;
  if (mpfr_zero_p(truth)) return got == 0 && std::signbit(got) == std::signbit(want) ? 0 : wrong;
  if (got == 0 && std::signbit(got) != (mpfr_sgn(truth) < 0)) return wrong;
  static thread_local Mp gap(128);
  // An infinity stands for the first number that is too large.
  if (std::isinf(got))
    mpfr_set_si_2exp(gap.v, got > 0 ? 1 : -1, std::numeric_limits<T>::max_exponent, MPFR_RNDN);
  else mpfr_set_d(gap.v, static_cast<double>(got), MPFR_RNDN);
  mpfr_sub(gap.v, gap.v, truth, MPFR_RNDN);
  // Scaled before the conversion: a fraction of a subnormal's ulp is not a double.
  const double top = std::isinf(want) ? static_cast<double>(std::numeric_limits<T>::max())
                                      : mpfr_get_d(truth, MPFR_RNDZ);
  mpfr_div_2si(gap.v, gap.v, ulp_exponent<T>(top), MPFR_RNDN);
  return std::abs(mpfr_get_d(gap.v, MPFR_RNDN));
}

/// The true value rounded to T, subnormals included.
template <class T>
T rounded(mpfr_srcptr truth) {
  if constexpr (std::is_same_v<T, float>) return mpfr_get_flt(truth, MPFR_RNDN);
  else return mpfr_get_d(truth, MPFR_RNDN);
}

/// Collects the worst argument of a function of type T.
template <class T>
class UlpMeter {
 public:
  UlpReport report;

  /// Judges `got` at `x` by `f(out, in, rounding)`, a function in MPFR's form.
  template <class F>
  void judge(T x, T got, F&& f) {
    mpfr_set_d(x_.v, static_cast<double>(x), MPFR_RNDN);
    f(truth_.v, static_cast<mpfr_srcptr>(x_.v), MPFR_RNDN);
    note(static_cast<double>(x), 0, got);
  }
  /// The same for two arguments.
  template <class F>
  void judge(T x, T y, T got, F&& f) {
    mpfr_set_d(x_.v, static_cast<double>(x), MPFR_RNDN);
    mpfr_set_d(y_.v, static_cast<double>(y), MPFR_RNDN);
    f(truth_.v, static_cast<mpfr_srcptr>(x_.v), static_cast<mpfr_srcptr>(y_.v), MPFR_RNDN);
    note(static_cast<double>(x), static_cast<double>(y), got);
  }

 private:
  void note(double x, double y, T got) {
    const T want = rounded<T>(truth_.v);
    const double error = ulp_distance<T>(got, truth_.v, want);
    ++report.count;
    if (error > report.worst || (report.count == 1 && error == 0)) {
      report = {error, x, y, static_cast<double>(got), static_cast<double>(want), report.count};
    }
  }
  static constexpr int precision = std::numeric_limits<T>::digits + 20;
  Mp x_{64}, y_{64}, truth_{precision};
};

inline bool exhaustive() {
  const char* flag = std::getenv("GRAPNEL_EXHAUSTIVE");
  return flag != nullptr && *flag == '1';
}

/// Arguments that hurt: zeros, ends of the range, powers of two and their neighbours, and `near`
/// with its 64 neighbours on either side, all with both signs.
template <class T>
std::vector<T> hard_points(const std::vector<double>& near = {}) {
  using L = std::numeric_limits<T>;
  std::vector<T> points = {T(0),     L::infinity(), L::quiet_NaN(),
                           L::max(), L::min(),      L::denorm_min()};
  const auto around = [&](T x, int steps) {
    points.push_back(x);
    for (T up = x, down = x; steps > 0; --steps) {
      points.push_back(up = std::nextafter(up, L::infinity()));
      points.push_back(down = std::nextafter(down, -L::infinity()));
    }
  };
  for (int e = L::min_exponent - L::digits; e < L::max_exponent; ++e) {
    around(std::ldexp(T(1), e), 2);
    around(std::ldexp(T(1.4142135623730951), e), 2);
    around(std::ldexp(T(1.5), e), 2);
  }
  for (double x : near) around(static_cast<T>(x), 64);
  const std::size_t half = points.size();
  for (std::size_t i = 0; i < half; ++i) points.push_back(-points[i]);
  return points;
}

/// Distance in float ulps between `got` and a truth that is known in double precision, or infinity
/// where only the judge can tell. Without branches or calls, so that blocks of it vectorise.
inline float screened_error(float got, double truth) {
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(truth) & 0x7fff'ffff'ffff'ffff;
  const std::uint64_t exponent = std::max<std::uint64_t>(bits >> 52, 1023 - 126);
  const double per_ulp = std::bit_cast<double>((2046 + 23 - exponent) << 52);
  const double error = std::abs(static_cast<double>(got) - truth) * per_ulp;
  const bool ordinary = (error < 1e30) & (got != 0) & (exponent < 1023 + 127);
  return ordinary ? static_cast<float>(error) : std::numeric_limits<float>::infinity();
}

/// y = f(x) over a block, on its own so that it vectorises.
template <class Fn, class Out>
[[gnu::noinline]] void evaluate(Fn& fn, const float* __restrict x, Out* __restrict y, int count) {
  for (int i = 0; i < count; ++i) y[i] = fn(static_cast<Out>(x[i]));
}

/// Worst error of `fn` over all exponents, 2^21 random bit patterns and the neighbourhoods of
/// `near`. `judge` is MPFR's function, `screen` the same function in double precision.
template <class Fn, class Judge, class Screen>
UlpReport sweep_f32(Fn&& fn, Judge&& judge, Screen&& screen, const std::vector<double>& near = {}) {
  constexpr int size = 1024;
  UlpMeter<float> meter;
  float screened_worst = 0;
  std::uint64_t count = 0;
  const std::uint64_t regularly = (exhaustive() ? 1 << 16 : 1 << 6) - 1;
  float x[size], got[size], error[size];
  double truth[size];
  const auto flush = [&](int used) {
    evaluate(fn, x, got, used);
    evaluate(screen, x, truth, used);
    for (int i = 0; i < used; ++i) error[i] = screened_error(got[i], truth[i]);
    for (int i = 0; i < used; ++i) {
      const bool regular = (++count & regularly) == 0;
      if (error[i] <= screened_worst && !regular) continue;
      // Zeros, infinities and NaNs that both agree on are legion; the others, and some of these, go
      // to the judge.
      const bool agree = std::isnan(got[i]) ? std::isnan(truth[i])
                                            : static_cast<double>(got[i]) == truth[i] &&
                                                  std::signbit(got[i]) == std::signbit(truth[i]);
      if (agree && !regular) continue;
      meter.judge(x[i], got[i], judge);
      if (error[i] < 1e30f) screened_worst = std::max(screened_worst, error[i]);
    }
  };
  int filled = 0;
  const auto visit = [&](float value) {
    x[filled] = value;
    if (++filled == size) flush(size), filled = 0;
  };
  if (exhaustive()) {
    std::uint32_t pattern = 0;
    do visit(std::bit_cast<float>(pattern));
    while (++pattern != 0);
  } else {
    for (float value : hard_points<float>(near)) visit(value);
    std::mt19937 random(20240229);
    for (int i = 0; i < 1 << 20; ++i)
      visit(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
    // Random bits seldom hit the few binades in which most functions do their work.
    for (int i = 0; i < 1 << 20; ++i) {
      const auto bits = static_cast<std::uint32_t>(random());
      visit(
          std::bit_cast<float>((bits & 0x807f'ffff) | (127 - 26 + (bits >> 23 & 0xff) % 35) << 23));
    }
  }
  flush(filled);
  meter.report.count = count;
  return meter.report;
}

/// Worst error of `fn` over all exponents, `samples` random bit patterns, twice as many in the
/// binades around 1, and the neighbourhoods of `near`; every argument is judged by MPFR.
template <class Fn, class Judge>
UlpReport sweep_f64(Fn&& fn, Judge&& judge, const std::vector<double>& near = {},
                    int samples = 70'000) {
  UlpMeter<double> meter;
  const auto visit = [&](double x) { meter.judge(x, fn(x), judge); };
  for (double x : hard_points<double>(near)) visit(x);
  std::mt19937_64 random(20240229);
  for (int i = 0; i < samples; ++i) visit(std::bit_cast<double>(random()));
  for (int i = 0; i < samples; ++i) {
    const std::uint64_t bits = random();
    const std::uint64_t field = bits >> 52 & 0x7ff, rest = bits & 0x800f'ffff'ffff'ffff;
    visit(std::bit_cast<double>(rest | (1023 - 56 + field % 67) << 52));
    visit(std::bit_cast<double>(rest | (1023 - 4 + field % 8) << 52));
  }
  return meter.report;
}

}  // namespace grapnel::test
