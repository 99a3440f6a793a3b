/// Sums that nobody waits for share the pass of a later call: see Note [Looks] in compile/plan.h.
#include "tests/compile/plans.h"
#include "tests/ops/sweep.h"

using namespace grapnel;

namespace {

Tensor look(const Tensor& t) { return (t - t).sum(); }

/// Whether a function that changes its arguments does so, and answers, with eager's bits.
template <class Fn>
bool same_as_eager(Fn fn, const std::vector<Tensor>& arguments) {
  auto copies = [&] {
    std::vector<Tensor> out;
    for (const Tensor& t : arguments) out.push_back(t.clone());
    return out;
  };
  reset_compile_cache();
  compiler::pass_options().background_kernels = false;
  auto f = compile(fn);
  const std::vector<Tensor> mine = copies(), its = copies();
  const std::vector<Tensor> got = f(mine), want = fn(its);
  bool same = got.size() == want.size() && f.stats().fallbacks == 0;
  for (size_t i = 0; i < got.size(); ++i) same = same && same_bits(got[i], want[i]);
  for (size_t i = 0; i < mine.size(); ++i) same = same && same_bits(mine[i], its[i]);
  return same;
}

}  // namespace

TEST_CASE("a look at a gradient and one at a parameter are taken in the kernel of the update") {
  const Tensor x = rand({8, 32}), w = rand({32, 16}), g = rand({8, 16}), m = zeros({32, 16});
  const auto step = [&] {
    std::vector<Tensor> looks{look(w)};
    const Tensor y = x.matmul(w);
    const Tensor grad = x.t().matmul(g);
    looks.push_back(look(grad));
    looks.push_back(look(y));
    m.mul_(0.9).add_(grad);
    w.sub_(m * 0.1);
    return looks;
  };
  CHECK(planned(step).str() == "matmul [sub sum] matmul [mul sub sum add mul sub sum sub]");
  const WithPasses none([](compiler::PassOptions& o) { o.looks = false; });
  CHECK(planned(step).str() != "matmul [sub sum] matmul [mul sub sum add mul sub sum sub]");
}

TEST_CASE("what is done with the single numbers that looks give waits with them") {
  const Tensor g = rand({100}), w = rand({100}), x = rand({4, 4}), total = zeros({});
  CHECK(planned([&] {
          const Tensor sum = total + g.sum();
          const Tensor y = x.matmul(x);
          w.sub_(g);
          return std::vector<Tensor>{sum, y};
        }).str() == "matmul sum add sub");
}

TEST_CASE("a number that somebody holds is written in its place: what comes next may fail") {
  const Tensor g = rand({100}), w = rand({100}), x = rand({4, 4}), total = zeros({});
  CHECK(planned([&] {
          total.add_(g.sum());
          const Tensor y = x.matmul(x);
          w.sub_(g);
          return y;
        }).str() == "sum add matmul sub");
}

TEST_CASE("looks do not wait for a call behind which the memory holds something else") {
  const WithPasses apart([](compiler::PassOptions& o) { o.sweeps = false; });
  const Tensor g = rand({4, 4}), w = rand({4, 4}), x = rand({4, 4});
  const Tensor places = zeros({4, 4}, kInt64);
  CHECK(planned([&] {
          const Tensor sum = w.square().sum();
          const Tensor y = x.matmul(g);
          w.scatter_add_(0, places, g);
          w.sub_(g);
          return std::vector<Tensor>{sum, y};
        }).str() == "[square sum] matmul scatter_add sub");
}

TEST_CASE("looks do not wait if that would keep memory, nor if they would crowd out their host") {
  const WithPasses apart([](compiler::PassOptions& o) { o.sweeps = false; });
  const Tensor g = rand({4, 4}), w = rand({4, 4}), x = rand({4, 4});
  CHECK(planned([&] {
          const Tensor sum = (w * x.cumsum(0)).sum();
          const Tensor y = x.matmul(g);
          w.sub_(g);
          return std::vector<Tensor>{sum, y};
        }).str() == "cumsum [mul sum] matmul sub");
  CHECK(planned([&] {
          const std::vector<Tensor> seen{w.sum(), w.amin(), w.amax()};
          const Tensor y = x.matmul(g);
          w.sub_(g);
          return std::vector<Tensor>{seen[0], seen[1], seen[2], y};
        }).str() == "[sum amin amax] matmul sub");
}

TEST_CASE("looks run before code that a recording does not see") {
  const Tensor w = rand({100}), total = zeros({});
  std::vector<double> seen;
  const auto run = [&] {
    total.zero_();
    seen.clear();
    auto step = compile([&] {
      total.add_(w.sum());
      invoke(opaque([&](const Tensor&) { seen.push_back(total.item<double>()); }), w);
      w.mul_(1.0);
    });
    step();
  };
  run();
  CHECK(seen == std::vector<double>{w.sum().item<double>()});
}

TEST_CASE("a sum that somebody reads is no look") {
  const Tensor g = rand({100}), w = rand({100}), x = rand({4, 4});
  CHECK(planned([&] {
          const Tensor norm = g.square().sum();
          const Tensor y = x.matmul(x) * norm;
          w.sub_(g);
          return y;
        }).str() == "[square sum] [matmul mul] sub");
}

TEST_CASE("looks come before everything that would show them something else") {
  const auto numbers = [](int64_t n) { return rand({n}); };
  SUBCASE("a write to a part") {
    CHECK(same_as_eager(
        [](const std::vector<Tensor>& a) {
          const Tensor seen = a[0].square().sum();
          a[0].narrow(0, 3, 5).zero_();
          a[0].mul_(2.0);
          return std::vector<Tensor>{seen};
        },
        {numbers(500)}));
  }
  SUBCASE("a write in another order") {
    CHECK(same_as_eager(
        [](const std::vector<Tensor>& a) {
          const Tensor seen = (a[0] * a[1]).sum();
          a[0].t().add_(a[1]);
          a[1].mul_(a[0]);
          return std::vector<Tensor>{seen};
        },
        {rand({20, 20}), rand({20, 20})}));
  }
  SUBCASE("a write to what another look of the chain reads") {
    CHECK(same_as_eager(
        [](const std::vector<Tensor>& a) {
          const Tensor seen = (a[0] * a[1]).sum();
          a[1].zero_();
          a[0].add_(1.0);
          return std::vector<Tensor>{seen};
        },
        {numbers(500), numbers(500)}));
  }
  SUBCASE("a number that is collected in two places") {
    CHECK(same_as_eager(
        [](const std::vector<Tensor>& a) {
          a[2].add_(a[0].sum());
          a[2].mul_(a[1].sum());
          const Tensor y = a[3].matmul(a[3]);
          a[0].mul_(3.0);
          a[1].mul_(3.0);
          return std::vector<Tensor>{y};
        },
        {numbers(500), numbers(500), rand({}), rand({4, 4})}));
  }
  SUBCASE("a call that reads the number late") {
    CHECK(same_as_eager(
        [](const std::vector<Tensor>& a) {
          a[1].add_(a[0].sum());
          const Tensor y = a[2].matmul(a[2]) * a[1];
          a[0].mul_(3.0);
          return std::vector<Tensor>{y};
        },
        {numbers(500), rand({}), rand({4, 4})}));
  }
}

TEST_CASE("looks have eager's bits at all sizes, in every type, beside results that are stored") {
  const auto step = [](const std::vector<Tensor>& a) {
    std::vector<Tensor> seen{look(a[0]), a[1].square().sum(), a[1].amax()};
    a[0].mul_(0.5).sub_(a[1]);
    return seen;
  };
  const auto rows = [](const std::vector<Tensor>& a) {
    const Tensor d = a[0] - a[1];
    std::vector<Tensor> seen{d.sum({-1}), d.square().sum({-1})};
    a[0].mul_(0.5);
    seen.push_back(d);
    return seen;
  };
  for (const DType type : {kFloat32, kFloat64, kBFloat16})
    for (const Shape& shape :
         {Shape{1}, Shape{63}, Shape{4095}, Shape{4096}, Shape{4097}, Shape{20000},
          Shape{128, 4096}, Shape{3, 8192}, Shape{5, 5000}, Shape{300000}}) {
      CAPTURE(shape);
      CAPTURE(type);
      const std::vector<Tensor> arguments{rand(shape).to(type), rand(shape).to(type)};
      CHECK(same_as_eager(step, arguments));
      CHECK(same_as_eager(rows, arguments));
    }
}
