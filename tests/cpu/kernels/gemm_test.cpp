#include "grapnel/cpu/kernels/gemm.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <limits>
#include <random>
#include <thread>
#include <type_traits>
#include <vector>

#include "grapnel/base/cpu.h"
#include "grapnel/base/thread_pool.h"

namespace {

using namespace grapnel::kernels;
using grapnel::base::Isa;

template <class T>
constexpr GemmType type_of = std::is_same_v<T, float>    ? GemmType::f32
                             : std::is_same_v<T, double> ? GemmType::f64
                                                         : GemmType::i64;

/// How a matrix lies in memory.
enum class Layout { dense, transposed, padded, padded_transposed, every_second, broadcast_rows };
constexpr Layout all_layouts[] = {Layout::dense,        Layout::transposed,
                                  Layout::padded,       Layout::padded_transposed,
                                  Layout::every_second, Layout::broadcast_rows};

template <class T>
struct Matrix {
  int64_t row = 0, col = 0, batch = 0;
  std::vector<T> data;

  Matrix(int64_t rows, int64_t cols, int64_t items, Layout layout, unsigned seed) {
    switch (layout) {
      case Layout::dense: row = cols, col = 1; break;
      case Layout::transposed: row = 1, col = rows; break;
      case Layout::padded: row = cols + 3, col = 1; break;
      case Layout::padded_transposed: row = 1, col = rows + 5; break;
      case Layout::every_second: row = 2 * cols + 1, col = 2; break;
      case Layout::broadcast_rows: row = 0, col = 1; break;
    }
    batch = rows * row + cols * col + 1;
    data.resize(static_cast<size_t>(items * batch + 1));
    std::mt19937 random(seed);
    for (T& x : data) {
      if constexpr (std::is_integral_v<T>) x = static_cast<T>(random()) * 1000003;
      else x = static_cast<T>(std::uniform_real_distribution<double>(-1, 1)(random));
    }
  }
};

struct Sizes {
  int64_t m, n, k, batch = 1;
};

template <class T>
struct Problem {
  Sizes s;
  Matrix<T> a, b;
  int64_t c_row, c_batch;
  static constexpr T untouched = T(77);

  Problem(Sizes sizes, Layout la, Layout lb)
      : s(sizes),
        a(s.m, s.k, s.batch, la, 1),
        b(s.k, s.n, s.batch, lb, 2),
        c_row(s.n + 2),
        c_batch(s.m * c_row + 1) {}

  std::vector<T> solve() const {
    std::vector<T> c(static_cast<size_t>(s.batch * c_batch + 1), untouched);
    GemmArgs args{.type = type_of<T>, .m = s.m, .n = s.n, .k = s.k};
    args.a = a.data.data(), args.a_row = a.row, args.a_col = a.col, args.a_batch = a.batch;
    args.b = b.data.data(), args.b_row = b.row, args.b_col = b.col, args.b_batch = b.batch;
    args.c = c.data(), args.c_row = c_row, args.c_batch = c_batch, args.batch = s.batch;
    gemm(args);
    return c;
  }

  /// The largest error in units of what rounding allows; infinite if something else was written.
  double error(const std::vector<T>& c) const {
    double worst = 0;
    for (int64_t item = 0; item < s.batch; ++item) {
      for (int64_t i = 0; i < s.m; ++i) {
        for (int64_t j = 0; j < c_row; ++j) {
          const T got = c[static_cast<size_t>(item * c_batch + i * c_row + j)];
          worst = std::max(worst, j < s.n            ? error_at(item, i, j, got)
                                  : got == untouched ? 0
                                                     : INFINITY);
        }
      }
    }
    return worst;
  }

 private:
  double error_at(int64_t item, int64_t i, int64_t j, T got) const {
    using Wide = std::conditional_t<std::is_integral_v<T>, uint64_t, long double>;
    Wide sum = 0;
    long double size = 0;
    for (int64_t p = 0; p < s.k; ++p) {
      const auto x =
          static_cast<Wide>(a.data[static_cast<size_t>(item * a.batch + i * a.row + p * a.col)]);
      const auto y =
          static_cast<Wide>(b.data[static_cast<size_t>(item * b.batch + p * b.row + j * b.col)]);
      sum += x * y;
      if constexpr (!std::is_integral_v<T>) size += std::abs(x * y);
    }
    if constexpr (std::is_integral_v<T>) return static_cast<uint64_t>(got) == sum ? 0 : INFINITY;
    const auto unit = static_cast<long double>(std::numeric_limits<T>::epsilon()) * (size + 1e-30L);
    const auto error = static_cast<double>(std::abs(static_cast<long double>(got) - sum) / unit);
    return std::isnan(error) ? INFINITY : error;
  }
};

/// Rounding errors of a sum in order stay far below this many units of (sum of magnitudes) x
/// epsilon.
constexpr double tolerance = 20;

constexpr Sizes some_sizes[] = {
    {1, 1, 1},     {2, 3, 4},    {4, 4, 4},     {5, 1, 7},       {1, 5, 7},    {1, 1, 300},
    {8, 24, 16},   {9, 25, 17},  {33, 47, 300}, {1, 129, 64},    {130, 1, 64}, {64, 10, 129},
    {100, 100, 1}, {31, 65, 64}, {3, 4, 5, 6},  {20, 30, 40, 3},
};

template <class T>
void check_all_layouts() {
  for (const Sizes& s : some_sizes) {
    for (Layout la : all_layouts) {
      for (Layout lb : all_layouts) {
        const Problem<T> problem(s, la, lb);
        CAPTURE(s.m);
        CAPTURE(s.n);
        CAPTURE(s.k);
        CAPTURE(static_cast<int>(la));
        CAPTURE(static_cast<int>(lb));
        CHECK(problem.error(problem.solve()) < tolerance);
      }
    }
  }
}

template <class T>
bool same_bits(const std::vector<T>& x, const std::vector<T>& y) {
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(T)) == 0;
}

template <class T>
void check_same_bits() {
  const int before = grapnel::get_num_threads();
  const Sizes sizes[] = {{64, 512, 784},  {300, 301, 302}, {513, 1100, 40},
                         {1, 3000, 1000}, {2000, 1, 1500}, {64, 64, 64, 50}};
  for (const Sizes& s : sizes) {
    for (Layout lb : {Layout::dense, Layout::transposed}) {
      const Problem<T> problem(s, Layout::dense, lb);
      grapnel::set_num_threads(1);
      const std::vector<T> expected = problem.solve();
      CHECK(problem.error(expected) < tolerance);
      for (int threads : {1, 2, 2, 3}) {
        grapnel::set_num_threads(threads);
        CHECK(same_bits(problem.solve(), expected));
      }
    }
  }
  grapnel::set_num_threads(before);
}

}  // namespace

TEST_CASE("gemm multiplies matrices that lie in memory in any way") {
  check_all_layouts<float>();
  check_all_layouts<double>();
  check_all_layouts<int64_t>();
}

TEST_CASE("gemm is right on every instruction set of this processor") {
  for (Isa isa : {Isa::baseline, Isa::avx2}) {
    grapnel::base::set_isa_for_testing(isa);
    check_all_layouts<float>();
    check_all_layouts<double>();
  }
  grapnel::base::set_isa_for_testing({});
}

TEST_CASE("gemm gives the same bits for every number of threads and on every run") {
  check_same_bits<float>();
  check_same_bits<double>();
  check_same_bits<int64_t>();
}

TEST_CASE("an f64 product does not depend on how its operands lie in memory") {
  const Matrix<double> a(70, 300, 1, Layout::dense, 1), b(300, 90, 1, Layout::dense, 2);
  std::vector<double> turned(b.data.size()), c1(70 * 90), c2(70 * 90);
  for (size_t p = 0; p < 300; ++p) {
    for (size_t j = 0; j < 90; ++j) turned[j * 300 + p] = b.data[p * 90 + j];
  }
  GemmArgs args{.type = GemmType::f64, .m = 70, .n = 90, .k = 300};
  args.a = a.data.data(), args.a_row = 300, args.a_col = 1;
  args.b = b.data.data(), args.b_row = 90, args.b_col = 1, args.c = c1.data(), args.c_row = 90;
  gemm(args);
  args.b = turned.data(), args.b_row = 1, args.b_col = 300, args.c = c2.data();
  gemm(args);
  CHECK(same_bits(c1, c2));
}

TEST_CASE("an empty sum is zero and an empty result is left alone") {
  for (GemmType type : {GemmType::f32, GemmType::f64, GemmType::i64}) {
    std::vector<int64_t> c(100, -1);  // -1 is a NaN when read as a float
    GemmArgs args{.type = type, .m = 10, .n = 10, .k = 0};
    args.a = args.b = c.data(), args.a_col = args.b_col = 1, args.b_row = 10, args.c = c.data(),
    args.c_row = 10;
    args.m = 0;
    gemm(args);
    args.m = 10, args.n = 0;
    gemm(args);
    args.n = 10, args.batch = 0;
    gemm(args);
    CHECK(std::all_of(c.begin(), c.end(), [](int64_t x) { return x == -1; }));
    args.batch = 1;
    gemm(args);
    const size_t written = type == GemmType::f32 ? 50 : 100;
    CHECK(std::all_of(c.begin(), c.begin() + static_cast<ptrdiff_t>(written),
                      [](int64_t x) { return x == 0; }));
  }
}

TEST_CASE("one matrix may serve a whole batch") {
  const Matrix<float> a(40, 50, 7, Layout::dense, 1), b(50, 60, 1, Layout::transposed, 2);
  std::vector<float> c(7 * 40 * 60), one(40 * 60);
  GemmArgs args{.m = 40, .n = 60, .k = 50, .batch = 7};
  args.a = a.data.data(), args.a_row = a.row, args.a_col = a.col, args.a_batch = a.batch;
  args.b = b.data.data(), args.b_row = b.row, args.b_col = b.col;
  args.c = c.data(), args.c_row = 60, args.c_batch = 40 * 60;
  gemm(args);
  args.a = a.data.data() + 6 * a.batch, args.batch = 1, args.c = one.data();
  gemm(args);
  CHECK(std::equal(one.begin(), one.end(), c.begin() + 6 * 40 * 60));
}

TEST_CASE("oneDNN starts no threads beside the pool") {
  const auto threads = [] {
    const std::filesystem::directory_iterator tasks("/proc/self/task");
    return std::distance(begin(tasks), end(tasks));
  };
  const int limit = grapnel::get_num_threads();
  grapnel::set_num_threads(1);
  const auto before = threads();
  const Problem<float> problem({300, 301, 302}, Layout::dense, Layout::dense);
  CHECK(problem.error(problem.solve()) < tolerance);
  CHECK(threads() == before);
  grapnel::set_num_threads(limit);
}

TEST_CASE("several threads may multiply at once") {
  const Problem<float> problem({128, 300, 256}, Layout::dense, Layout::transposed);
  const std::vector<float> expected = problem.solve();
  std::atomic<int> different{0};
  std::vector<std::thread> users;
  for (int u = 0; u < 3; ++u) {
    users.emplace_back([&] {
      for (int round = 0; round < 5; ++round) different += !same_bits(problem.solve(), expected);
    });
  }
  for (std::thread& user : users) user.join();
  CHECK(different == 0);
}
