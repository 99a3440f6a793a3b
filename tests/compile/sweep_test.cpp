/// Neighbouring groups run span by span: see Note [Sweeps] in compile/plan.h.
#include "tests/ops/sweep.h"

#include "grapnel/base/allocator.h"
#include "tests/compile/plans.h"

using namespace grapnel;

namespace {

Tensor softmax_rows(const Tensor& x) {
  const Tensor e = exp(x - x.amax({-1}, true));
  return e / e.sum({-1}, true);
}

Tensor norm_rows(const Tensor& x) {
  const Tensor c = x - x.mean({-1}, true);
  return c * (c.square().mean({-1}, true) + 1e-5).rsqrt();
}

/// Whether a function of one tensor gives eager's bits, gradient included.
template <class Fn>
bool same_as_eager(Fn fn, const Tensor& x) {
  auto with_gradient = [&](const Tensor& t) {
    Tensor leaf = t.detach().requires_grad_(t.is_floating_point());
    const Tensor y = fn(leaf);
    if (y.requires_grad()) y.sum().backward();
    return std::vector<Tensor>{y.detach(), y.requires_grad() ? leaf.grad() : Tensor()};
  };
  reset_compile_cache();
  compiler::pass_options().background_kernels = false;
  auto f = compile(with_gradient);
  const std::vector<Tensor> got = f(x), want = with_gradient(x);
  return same_bits(got[0], want[0]) && (!want[1].defined() || same_bits(got[1], want[1]));
}

}  // namespace

TEST_CASE("softmax and layer norm are one sweep each, also with their gradients") {
  const Tensor x = rand({8, 32}), g = rand({8, 32});
  CHECK(planned([&] { return softmax_rows(x); }).str() == "{[amax] [sub exp sum] [div]}");
  CHECK(planned([&] { return norm_rows(x); }).str() ==
        "{[mean] [sub square mean] [add rsqrt] [mul]}");
  auto gradient = [&](auto fn) {
    return [&, fn] {
      Tensor leaf = x.detach().requires_grad_();
      fn(leaf).backward(g);
      return leaf.grad();
    };
  };
  CHECK(planned(gradient(softmax_rows)).plan.items.size() ==
        planned(gradient(softmax_rows)).plan.sweeps.at(0).parts.size());
  CHECK(planned(gradient(norm_rows)).plan.sweeps.size() == 1);
}

TEST_CASE(
    "a softmax reads its input twice and writes its result once; nothing else touches memory") {
  compiler::pass_options().background_kernels = false;
  auto f = compile(softmax_rows);
  f(rand({64, 512}));
  const CompileStats s = f.stats();
  CHECK(s.bytes_written == 64 * 512 * 4);
  CHECK(s.bytes_read == 2 * 64 * 512 * 4);
}

TEST_CASE("sweeps have eager's bits for rows of every length, type and layout") {
  manual_seed(11);
  for (const int64_t length :
       {1, 2, 63, 64, 100, 128, 192, 512, 1088, 4095, 4096, 4097, 9000, 70000})
    for (const int64_t rows : {1, 3, 130}) {
      if (length * rows > 300000) continue;
      CAPTURE(length);
      CAPTURE(rows);
      CHECK(same_as_eager(softmax_rows, randn({rows, length})));
      CHECK(same_as_eager(norm_rows, randn({rows, length})));
    }
  for (const DType type : {kFloat64, kBFloat16, kFloat16}) {
    CAPTURE(type);
    CHECK(same_as_eager(softmax_rows, randn({5, 77}).to(type)));
    CHECK(same_as_eager(norm_rows, randn({5, 77}).to(type)));
    CHECK(same_as_eager(norm_rows, randn({5, 256}).to(type)));
  }
  // Beside results of the row: a row for all rows, a number, a row for some, narrow and turned
  // ones.
  const Tensor weight = randn({256}), one = randn({1}), some = randn({4, 1, 256}),
               mask = randn({256}) > 0, turned = randn({256, 12}).t().reshape({4, 3, 256});
  const auto mixed = [&](const Tensor& x) {
    return (softmax_rows(x * weight + one) - some) * mask.to(kFloat32) + turned;
  };
  CHECK(same_as_eager(mixed, randn({4, 3, 256})));
  CHECK(same_as_eager(softmax_rows, randn({40, 30}).t()));
  CHECK(same_as_eager(norm_rows, randn({3, 4, 5, 6}).permute({2, 0, 3, 1})));
  CHECK(same_as_eager([](const Tensor& x) { return x - x.sum({1, 2}, true); }, randn({6, 7, 8})));
}

TEST_CASE("a result that is broadcast along columns is not taken for one along rows") {
  // At equal sizes only the shape tells them apart.
  for (const int64_t n : {1, 4, 64})
    CHECK(same_as_eager([](const Tensor& x) { return x.exp() - x.exp().sum({1}).unsqueeze(0); },
                        randn({n, n})));
  auto f = compile([](Tensor x) { return (x * 2.0) / (x * 2.0).sum({1}); });
  for (const int64_t n : {4, 1, 7}) {
    const Tensor x = randn({n, n});
    CHECK(f(x).equal((x * 2.0) / (x * 2.0).sum({1})));
  }
}

TEST_CASE("long chains hand their intermediates on in the cache") {
  manual_seed(2);
  auto chain = [](const Tensor& x) {
    Tensor y = x;
    for (int i = 0; i < 30; ++i) y = (y * 1.01 + 0.02).tanh() * x;
    return y;
  };
  const Planned p = planned([&, x = randn({300})] { return chain(x); });
  REQUIRE(p.plan.sweeps.size() == 1);
  CHECK(p.plan.sweeps[0].parts.size() > 1);
  CHECK_FALSE(p.plan.sweeps[0].locals.empty());
  for (const int64_t n : {1, 64, 1000, 5000, 100001}) CHECK(same_as_eager(chain, randn({n})));
}

TEST_CASE("writes inside a sweep happen in order") {
  manual_seed(4);
  const Tensor start = randn({10, 20});
  auto step = [](Tensor p, Tensor x) {
    const Tensor e = x.exp();
    p.sub_(e / e.sum({-1}, true));
    p.mul_(p.amax({-1}, true));
    const Tensor centred = p - p.mean({-1}, true);
    p.copy_(centred);
    return p.sum();
  };
  Tensor a = start.clone(), b = start.clone();
  auto f = compile(step);
  const Tensor x = randn({10, 20});
  for (int i = 0; i < 3; ++i) {
    CHECK(f(b, x).equal(step(a, x)));
    CHECK(a.equal(b));
  }
}

TEST_CASE("a compiled step needs no more memory than an eager one") {
  auto peak_of = [](auto&& fn) {
    fn();
    reset_peak_memory();
    const size_t before = memory_stats().in_use;
    fn();
    return memory_stats().peak - before;
  };
  const Tensor x = rand({256, 512});
  auto run = [&] {
    Tensor leaf = x.detach().requires_grad_();
    norm_rows(softmax_rows(leaf) * leaf).sum().backward();
    return leaf.grad();
  };
  compiler::pass_options().background_kernels = false;
  auto f = compile(run);
  CHECK(peak_of(f) <= peak_of(run));
}

TEST_CASE("a number that fills a tensor can be summed") {
  const Tensor d = tensor({int64_t{1}, int64_t{2}, int64_t{3}});
  CHECK(same_as_eager(
      [&](const Tensor& x) {
        Tensor h = d.neg();
        h.fill_(2);
        return x.sum() + h.sum() + full({4, 5}, 0.5).sum({1});
      },
      randn({8})));
}

TEST_CASE(
    "the update of an optimiser is one kernel, although its averages meet the parameter only in "
    "the end") {
  NoGradGuard off;
  Tensor param = rand({8, 4}), grad = rand({8, 4}), first = rand({8, 4}), second = rand({8, 4});
  CHECK(planned([&] {
          param.mul_(0.99);
          first.lerp_(grad, 0.1);
          second.mul_(0.999).addcmul_(grad, grad, 0.001);
          param.addcdiv_(first, (second.sqrt() / 0.5).add_(1e-8), -0.01);
          return std::vector<Tensor>{};
        }).str() == "[mul lerp mul addcmul sqrt div add addcdiv]");
}
