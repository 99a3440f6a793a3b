/// Hooks that declare what they depend on: rules H1 to H3 of compiled-hooks.md, and how
/// declarations become keys (K1 to K6).
#include "grapnel/capture/declared.h"

#include <map>
#include <set>
#include <unordered_map>

#include "tests/compile/modes.h"
#include "tests/ops/error_text.h"

using namespace grapnel;

namespace {

using Values = std::vector<double>;

Tensor leaf(double v) { return tensor({v}, dtype(kFloat32).requires_grad(true)); }
double value(const Tensor& t) { return t.item<double>(); }

/// grad * factor, with the factor lifted; counts its calls.
struct Scale {
  std::shared_ptr<Lifted> factor = std::make_shared<Lifted>(1.0);
  std::shared_ptr<int> calls = std::make_shared<int>(0);
  void compiled_args(CompiledNodeArgs& args) const {
    args.declare("scale");
    args.lift(*factor);
  }
  Tensor operator()(const Tensor& g) const {
    ++*calls;
    return g * *factor;
  }
};

/// Declares itself, with a constant that decides what it does.
struct Power : FunctionPreHook {
  int exponent;
  std::shared_ptr<int> calls = std::make_shared<int>(0);
  explicit Power(int e) : exponent(e) {}
  void compiled_args(CompiledNodeArgs& args) const override { args.declare("power", exponent); }
  variable_list operator()(const variable_list& g) override {
    ++*calls;
    Tensor result = g[0];
    for (int i = 1; i < exponent; ++i) result = result * g[0];
    return {result};
  }
};

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

struct AuditGuard {
  explicit AuditGuard(int64_t every) { set_hook_audit(every); }
  ~AuditGuard() { set_hook_audit(0); }
};

}  // namespace

TEST_CASE("compiled.X6 a declared hook with a lifted factor is called once in a hundred passes") {
  in_all_modes({}, [](Mode& mode) {
    Tensor x = leaf(2);
    Scale hook;
    x.register_hook(hook);
    for (int k = 0; k < 100; ++k) {
      *hook.factor = k;
      x.reset_grad();
      Tensor out = mode.call([&] { return x * 3; });
      mode.backward([&] { out.backward(); });
      CHECK(value(x.grad()) == 3.0 * k);
    }
    CHECK(*hook.calls == (mode.compiled_backward ? 1 : 100));
  });
}

TEST_CASE(
    "a declared hook is an ordinary hook in eager mode, and inside a captured step it is skipped "
    "like "
    "anywhere else") {
  on_each_backend([](const CompileOptions& options) {
    Tensor x = leaf(2);
    Scale hook;
    x.register_hook(hook);
    auto step = compile(
        [&](double k) {
          *hook.factor = k;
          x.reset_grad();
          (x * 3).backward();
        },
        options);
    for (int k = 0; k < 10; ++k) {
      step(k);
      CHECK(value(x.grad()) == 3 * k);
    }
    CHECK(*hook.calls == 1);
    CHECK(step.stats().graphs == 1);
    CHECK(step.stats().skipped_hooks == 9);
  });
}

TEST_CASE(
    "hooks of equal declaration are interchangeable; another constant or type is another hook") {
  on_each_backend([](const CompileOptions& options) {
    CompiledBackward scope(options);
    Scale first, second;
    *first.factor = 2, *second.factor = 5;
    Power square(2), cube(3);
    auto run = [&](auto hook) {
      Tensor x = leaf(1);
      Tensor y = x * 3;
      y.grad_fn()->register_prehook([](const variable_list&) {});
      x.register_hook(hook);
      y.backward();
      return value(x.grad());
    };
    CHECK(run(first) == 6);
    CHECK(run(second) == 15);
    CHECK(*first.calls + *second.calls == 1);
    CHECK(run(square) == 9);
    CHECK(run(cube) == 27);
    CHECK(run(square) == 9);
    CHECK(*square.calls == 1);
    CHECK(*cube.calls == 1);
  });
}

TEST_CASE("a declared hook is called once for every size, and that compiles nothing") {
  on_each_backend([](const CompileOptions& options) {
    CompiledBackward scope(options);
    Scale hook;
    *hook.factor = 2;
    for (const int64_t n : {4, 5, 4, 5, 6}) {
      Tensor x = ones({n}, requires_grad());
      x.register_hook(hook);
      (x * 3).sum().backward();
      CHECK(values_of(x.grad()) == Values(static_cast<size_t>(n), 6.0));
    }
    CHECK(*hook.calls == 3);
    CHECK(scope.stats().graphs == 1);
  });
}

TEST_CASE(
    "declared node hooks and post-accumulate hooks of the abstract types are skipped, and do what "
    "they did") {
  struct AddTensor : FunctionPostHook {
    Tensor what;
    int* calls;
    AddTensor(Tensor w, int* c) : what(std::move(w)), calls(c) {}
    void compiled_args(CompiledNodeArgs& args) const override {
      args.declare("add");
      args.lift(what);
    }
    variable_list operator()(const variable_list& in, const variable_list& out) override {
      ++*calls;
      return {in[0] + what * out[0], in[1]};
    }
  };
  struct Descend : PostAccumulateGradHook {
    Lifted rate = 0.5;
    int* calls;
    explicit Descend(int* c) : calls(c) {}
    void compiled_args(CompiledNodeArgs& args) const override {
      args.declare("descend");
      args.lift(rate);
    }
    void operator()(const Tensor& p) override {
      ++*calls;
      NoGradGuard no_grad;
      Tensor target = p;
      target.sub_(p.grad() * rate);
      p.reset_grad();
    }
  };
  auto run = [](const std::function<void(const Tensor&)>& backward, int* calls) {
    Values seen;
    Tensor x = leaf(4);
    x.register_post_accumulate_grad_hook(std::make_shared<Descend>(calls));
    for (int i = 0; i < 6; ++i) {
      Tensor y = x * x;
      y.grad_fn()->add_post_hook(std::make_unique<AddTensor>(tensor({i * 1.0}), calls));
      backward(y);
      CHECK(!x.grad().defined());
      seen.push_back(value(x));
    }
    return seen;
  };
  int eager_calls = 0;
  const Values want = run([](const Tensor& y) { y.backward(); }, &eager_calls);
  CHECK(eager_calls == 12);
  on_each_backend([&](const CompileOptions& options) {
    CompiledBackward scope(options);
    int calls = 0;
    CHECK(run([](const Tensor& y) { y.backward(); }, &calls) == want);
    CHECK(calls == 2);
    CHECK(scope.stats().graphs == 1);
  });
}

TEST_CASE("a declared hook that reads, draws, or calls what is opaque is called in every pass") {
  struct Draws {
    int* calls;
    int what;
    void compiled_args(CompiledNodeArgs& args) const { args.declare("draws", what); }
    Tensor operator()(const Tensor& g) const {
      ++*calls;
      if (what == 0) return g + rand_like(g);
      if (what == 1) return g * g.sum().item<double>();
      return invoke(opaque([](const Tensor& t) { return t * 2; }), g);
    }
  };
  for (const int what : {0, 1, 2}) {
    CAPTURE(what);
    auto run = [&](int* calls) {
      manual_seed(3);
      Tensor x = ones({3}, requires_grad());
      x.register_hook(Draws{calls, what});
      for (int i = 0; i < 4; ++i) (x * 2).sum().backward();
      return values_of(x.grad());
    };
    int eager_calls = 0;
    const Values want = run(&eager_calls);
    on_each_backend([&](const CompileOptions& options) {
      CompiledBackward scope(options);
      int calls = 0;
      CHECK(run(&calls) == want);
      CHECK(calls == 4);
    });
  }
}

TEST_CASE(
    "a declared hook that depends on more than it lists is refused by name, or found by the "
    "audit") {
  struct Undeclared {
    Tensor hidden;
    void compiled_args(CompiledNodeArgs& args) const { args.declare("undeclared"); }
    Tensor operator()(const Tensor& g) const { return g + hidden; }
  };
  struct Looks {
    Lifted k = 1.0;
    bool listed;
    void compiled_args(CompiledNodeArgs& args) const {
      args.declare("looks", listed);
      if (listed) args.lift(k);
    }
    Tensor operator()(const Tensor& g) const { return listed ? g * k.value() : g * k; }
  };
  on_each_backend([](const CompileOptions& options) {
    CompiledBackward scope(options);
    auto message = [](auto hook) {
      Tensor x = leaf(1);
      x.register_hook(std::move(hook), {"mine"});
      const std::string text = error_text([&] { (x * 2).backward(); });
      CHECK(!x.grad().defined());
      return text;
    };
    const std::string hidden = message(Undeclared{tensor({5.0})});
    CHECK(contains(hidden, "tensor hook 'mine'"));
    CHECK(contains(hidden, "declared_test.cpp"));
    CHECK(contains(hidden, "args.lift(tensor)"));
    CHECK(contains(message(Looks{.listed = true}), "Lifted::value"));
    CHECK(contains(message(Looks{.listed = false}), "did not pass to args.lift"));

    // A plain number that changes behind the declaration goes unnoticed, except by the audit.
    double k = 2;
    struct Forgets {
      double* k;
      void compiled_args(CompiledNodeArgs& args) const { args.declare("forgets"); }
      Tensor operator()(const Tensor& g) const { return *k > 4 ? g + *k : g * *k; }
    };
    const AuditGuard audit(3);
    Tensor x = leaf(1);
    x.register_hook(Forgets{&k}, {"forgetful"});
    for (int i = 0; i < 4; ++i) (x * 2).backward();
    k = 3;
    std::string found;
    for (int i = 0; i < 3 && found.empty(); ++i) found = error_text([&] { (x * 2).backward(); });
    CHECK(contains(found, "audit: the tensor hook 'forgetful'"));
    CHECK(contains(found, "call 0, mul: operand 1 is 3.0, was 2.0, at "));
    k = 5;
    found.clear();
    for (int i = 0; i < 3 && found.empty(); ++i) found = error_text([&] { (x * 2).backward(); });
    CHECK(contains(found, "call 0 is add, was mul"));
    k = 2;
    for (int i = 0; i < 6; ++i) (x * 2).backward();
  });
}

TEST_CASE("the audit calls honest hooks now and then, and changes nothing") {
  on_each_backend([](const CompileOptions& options) {
    const AuditGuard audit(5);
    CompiledBackward scope(options);
    Tensor x = leaf(2);
    Scale hook;
    x.register_hook(hook);
    for (int k = 0; k < 21; ++k) {
      *hook.factor = k;
      x.reset_grad();
      (x * 3).backward();
      CHECK(value(x.grad()) == 3 * k);
    }
    CHECK(*hook.calls == 5);
    CHECK(scope.stats().graphs == 1);
  });
}

TEST_CASE("lifted numbers take part in arithmetic among numbers, and every pass reads them anew") {
  struct Affine {
    std::shared_ptr<Lifted> a, b;
    void compiled_args(CompiledNodeArgs& args) const {
      args.declare("affine");
      args.lift(*a);
      args.lift(*b);
    }
    Tensor operator()(const Tensor& g) const {
      return g * (Tensor(*a) * 2 + *b) + zeros_like(g) - *b;
    }
  };
  on_each_backend([](const CompileOptions& options) {
    Affine hook{std::make_shared<Lifted>(0.0), std::make_shared<Lifted>(0.0)};
    Tensor x = leaf(2), y = leaf(2);
    x.register_hook(hook);
    y.register_hook(hook);
    CompiledBackward scope(options);
    for (int i = 0; i < 5; ++i) {
      *hook.a = i * 0.25;
      *hook.b = 7.0 - i;
      x.reset_grad();
      y.reset_grad();
      (x * 3).backward();
      {
        // The same in eager mode.
        const engine::PassRunner* none = nullptr;
        engine::PassRunner* const outer =
            engine::set_pass_runner(const_cast<engine::PassRunner*>(none));
        (y * 3).backward();
        engine::set_pass_runner(outer);
      }
      CHECK(same_bits(x.grad(), y.grad()));
      CHECK(value(x.grad()) == 3 * (0.5 * i + 7.0 - i) - (7.0 - i));
    }
    CHECK(scope.stats().graphs == 1);
  });
}

TEST_CASE("what a declared hook does is kept as a graph that can be printed, read back and run") {
  struct Mix {
    Tensor other;
    std::shared_ptr<Lifted> k = std::make_shared<Lifted>(0.5);
    void compiled_args(CompiledNodeArgs& args) const {
      args.declare("mix");
      args.lift(other);
      args.lift(*k);
    }
    Tensor operator()(const Tensor& g) const {
      Tensor total = zeros_like(g);
      total.add_(g * *k);
      return total + other * 2;
    }
  };
  reset_compile_cache();
  CompiledBackward scope;
  Tensor x = ones({3}, requires_grad());
  x.register_hook(Mix{full({3}, 4.0)});
  for (int i = 0; i < 2; ++i) (x * 3).sum().backward();
  CHECK(values_of(x.grad()) == Values(3, 2 * (1.5 + 8)));
  const std::vector<Graph> bodies = capture::hook_bodies();
  REQUIRE(bodies.size() == 1);
  const std::string text =
      "graph(a: f32[3], b: f32[3], c: number) {\n"
      "  d = empty : f32[3]\n"
      "  fill_(d, 0)\n"
      "  e = mul(a, c) : f32[3]\n"
      "  add_(d, e)\n"
      "  f = mul(b, 2) : f32[3]\n"
      "  g = add(d, f) : f32[3]\n"
      "  return g\n"
      "}\n";
  CHECK(bodies[0].str() == text);
  const Graph again = Graph::parse(text);
  CHECK(again.str() == text);
  CHECK_FALSE(again.difference(bodies[0]));
  CHECK(values_of(again.run({ones({3}), full({3}, 4.0), wrap_number(0.25)})[0]) == Values(3, 8.25));
}

TEST_CASE("keys tell sequences of values apart (K1, K3)") {
  const std::pair<uint64_t, size_t> lengths[] = {
      {0, 1}, {252, 1}, {253, 3}, {65535, 3}, {65536, 5}, {4294967295, 5}, {4294967296, 9}};
  std::set<std::string> seen;
  for (const auto& [n, size] : lengths) {
    KeyWriter key;
    key.count(n);
    CHECK(key.bytes().size() == size);
    CHECK(seen.insert(key.bytes()).second);
    // No encoding is the beginning of another.
    for (const std::string& other : seen)
      if (other != key.bytes()) CHECK(key.bytes().compare(0, other.size(), other) != 0);
  }
  auto key_of = [](const auto&... values) {
    KeyWriter key;
    (key.value(values), ...);
    return key.bytes();
  };
  const std::string all[] = {key_of("ab", "c"),
                             key_of("a", "bc"),
                             key_of("abc"),
                             key_of(1, 2),
                             key_of(12),
                             key_of(-1),
                             key_of(1.0),
                             key_of(true),
                             key_of(1),
                             key_of(std::vector<int>{1, 2}),
                             key_of(std::vector<int>{1}, 2),
                             key_of(std::optional<int>()),
                             key_of(std::optional<int>(0)),
                             key_of(kFloat32, "x"),
                             key_of(std::map<std::string, int>{{"a", 1}})};
  CHECK(std::set<std::string>(std::begin(all), std::end(all)).size() == std::size(all));
  // Maps are written in the order of their keys.
  std::unordered_map<std::string, int> one{{"x", 1}, {"y", 2}, {"z", 3}},
      two{{"z", 3}, {"x", 1}, {"y", 2}};
  CHECK(key_of(one) == key_of(two));
  CHECK(key_of(one) == key_of(std::map<std::string, int>{{"x", 1}, {"y", 2}, {"z", 3}}));
}

TEST_CASE("declared keys of any length are told apart by all of their bytes (K2)") {
  struct Long {
    std::string text;
    double k;
    void compiled_args(CompiledNodeArgs& args) const { args.declare("long", text, k); }
    Tensor operator()(const Tensor& g) const { return g * k; }
  };
  CompiledBackward scope;
  for (const double k : {2.0, 3.0, 2.0}) {
    Tensor x = leaf(1);
    x.register_hook(Long{std::string(100000, 'a') + (k == 2 ? "b" : "c"), k});
    (x * 1).backward();
    CHECK(value(x.grad()) == k);
  }
}

TEST_CASE("what apply_with_saved swaps is put back, also after an exception (K5)") {
  struct Swaps : PostAccumulateGradHook {
    Tensor factor = tensor({3.0});
    double plain = 1;
    bool throws = false;
    void operator()(const Tensor& p) override {
      NoGradGuard no_grad;
      p.grad().detach().mul_(factor);
    }
    void apply_with_saved(Tensor& p, SwapSavedVariables& saved) override {
      saved.swap(factor, tensor({5.0}));
      saved.swap(factor, tensor({7.0}));
      saved.swap(plain, 2.0);
      (*this)(p);
      if (throws) throw std::runtime_error("on purpose");
    }
  };
  on_each_backend([](const CompileOptions& options) {
    auto hook = std::make_shared<Swaps>();
    const Tensor original = hook->factor;
    Tensor x = leaf(1);
    x.register_post_accumulate_grad_hook(hook);
    CompiledBackward scope(options);
    (x * 1).backward();
    CHECK(value(x.grad()) == 7);
    CHECK(hook->factor.is_same(original));
    hook->throws = true;
    CHECK_THROWS_WITH((x * 1).backward(), "on purpose");
    CHECK(hook->factor.is_same(original));
    CHECK(hook->plain == 1);
    CHECK(value(x.grad()) == 7);
  });
}
