/// compiled-hooks.md section 6: vectors that Grapnel adds, and section 2.3's row on recompilation.
#include <thread>

#include "tests/compile/modes.h"

using namespace grapnel;

namespace {

using Values = std::vector<double>;

Tensor leaf(double v) { return tensor({v}, dtype(kFloat32).requires_grad(true)); }
double value(const Tensor& t) { return t.item<double>(); }

}  // namespace

TEST_CASE("compiled.37 scalars 0 and 1 are not special, and clearing grad keeps the key") {
  in_all_modes({}, [](Mode& mode) {
    Tensor x = ones({10}, requires_grad());
    x.register_post_accumulate_grad_hook([](Tensor t) { t.mutable_grad().mul_(2.0); });
    for (int i = 0; i < 5; ++i) {
      x.reset_grad();
      Tensor loss = mode.call([&] { return (x * i).sum(); });
      mode.backward([&] { loss.backward(); });
      CHECK(values_of(x.grad()) == Values(10, 2.0 * i));
    }
  });
}

TEST_CASE(
    "compiled.X1 retain-grad comes after all tensor hooks, whatever the order of registration") {
  in_all_modes({}, [](Mode& mode) {
    Tensor x = leaf(3);
    Tensor y = mode.call([&] {
      Tensor square = x * x;
      square.register_hook([](const Tensor& g) { return g * 2; });
      square.retain_grad();
      square.register_hook([](const Tensor& g) { return g + 1; });
      return square;
    });
    mode.backward([&] { y.backward(); });
    CHECK(value(y.grad()) == 3);
    CHECK(value(x.grad()) == 18);
  });
}

TEST_CASE("compiled.X2 one hook object on two leaves") {
  in_all_modes({}, [](Mode& mode) {
    Tensor a = leaf(1), b = leaf(2);
    auto hook = [](const Tensor& g) { return g * 10; };
    a.register_hook(hook);
    b.register_hook(hook);
    Tensor out = mode.call([&] { return a * b; });
    mode.backward([&] { out.backward(); });
    CHECK(value(a.grad()) == 20);
    CHECK(value(b.grad()) == 10);
  });
}

TEST_CASE("compiled.X3 a hook that removes itself acts once") {
  in_all_modes({.F = 1, .B = 2}, [](Mode& mode) {
    Tensor x = leaf(1);
    HookHandle h;
    h = x.register_hook([&](const Tensor& g) {
      h.remove();
      return g * 2;
    });
    for (const double want : {6.0, 9.0}) {
      Tensor out = mode.call([&] { return x * 3; });
      mode.backward([&] { out.backward(); });
      CHECK(value(x.grad()) == want);
    }
  });
}

TEST_CASE("compiled.X4 a hook registered by a hook acts in the same pass") {
  in_all_modes({}, [](Mode& mode) {
    Tensor x = leaf(1), y = leaf(5);
    Tensor out = mode.call([&] {
      Tensor product = x * y;
      product.register_hook(
          [&x](const Tensor&) { x.register_hook([](const Tensor& g) { return g * 2; }); });
      return product.sum();
    });
    mode.backward([&] { out.backward(); });
    CHECK(value(x.grad()) == 10);
    CHECK(value(y.grad()) == 1);
  });
}

TEST_CASE("compiled.X5 a hook of three paths makes three graphs") {
  in_all_modes({.F = 1, .B = 3}, [](Mode& mode) {
    Tensor x = leaf(2);
    int call = 0;
    x.register_hook([&](const Tensor& g) {
      switch (call++ % 3) {
        case 0: return g * g;
        case 1: return g + g;
        default: return -g;
      }
    });
    for (int i = 0; i < 9; ++i) {
      x.reset_grad();
      Tensor out = mode.call([&] { return x * 3; });
      mode.backward([&] { out.backward(); });
      CHECK(value(x.grad()) == Values{9, 6, -3}[static_cast<size_t>(i % 3)]);
    }
    CHECK(call == 9);
  });
}

TEST_CASE("compiled.X7 an opaque hook is called once in every pass and costs one graph") {
  in_all_modes({}, [](Mode& mode) {
    Tensor x = leaf(2);
    int count = 0;
    Values seen;
    x.register_hook(opaque([&](const Tensor& g) {
      ++count;
      seen.push_back(value(g));  // reading is fine: the graph is running
      return g * 2;
    }));
    for (int i = 0; i < 10; ++i) {
      x.reset_grad();
      Tensor out = mode.call([&] { return x * i; });
      mode.backward([&] { out.backward(); });
      CHECK(value(x.grad()) == 2 * i);
    }
    CHECK(count == 10);
    CHECK(seen == Values{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
    CHECK(mode.breaks == 0);
  });
}

TEST_CASE(
    "compiled.X8 what a hook keeps has its value after the pass; reading it inside is a break") {
  in_all_modes({}, [](Mode& mode) {
    Tensor x = leaf(2);
    std::vector<Tensor> kept;
    x.register_hook([&](const Tensor& g) { kept.push_back(g); });
    Tensor out = mode.call([&] { return x * 3; });
    mode.backward([&] { out.backward(); });
    REQUIRE(kept.size() == 1);
    CHECK(value(kept[0]) == 3);
  });
  in_all_modes({}, [](Mode& mode) {
    Tensor x = leaf(2);
    double seen = 0;
    x.register_hook([&](const Tensor& g) { seen = value(g); }, {"reader"});
    Tensor out = mode.call([&] { return x * 3; });
    std::string message;
    try {
      mode.backward([&] { out.backward(); });
    } catch (const Error& e) {
      message = e.what();
    }
    CAPTURE(message);
    if (!mode.compiled_backward) {
      CHECK(seen == 3);
      return;
    }
    for (const char* part : {"fullgraph: item reads a value", "tensor hook 'reader'",
                             "vectors_test.cpp", "accumulate_grad", "opaque(...)"})
      CHECK(message.find(part) != std::string::npos);
    CHECK(!x.grad().defined());
  });
}

TEST_CASE("compiled.X9 a hook that throws leaves no grad behind, and the next pass is right") {
  in_all_modes({.F = 2, .B = 2}, [](Mode& mode) {
    std::vector<Tensor> leaves;
    for (int i = 0; i < 5; ++i) leaves.push_back(leaf(i + 1));
    bool armed = true;
    leaves[2].register_hook([&](const Tensor&) {
      if (armed) throw std::runtime_error("third leaf");
    });
    Tensor out = mode.call([&] {
      Tensor sum = leaves[0] * 1;
      for (size_t i = 1; i < 5; ++i) sum = sum + leaves[i] * (i + 1.0);
      return sum;
    });
    CHECK_THROWS_WITH_AS(mode.backward([&] { out.backward({}, true); }), "third leaf",
                         std::runtime_error);
    CHECK(!leaves[2].grad().defined());
    if (mode.compiled_backward)
      for (const Tensor& x : leaves) CHECK(!x.grad().defined());
    for (const Tensor& x : leaves) x.reset_grad();
    armed = false;
    mode.backward([&] { out.backward(); });
    for (size_t i = 0; i < 5; ++i) CHECK(value(leaves[i].grad()) == static_cast<double>(i + 1));
  });
}

TEST_CASE(
    "compiled.X9 the throw need not come at the end: what was consumed before is still there") {
  on_each_backend([](const CompileOptions& options) {
    Tensor a = tensor({1.0, 2.0}, requires_grad()), b = tensor({3.0, 4.0}, requires_grad());
    Tensor loss = (a * b).sum() + b.sum();
    bool armed = true;
    a.register_hook([&](const Tensor&) {
      if (armed) throw std::runtime_error("hook");
    });
    CompiledBackward scope(options);
    CHECK_THROWS_WITH(loss.backward(), "hook");
    CHECK(!a.grad().defined());
    CHECK(!b.grad().defined());
    armed = false;
    loss.backward();
    CHECK(values_of(b.grad()) == Values{2, 3});
    CHECK(values_of(a.grad()) == Values{3, 4});
  });
}

TEST_CASE("compiled.X10 threads with scopes of their own share the cache") {
  on_each_backend([](const CompileOptions& options) {
    CompileCounter counter;
    Values results[2];
    auto work = [&](int id) {
      CompiledBackward scope(options);
      Tensor x = arange(1, 5, kFloat32).requires_grad_();
      x.register_hook([](const Tensor& g) { return g * 2; });
      for (int i = 0; i < 20; ++i) {
        x.reset_grad();
        (sin(x) * x).sum().backward();
      }
      results[id] = values_of(x.grad());
    };
    std::thread first(work, 0), second(work, 1);
    first.join();
    second.join();
    CHECK(counter.graphs() == 1);
    CHECK(results[0] == results[1]);
    for (size_t i = 0; i < 4; ++i) {
      const double v = static_cast<double>(i + 1);
      CHECK(results[0][i] == doctest::Approx(2 * (std::cos(v) * v + std::sin(v))).epsilon(1e-5));
    }
  });
}

TEST_CASE("compiled.X11 a hook that returns the wrong shape is named, with both shapes") {
  in_all_modes({.F = 1, .B = 0}, [](Mode& mode) {
    Tensor x = ones({3}, requires_grad());
    x.register_hook([](const Tensor& g) { return g.slice(0, 0, 2); }, {"cut"});
    Tensor out = mode.call([&] { return (x * 3).sum(); });
    std::string message;
    try {
      mode.backward([&] { out.backward(); });
    } catch (const Error& e) {
      message = e.what();
    }
    CAPTURE(message);
    CHECK(message.find("'cut'") != std::string::npos);
    CHECK(message.find("vectors_test.cpp") != std::string::npos);
    CHECK(message.find("from [3] to [2]") != std::string::npos);
    CHECK(!x.grad().defined());
  });
}
