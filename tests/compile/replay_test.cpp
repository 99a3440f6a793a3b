/// compile(fn, {.replay = true}): the body runs once per kind of arguments.
#include <thread>

#include "grapnel/compile/session.h"
#include "tests/compile/backends.h"
#include "tests/ops/error_text.h"
#include "tests/ops/sweep.h"

using namespace grapnel;

namespace {

CompileOptions replaying(CompileOptions options = {}) {
  options.replay = true;
  return options;
}

struct Audit {
  Audit() { set_replay_audit(true); }
  ~Audit() { set_replay_audit(false); }
};

struct Sums {
  Tensor sum, product;
  int64_t count = 0;
  static void visit(auto& self, auto&& fn) {
    fn(self.sum);
    fn(self.product);
    fn(self.count);
  }
};

}  // namespace

TEST_CASE(
    "a replayed function runs its body once for every kind of arguments, and computes every time") {
  on_each_backend([](CompileOptions options) {
    int calls = 0;
    auto f = compile(
        [&](const Tensor& x, double scale) {
          ++calls;
          return (x * scale).exp() + x;
        },
        replaying(options));
    for (int i = 0; i < 5; ++i) {
      const Tensor x = rand({4, 3});
      CHECK(f(x, 0.5).equal((x * 0.5).exp() + x));
    }
    CHECK(calls == 1);
    const Tensor x = rand({4, 3});
    CHECK(f(x, 0.25).equal((x * 0.25).exp() + x));
    CHECK(calls == 2);  // plain values are part of the kind
    CHECK(f(rand({7, 3}), 0.5).size(0) == 7);
    CHECK(calls == 3);  // so are sizes, though the graph is the same one
    CHECK(f(x.t(), 0.5).equal((x.t() * 0.5).exp() + x.t()));
    CHECK(calls == 4);
    CHECK(f.stats().graphs <= 2);
    f.reset();
    f(x, 0.5);
    CHECK(calls == 5);
  });
}

TEST_CASE(
    "results are new tensors each time; arguments and captured tensors that are returned are "
    "themselves") {
  const Tensor captured = rand({3});
  auto f = compile(
      [&](Tensor x) {
        return std::make_tuple(x + captured, x, x.slice(0, 1), captured, Tensor(), 7);
      },
      replaying());
  const Tensor a = rand({3}), b = rand({3});
  const auto first = f(a), second = f(b);
  CHECK(std::get<0>(first).equal(a + captured));
  CHECK(std::get<0>(second).equal(b + captured));
  CHECK_FALSE(std::get<0>(second).is_alias_of(std::get<0>(first)));
  CHECK(std::get<1>(second).is_same(b));
  CHECK(std::get<2>(second).is_alias_of(b));
  CHECK(std::get<2>(second).equal(b.slice(0, 1)));
  CHECK(std::get<3>(second).is_same(captured));
  CHECK_FALSE(std::get<4>(second).defined());
  CHECK(std::get<5>(second) == 7);
}

TEST_CASE("captured tensors are read as they are at each replay") {
  Tensor w = ones({3});
  auto f = compile([&](Tensor x) { return x * w; }, replaying());
  const Tensor x = rand({3});
  f(x);
  w.fill_(4.0);
  CHECK(f(x).equal(x * 4.0));
}

TEST_CASE("lists, tuples, optionals and structs pass through a replay") {
  int calls = 0;
  auto f = compile(
      [&](std::vector<Tensor> list, std::optional<Tensor> extra, std::string how) {
        ++calls;
        Sums p;
        p.sum = list[0] + list[1];
        p.product = extra ? list[0] * *extra : list[0] * list[1];
        p.count = static_cast<int64_t>(how.size());
        return p;
      },
      replaying());
  for (int i = 0; i < 3; ++i) {
    const Tensor a = rand({2}), b = rand({2}), c = rand({2});
    const Sums p = f(std::vector<Tensor>{a, b}, std::optional<Tensor>(c), std::string("four"));
    CHECK(p.sum.equal(a + b));
    CHECK(p.product.equal(a * c));
    CHECK(p.count == 4);
    CHECK(f(std::vector<Tensor>{a, b}, std::optional<Tensor>(), std::string("four"))
              .product.equal(a * b));
  }
  CHECK(calls == 2);
}

TEST_CASE("arguments that share memory are another kind") {
  int calls = 0;
  auto f = compile([&](Tensor a, Tensor b) { return ++calls, a * 2.0 + b; }, replaying());
  const Tensor a = rand({4}), b = rand({4});
  f(a, b);
  CHECK(f(a, a).equal(a * 2.0 + a));
  CHECK(f(b, a).equal(b * 2.0 + a));
  CHECK(calls == 2);
}

TEST_CASE("what no pure function does is refused, by name and line, and leaves nothing behind") {
  Tensor outside = zeros({3}), kept;
  const Tensor x = ones({3});
  const CompileOptions options = replaying();
  auto message = [&](auto fn) { return error_text([&] { compile(fn, options)(x); }); };
  CHECK(message([&](Tensor t) {
          return outside.add_(t), t * 2.0;
        }).find("replay: the function writes to a tensor from outside (add") == 0);
  CHECK(outside.equal(zeros({3})));
  CHECK(message([](Tensor t) {
          return t + rand({3});
        }).find("replay: the function draws random numbers (uniform") == 0);
  CHECK(message([](Tensor t) {
          return t * t.sum().item<float>();
        }).find("replay: the function looks at a value (item reads a value at ") == 0);
  CHECK(message([&](Tensor t) {
          return kept = t * 3.0, t * 2.0;
        }).find("replay: the function keeps a tensor that it does not return") == 0);
  CHECK(message([](Tensor t) {
          return invoke([](const Tensor& s) { return s; }, t) * 2.0;
        }).find("replay: the function calls code that is not recorded") == 0);
}

TEST_CASE("functions whose results require grad are refused") {
  const Tensor w = ones({3}, requires_grad());
  auto f = compile([&](Tensor x) { return x * w; }, replaying());
  CHECK_THROWS_WITH_AS(
      f(ones({3})), doctest::Contains("replay: the function returns a tensor that requires grad"),
      Error);
  {
    const NoGradGuard off;
    CHECK(f(ones({3})).equal(ones({3})));
    CHECK(f(ones({3})).equal(ones({3})));
  }
  CHECK_THROWS_AS(f(ones({3})), Error);  // not what was recorded without gradients
}

TEST_CASE("types that cannot be replayed are refused when they are used") {
  struct Opaque {
    int* pointer;
  };
  auto f = compile([](Tensor x, Opaque) { return x * 2.0; }, replaying());
  CHECK_THROWS_WITH_AS(f(ones({2}), Opaque{nullptr}),
                       doctest::Contains("replay: arguments and results have to be tensors"),
                       Error);
}

TEST_CASE("audit mode notices a function that is not pure") {
  const Audit audit;
  const Tensor x = rand({3});
  double scale = 1;
  auto numbers = compile([&](Tensor t) { return t * scale; }, replaying());
  numbers(x);
  CHECK(numbers(x).equal(x));
  scale = 2;
  CHECK_THROWS_WITH_AS(
      numbers(x), doctest::Contains("replay audit: call 0, mul: operand 1 is 2.0, was 1.0, at "),
      Error);
  Tensor w = rand({3});
  auto tensors = compile([&](Tensor t) { return t + w; }, replaying());
  tensors(x);
  w = rand({3});
  CHECK_THROWS_WITH_AS(tensors(x), doctest::Contains("operand 1 is another tensor from outside"),
                       Error);
  bool more = false;
  auto calls = compile([&](Tensor t) { return more ? (t + 1.0).exp() : t + 1.0; }, replaying());
  calls(x);
  more = true;
  CHECK_THROWS_WITH_AS(calls(x), doctest::Contains("call 1, exp, is new: there were 1 calls, at "),
                       Error);
  int count = 0;
  auto plain = compile([&](Tensor t) { return std::make_pair(t * 2.0, ++count); }, replaying());
  plain(x);
  CHECK_THROWS_WITH_AS(plain(x), doctest::Contains("other plain values"), Error);
}

TEST_CASE("what is replayed is kept as a graph of the arguments") {
  const Tensor w = rand({3});
  auto session = std::make_shared<compiler::Session>(replaying());
  compiler::Replays replays(session);
  auto body = [&](const Tensor& x, const Tensor& y) { return std::make_pair((x + w) * 2.0, y); };
  using Result = std::pair<Tensor, Tensor>;
  const Tensor x = rand({3}), y = rand({2});
  for (int i = 0; i < 2; ++i)
    compiler::replay<Result, const Tensor&, const Tensor&>(replays, body, x, y);
  REQUIRE(replays.graphs().size() == 1);
  const Graph graph = replays.graphs()[0];
  CHECK(graph.str() ==
        "graph(a: f32[3], b: f32[2]) {\n"
        "  c = constant : f32[3]\n"
        "  d = add(a, c) : f32[3]\n"
        "  e = mul(d, 2.0) : f32[3]\n"
        "  return e, b\n"
        "}\n");
  CHECK(graph.run({x, y})[0].equal((x + w) * 2.0));
}

TEST_CASE("several threads may replay one function") {
  auto f = compile([](Tensor x) { return (x * 2.0).tanh() + x.sum(); }, replaying());
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        const Tensor x = full({50}, 0.01 * (t * 20 + i));
        if (!f(x).equal((x * 2.0).tanh() + x.sum())) ++wrong;
      }
    });
  for (std::thread& t : threads) t.join();
  CHECK(wrong == 0);
}

TEST_CASE("inside another recording a replayed function is part of it") {
  int calls = 0;
  auto inner = compile([&](Tensor x) { return ++calls, x * 2.0; }, replaying());
  auto outer = compile([&](Tensor x) { return inner(x) + 1.0; });
  for (int i = 0; i < 3; ++i) CHECK(outer(ones({2})).equal(full({2}, 3.0)));
  CHECK(calls == 3);
  CHECK(outer.stats().graphs == 1);
}

TEST_CASE("the type that autocast lowers to is another kind of call") {
  const Tensor a = rand({4, 4});
  auto f = compile([](Tensor x) { return matmul(x, x); }, replaying());
  for (const DType type : {kBFloat16, kFloat16, kFloat32}) {
    const Autocast scope(type);
    CHECK(f(a).dtype() == matmul(a, a).dtype());
  }
}

TEST_CASE("memory of the caller's is read as it is at each replay") {
  float buffer[] = {1, 2};
  const Tensor w = from_blob(buffer, {2}), x = ones({2});
  auto f = compile([w](Tensor t) { return t * w; }, replaying());
  CHECK(f(x).equal(tensor({1.0f, 2.0f})));
  buffer[0] = 5;
  CHECK(f(x).equal(tensor({5.0f, 2.0f})));
}

TEST_CASE("a captured tensor stays itself where the first call's argument shares its memory") {
  on_each_backend([](CompileOptions options) {
    const Tensor w = tensor({2.0, 3.0}), x = tensor({10.0, 20.0});
    auto f = compile([&](const Tensor& a) { return a * w; }, replaying(options));
    CHECK(f(w).equal(tensor({4.0, 9.0})));
    CHECK(f(x).equal(tensor({20.0, 60.0})));
    CHECK(f(w).equal(tensor({4.0, 9.0})));
    // Views of it, of the same kind.
    const Tensor table = arange(4.0).reshape({2, 2});
    auto g = compile([&](Tensor row) { return row + table.sum(0); }, replaying(options));
    CHECK(g(table[0]).equal(tensor({2.0, 5.0})));
    CHECK(g(tensor({1.0, 1.0})).equal(tensor({3.0, 5.0})));
    CHECK(g(table[1]).equal(tensor({4.0, 7.0})));
  });
}

TEST_CASE("each argument is itself and nothing else, also in lists, spans and structs") {
  int calls = 0;
  const Tensor w = rand({3}), x = rand({3}), y = rand({3});
  auto list =
      compile([&](const std::vector<Tensor>& t) { return ++calls, t[0] * w + t[1]; }, replaying());
  CHECK(list(std::vector<Tensor>{w, x}).equal(w * w + x));
  CHECK(list(std::vector<Tensor>{x, w}).equal(x * w + w));
  CHECK(list(std::vector<Tensor>{x, y}).equal(x * w + y));
  auto span = compile([&](TensorList t) { return ++calls, t[0] * w + t[1]; }, replaying());
  const Tensor first[] = {w, x}, second[] = {y, x};
  CHECK(span(TensorList(first)).equal(w * w + x));
  CHECK(span(TensorList(second)).equal(y * w + x));
  CHECK(calls == 2);
  CHECK(first[0].is_same(w));
  auto shared = compile([&](Tensor a, Tensor b) { return a * b + w; }, replaying());
  CHECK(shared(w, w).equal(w * w + w));
  CHECK(shared(x, x).equal(x * x + w));
  CHECK(shared(x, w).equal(x * w + w));
  auto optional =
      compile([&](std::optional<Tensor> a) { return a ? *a * w : w * 2.0; }, replaying());
  CHECK(optional(std::optional<Tensor>(w)).equal(w * w));
  CHECK(optional(std::optional<Tensor>(x)).equal(x * w));
}

TEST_CASE("what the first call returns are the arguments and captured tensors themselves") {
  const Tensor w = rand({3});
  auto f = compile([&](Tensor a) { return std::make_tuple(a, a.slice(0, 1), w, w.slice(0, 2)); },
                   replaying());
  const Tensor x = rand({3});
  for (const Tensor& argument : {w, x, w}) {
    const auto [same, part, captured, captured_part] = f(argument);
    CHECK(same.is_same(argument));
    CHECK(part.is_alias_of(argument));
    CHECK(part.equal(argument.slice(0, 1)));
    CHECK(captured.is_same(w));
    CHECK(captured_part.is_alias_of(w));
  }
}

TEST_CASE("audit mode tells an argument from a captured tensor over the same memory") {
  const Audit audit;
  const Tensor w = rand({3});
  bool swapped = false;
  auto f = compile([&](Tensor a) { return swapped ? w * a : a * w; }, replaying());
  f(w);
  CHECK_NOTHROW(f(w));
  CHECK_NOTHROW(f(rand({3})));
  swapped = true;
  CHECK_THROWS_WITH_AS(f(w), doctest::Contains("is another tensor from outside"), Error);
}

TEST_CASE("a plain number that comes as a tensor is part of the kind of arguments") {
  int calls = 0;
  auto f = compile([&](Tensor a, Tensor scale) { return ++calls, a * scale; }, replaying());
  const Tensor x = rand({3});
  CHECK(f(x, wrap_number(2.0)).equal(x * 2.0));
  CHECK(f(x, wrap_number(3.0)).equal(x * 3.0));
  CHECK(f(x, wrap_number(2.0)).equal(x * 2.0));
  CHECK(calls == 2);
}
