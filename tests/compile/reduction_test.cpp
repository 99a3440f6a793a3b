/// Reductions behind elementwise ops: where it pays they run inside the kernel, in lanes.
#include "grapnel/codegen/jit.h"
#include "grapnel/codegen/llvm_module.h"
#include "tests/compile/plans.h"
#include "tests/ops/sweep.h"

using namespace grapnel;

namespace {

const auto wait_for_kernels = [](compiler::PassOptions& o) { o.background_kernels = false; };

std::vector<Tensor> reduced(const Tensor& x, const Shape& dims) {
  const Tensor y = x * 2 - x;
  std::vector<Tensor> out{y.sum(dims), y.amax(dims), y.amin(dims), y.mul(2).sum(dims)};
  for (const int64_t d : dims)
    if (dims.size() == 1) out.push_back((x * x).prod(d)), out.push_back((x > 1).any(d));
  if (x.is_floating_point()) out.push_back((x - x).mean(dims));
  return out;
}

template <class Fn>
void check_bits(Fn fn) {
  reset_compile_cache();
  auto f = compile(fn);
  const std::vector<Tensor> want = fn(), got = f();
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    CAPTURE(i);
    CHECK(same_bits(got[i], want[i]));
  }
}

}  // namespace

TEST_CASE("long reductions have eager's bits, whatever their length, type, layout and values") {
  const WithPasses all(wait_for_kernels);
  manual_seed(3);
  for (const DType type : {kFloat32, kFloat64, kBFloat16, kInt64, kUInt8})
    for (const int64_t length : {4097, 8192, 9001, 70003}) {
      CAPTURE(type);
      CAPTURE(length);
      const Tensor x = (randn({2, length}) * 3).to(type);
      check_bits([&] { return reduced(x, {1}); });
      check_bits([&] { return reduced(x, {0, 1}); });
    }
  Tensor x = randn({3, 9000});
  const Tensor row = randn({9000}), column = randn({3, 1}), turned = randn({9000, 3}).t();
  check_bits([&] { return reduced(x * row + column, {1}); });
  check_bits([&] { return reduced(x.slice(1, 5, 8999) * turned.slice(1, 1, 8995), {1}); });
  check_bits([&] { return reduced(column + x.expand({2, 3, 9000}), {0, 1, 2}); });
  // Blocks that end where rows of an operand do, in chunks that do not.
  const Tensor deep = randn({3, 40, 192}), bias = randn({192});
  check_bits([&] { return reduced(deep + bias, {1, 2}); });
  check_bits([&] { return reduced(deep.slice(1, 0, 39).slice(2, 0, 130) + 1, {1, 2}); });
  for (const double value : {std::nan(""), HUGE_VAL, -HUGE_VAL, -0.0}) {
    x[1].slice(0, 8990, 8999).fill_(value);
    check_bits([&] { return reduced(x, {1}); });
    check_bits([&] { return reduced(x, {0, 1}); });
  }
  const Tensor zeros = full({5000}, -0.0);
  check_bits([&] { return std::vector<Tensor>{(zeros * 1).sum(), (zeros + zeros).sum()}; });
}

TEST_CASE("rows that are shorter than a chunk have eager's bits, each in lanes of its own") {
  const WithPasses all(wait_for_kernels);
  manual_seed(4);
  for (const DType type : {kFloat32, kFloat64, kBFloat16, kInt64})
    for (const int64_t length : {64, 128, 250, 256, 512, 520, 1024, 1088, 4096}) {
      CAPTURE(type);
      CAPTURE(length);
      const int64_t rows = 40000 / length + 3;
      const Tensor x = (randn({rows, length}) * 3).to(type), weight = randn({length}).to(type),
                   column = randn({rows, 1}).to(type);
      check_bits([&] { return reduced(x, {1}); });
      check_bits([&] { return reduced(x * weight + column, {1}); });
      if (!x.is_floating_point()) continue;
      check_bits([&] {
        const Tensor c = x - x.mean({-1}, true);
        const Tensor y = c * (c.square().mean({-1}, true) + 1e-5).rsqrt() * weight + 1;
        return std::vector<Tensor>{y, c, (y * c).amax({-1}), (y - c).sum({0, 1})};
      });
    }
  Tensor x = randn({100, 512});
  for (const double value : {std::nan(""), HUGE_VAL, -HUGE_VAL, -0.0}) {
    x[17].slice(0, 100, 512).fill_(value);
    check_bits([&] { return reduced(x, {1}); });
  }
}

TEST_CASE("what is reduced and what is stored come from one kernel") {
  const WithPasses all(wait_for_kernels);
  Tensor p = randn({50000}), q = p.clone();
  const auto update = [](Tensor& t) {
    const Tensor before = t * t;
    t.mul_(0.5);
    return std::vector<Tensor>{before.sum(), t.sum(), t * 3};
  };
  auto f = compile([&] { return update(q); });
  for (int i = 0; i < 3; ++i) {
    const std::vector<Tensor> want = update(p), got = f();
    for (size_t k = 0; k < want.size(); ++k) CHECK(same_bits(got[k], want[k]));
    CHECK(same_bits(p, q));
  }
}

TEST_CASE("a second kernel is made where there is enough to reduce") {
  if (!codegen::llvm_module().api) return;  // there are no kernels to count
  const auto kernels_of = [](int64_t rows, int64_t length) {
    const WithPasses all(wait_for_kernels);
    reset_compile_cache();
    codegen::reset_jit_for_testing();
    const Tensor x = rand({rows, length});
    auto f = compile([&] { return (x * x + 7).sum(-1); });
    f();
    const codegen::JitStats s = codegen::jit_stats();
    return s.compiled + s.disk_hits;
  };
  CHECK(kernels_of(63, 256) == 1);
  CHECK(kernels_of(64, 256) == 2);
  CHECK(kernels_of(1000, 255) == 1);
  CHECK(kernels_of(2, 8192) == 2);
}
