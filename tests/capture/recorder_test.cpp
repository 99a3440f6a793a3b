/// What the recorder sees: aliasing, in-place writes, liveness, reads and exceptions.
#include "tests/compile/backends.h"
#include "tests/ops/sweep.h"

using namespace grapnel;

TEST_CASE("a compiled function computes what it computes uncompiled") {
  on_each_backend([](const CompileOptions& options) {
    auto f = compile([](Tensor a, Tensor b) { return (a * b + 1.0).tanh().sum(); }, options);
    const Tensor a = randn({3, 5}), b = randn({5});
    CHECK(same_bits(f(a, b), (a * b + 1.0).tanh().sum()));
    CHECK(f.stats().graphs == 1);
    CHECK(f.stats().breaks == 0);
  });
}

TEST_CASE("sizes, scalars and tensors are arguments: batches 1 to 100 in any order compile once") {
  on_each_backend([](const CompileOptions& options) {
    const Tensor w = randn({8, 4}), bias = randn({4});
    auto body = [&](Tensor x, double k) { return (x.matmul(w) + bias).relu() * k; };
    auto f = compile(body, options);
    for (int i = 0; i < 100; ++i) {
      const Tensor x = randn({1 + (i * 37) % 100, 8});
      CHECK(same_bits(f(x, i % 3), body(x, i % 3)));
    }
    CHECK(f.stats().graphs == 1);
    CHECK(f.stats().hits == 99);
  });
}

TEST_CASE("writes through a view reach the base, and writes to the base reach its views") {
  on_each_backend([](const CompileOptions& options) {
    auto body = [](Tensor x) {
      Tensor y = x * 2.0;
      Tensor row = y.select(0, 1), transposed = y.t();
      row.add_(100.0);
      Tensor seen = transposed + 0.0;
      y.mul_(3.0);
      return std::vector<Tensor>{y, row, transposed, seen};
    };
    auto f = compile(body, options);
    const Tensor x = randn({3, 3});
    const auto want = body(x), got = f(x);
    for (size_t i = 0; i < want.size(); ++i) CHECK(same_bits(got[i], want[i]));
    CHECK(got[1].is_alias_of(got[0]));
    CHECK(got[2].is_alias_of(got[0]));
  });
}

TEST_CASE("tensors from outside are written in place, in order, and keep their identity") {
  on_each_backend([](const CompileOptions& options) {
    Tensor p = ones({4}), g = full({4}, 0.5);
    const Tensor before = p;
    const void* memory = p.data_ptr();
    auto f = compile(
        [&](double lr) {
          const Tensor old = p * 1.0;
          p.sub_(g * lr);
          g.zero_();
          return old + p;
        },
        options);
    const Tensor sum = f(0.25);
    CHECK(p.data_ptr() == memory);
    CHECK(before[0].item<float>() == 0.875f);
    CHECK(sum[0].item<float>() == 1.875f);
    CHECK(g[3].item<float>() == 0.0f);
    CHECK(p._version() == 1);
  });
}

TEST_CASE("a function that returns its argument returns that very tensor") {
  on_each_backend([](const CompileOptions& options) {
    auto f = compile([](Tensor x) { return x; }, options);
    const Tensor x = ones({2}, requires_grad());
    CHECK(f(x).is_same(x));
    CHECK(f.stats().graphs == 0);
  });
}

TEST_CASE("values that are kept anywhere are computed, dead ones are not stored") {
  on_each_backend([](const CompileOptions& options) {
    std::vector<Tensor> kept;
    auto f = compile(
        [&](Tensor x) {
          Tensor dead = x * 5.0;
          kept.push_back(dead + 1.0);
          return x - 1.0;
        },
        options);
    f(ones({3}));
    CHECK(kept[0][2].item<float>() == 6.0f);
  });
}

TEST_CASE("memory that a function makes and fills by hand is no reason for a break") {
  on_each_backend([](const CompileOptions& options) {
    auto f = compile(
        [](Tensor x) {
          Tensor y = x * 2.0, table = empty({2});
          table.data_ptr<float>()[0] = 5.0f;
          table.data_ptr<float>()[1] = 7.0f;
          return y + table;
        },
        options);
    CHECK(f(ones({2}))[1].item<float>() == 9.0f);
    CHECK(f.stats().breaks == 0);
    CHECK(f.stats().graphs == 1);
    auto g = compile([] { return empty({3}); }, options);
    Tensor memory = g();
    memory.fill_(4.0);
    CHECK(memory[2].item<float>() == 4.0f);
    CHECK(g.stats().graphs == 0);
  });
}

TEST_CASE("reading a value breaks the graph, with the reader and the line as reason") {
  on_each_backend([](const CompileOptions& options) {
    auto f = compile(
        [](Tensor x) {
          Tensor y = x * 2.0;
          if (y.sum().item<float>() > 0) y = y + 1.0;
          return y;
        },
        options);
    CHECK(f(ones({2}))[0].item<float>() == 3.0f);
    CHECK(f.stats().breaks == 1);
    CHECK(f.stats().graphs == 2);
    REQUIRE(f.stats().break_reasons.size() == 1);
    CHECK(f.stats().break_reasons[0].what == "item reads a value");
    CAPTURE(f.stats().break_reasons[0].where);
    CHECK(f.stats().break_reasons[0].where.find("recorder_test.cpp") != std::string::npos);
  });
}

TEST_CASE("under fullgraph reading a value is an error, and nothing was run") {
  CompileOptions options;
  options.fullgraph = true;
  on_each_backend(
      [](const CompileOptions& o) {
        Tensor p = ones({2});
        auto f = compile(
            [&](Tensor x) {
              p.add_(x);
              return p.sum().item<float>();
            },
            o);
        CHECK_THROWS_WITH_AS(f(ones({2})), doctest::Contains("fullgraph: item reads a value"),
                             Error);
        CHECK(p[0].item<float>() == 1.0f);
        CHECK(p._version() == 0);
      },
      options);
}

TEST_CASE("a body that throws has done nothing: values, versions and the generator are as before") {
  on_each_backend([](const CompileOptions& options) {
    manual_seed(7);
    Tensor p = ones({2}), escaped;
    const GeneratorState state = default_generator().state();
    auto f = compile(
        [&](Tensor x) {
          p.add_(x);
          p.mul_(rand({2}));
          escaped = p * 2.0;
          throw std::runtime_error("stop");
        },
        options);
    CHECK_THROWS_WITH(f(ones({2})), "stop");
    CHECK(p[0].item<float>() == 1.0f);
    CHECK(p._version() == 0);
    CHECK(default_generator().state() == state);
    CHECK_THROWS_WITH_AS(escaped.item<float>(), doctest::Contains("elements"), Error);
    CHECK_THROWS_WITH_AS(escaped[0].item<float>(), doctest::Contains("never computed"), Error);
    CHECK((p + 1.0)[0].item<float>() == 2.0f);
  });
}

TEST_CASE("every op: recorded and run gives the bits of eager mode on each backend") {
  for_each_sample([](const Op& op, const Sample& sample) {
    const Outputs want = run_op(op, sample);
    on_each_backend([&](const CompileOptions& options) {
      auto f = compile([&] { return run_op(op, sample); }, options);
      CHECK(same_bits(f(), want));
      CHECK(same_bits(f(), want));
      CHECK(f.stats().graphs <= 1);
      CHECK(f.stats().breaks == 0);
    });
  });
}

TEST_CASE("random draws are the same, recorded or not") {
  on_each_backend([](const CompileOptions& options) {
    auto body = [] { return rand({5}) + randn({5}) * 0.5; };
    manual_seed(3);
    const Tensor want = body(), after = rand({2});
    manual_seed(3);
    auto f = compile(body, options);
    CHECK(same_bits(f(), want));
    CHECK(same_bits(rand({2}), after));
  });
}

TEST_CASE("nodes are real: backward outside a compiled forward equals eager") {
  on_each_backend([](const CompileOptions& options) {
    auto body = [](Tensor x, Tensor w) { return (x.matmul(w).tanh() * x.sum()).sum(); };
    const Tensor x0 = randn({3, 3}), w0 = randn({3, 3});
    Tensor x1 = x0.clone().requires_grad_(), w1 = w0.clone().requires_grad_();
    Tensor x2 = x0.clone().requires_grad_(), w2 = w0.clone().requires_grad_();
    body(x1, w1).backward();
    auto f = compile(body, options);
    f(x2, w2).backward();
    CHECK(same_bits(x1.grad(), x2.grad()));
    CHECK(same_bits(w1.grad(), w2.grad()));
    CHECK(f.stats().graphs == 1);
  });
}

TEST_CASE(
    "a whole step, forward, backward and update, is one graph and equals eager over many steps") {
  on_each_backend([](const CompileOptions& options) {
    auto run = [&](bool compiled) {
      manual_seed(1);
      Tensor w1 = randn({6, 8}).requires_grad_(), w2 = randn({8, 2}).requires_grad_();
      auto body = [&](Tensor x, Tensor y) {
        w1.reset_grad();
        w2.reset_grad();
        Tensor loss = (x.matmul(w1).relu().matmul(w2) - y).square().mean();
        loss.backward();
        NoGradGuard off;
        w1.sub_(w1.grad() * 0.05);
        w2.sub_(w2.grad() * 0.05);
        return loss.detach();
      };
      auto f = compile(body, options);
      std::vector<Tensor> results;
      for (int i = 0; i < 20; ++i) {
        const Tensor x = randn({5, 6}), y = randn({5, 2});
        results.push_back(compiled ? f(x, y) : body(x, y));
      }
      if (compiled) {
        CHECK(f.stats().graphs == 1);
        CHECK(f.stats().breaks == 0);
      }
      results.push_back(w1.detach());
      results.push_back(w2.detach());
      return results;
    };
    const auto want = run(false), got = run(true);
    for (size_t i = 0; i < want.size(); ++i) CHECK(same_bits(got[i], want[i]));
  });
}

TEST_CASE("the default type in which integers are compared with fractions is part of the key") {
  const Tensor x = tensor({int64_t{16777217}});
  auto work = [](const Tensor& t) { return (t > 16777216.5).logical_not(); };
  auto f = compile(work);
  CHECK(f(x).equal(work(x)));
  set_default_dtype(kFloat64);
  const bool same = f(x).equal(work(x));
  set_default_dtype(kFloat32);
  CHECK(same);
}

TEST_CASE("results of functions that are not recorded have values wherever a long trace is cut") {
  const Tensor x = ones({2});
  for (const int64_t before : {19'999, 20'000, 20'001}) {
    auto f = compile([&] {
      Tensor y = x;
      for (int64_t i = 0; i < before; ++i) y = y.neg();
      return invoke([](const Tensor& t) { return t * 3.0; }, x).sum().item<double>();
    });
    CAPTURE(before);
    CHECK(f() == 6.0);
  }
}

TEST_CASE("a handler of warnings may ask a compiled function for its statistics") {
  const Tensor x = ones({2});
  int ops = 0;
  auto f = compile([&] {
    Tensor y = x;
    for (int i = 0; i < ops; ++i) y = y.neg();
    return y;
  });
  int64_t told = 0;
  set_warning_handler([&](const std::string&) { told = f.stats().graphs; });
  for (ops = 1; ops < 100 && told == 0; ++ops) f();
  set_warning_handler(nullptr);
  CHECK(told > 0);
}

TEST_CASE("a call may have any number of operands and results") {
  // Around the twelve bits that keys have for most counts, and beyond sixteen bits.
  const Tensor x = arange(4.0) + 10.0;
  for (const size_t count : {4094, 4095, 4096, 5000, 65535, 65536, 65537, 70001}) {
    CAPTURE(count);
    std::vector<Tensor> list;
    for (size_t i = 0; i < count; ++i) list.push_back(x[static_cast<int64_t>(i % 4)]);
    const Tensor want = stack(list) * 2.0;
    auto f = compile([&] { return stack(list) * 2.0; });
    CHECK(f().equal(want));
    const auto size = static_cast<int64_t>(count);
    auto g = compile([&](const Tensor& long_one) {
      const std::vector<Tensor> parts = long_one.unsqueeze(1).split(1);
      return parts[0] + parts[count / 2] + parts[count - 1];
    });
    if (count <= 5000)
      CHECK(g(want).item<float>() == (want[0] + want[size / 2] + want[size - 1]).item<float>());
  }
}

TEST_CASE("the numbers of operands and results tell keys apart, however large they are") {
  const Tensor x = ones({1});
  for (const Backend backend : kBackends) {
    auto f = compile([&](const std::vector<Tensor>& list) { return cat(list) * 2.0; },
                     {.backend = backend});
    for (const size_t count : {4095, 4096, 4097, 8191, 4095})
      CHECK(f(std::vector<Tensor>(count, x)).equal(full({static_cast<int64_t>(count)}, 2.0)));
    CHECK(f.stats().graphs == 4);
  }
}

TEST_CASE("a gradient flows to each of very many joined tensors") {
  std::vector<Tensor> list;
  for (int i = 0; i < 66000; ++i) list.push_back(zeros({}));
  Tensor first = ones({}, requires_grad()), last = ones({}, requires_grad());
  list.front() = first;
  list.back() = last;
  auto f = compile([&] { (stack(list) * arange(66000.0)).sum().backward(); });
  f();
  CHECK(first.grad().item<float>() == 0.0f);
  CHECK(last.grad().item<float>() == 65999.0f);
}

TEST_CASE("trace inside a compiled function says why it cannot look at tensors made there") {
  auto f = compile([](Tensor x) {
    const Tensor y = x * 2.0;
    return trace([](Tensor t) { return t + 1.0; }, {y}).str();
  });
  CHECK_THROWS_WITH_AS(f(ones({2})),
                       doctest::Contains("trace: input 0 is made by the compiled function that "
                                         "calls trace, which has not computed it yet."),
                       Error);
}
