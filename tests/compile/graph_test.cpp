/// Graphs as values: their text, reading it back, running them.
#include "tests/compile/backends.h"
#include "tests/ops/sweep.h"

using namespace grapnel;

TEST_CASE("a traced function prints as a graph") {
  const Graph g =
      trace([](Tensor a, Tensor b) { return sigmoid(a + b); }, {ones({8, 64}), ones({64})});
  CHECK(g.str() ==
        "graph(a: f32[8,64], b: f32[64]) {\n"
        "  c = add(a, b) : f32[8,64]\n"
        "  d = sigmoid(c) : f32[8,64]\n"
        "  return d\n"
        "}\n");
  g.verify();
}

TEST_CASE("views, numbers, attributes, constants and writes stand in the text") {
  const Tensor w = ones({3, 2});
  const Graph g = trace(
      [&](Tensor x) {
        Tensor y = x.matmul(w.t()) * 2.0;
        y.add_(1);
        return std::vector<Tensor>{y.sum({0}, true), x};
      },
      {ones({4, 2})});
  CHECK(g.str() ==
        "graph(a: f32[4,2]) {\n"
        "  b = constant : f32[3,2]\n"
        "  c = transpose(b, dim0=0, dim1=1) : f32[2,3]\n"
        "  d = matmul(a, c, a_by_columns=false, b_by_columns=true) : f32[4,3]\n"
        "  e = mul(d, 2.0) : f32[4,3]\n"
        "  add_(e, 1)\n"
        "  f = sum(e, dims=[0], keepdim=true) : f32[1,3]\n"
        "  return f, a\n"
        "}\n");
}

TEST_CASE("tracing computes nothing and changes nothing") {
  Tensor p = ones({2});
  const Graph g = trace(
      [&](Tensor x) {
        p.add_(x);
        return p * 2.0;
      },
      {ones({2})});
  CHECK(p[0].item<float>() == 1.0f);
  CHECK(p._version() == 0);
  CHECK(g.count("add") == 1);
  CHECK_THROWS_WITH_AS(trace([](Tensor x) { return x * x.sum().item<float>(); }, {ones({2})}),
                       doctest::Contains("trace: item reads a value"), Error);
}

TEST_CASE("every op: its graph reads back to the same text and runs to the same bits") {
  for_each_sample([](const Op& op, const Sample& sample) {
    if (op.random) return;  // changes its argument in place
    // Numbers and absent inputs are no arguments of a graph.
    std::vector<Tensor> arguments;
    auto is_argument = [](const Tensor& t) { return t.defined() && !t.impl().wrapped_number; };
    for (const Tensor& t : sample.inputs)
      if (is_argument(t)) arguments.push_back(t);
    const Graph g = trace(
        [&](const std::vector<Tensor>& x) {
          std::vector<Tensor> all = sample.inputs;
          size_t next = 0;
          for (Tensor& t : all)
            if (is_argument(t)) t = x[next++];
          const Outputs out = run_op(op, all, sample.attrs.get());
          return std::vector<Tensor>(out.begin(), out.end());
        },
        arguments);
    g.verify();
    const Graph again = Graph::parse(g.str());
    CHECK(again.str() == g.str());
    const Outputs want = run_op(op, sample);
    const std::vector<Tensor> first = g.run(arguments), second = again.run(arguments);
    for (size_t i = 0; i < want.size(); ++i) {
      CHECK(same_bits(first[i], want[i]));
      CHECK(same_bits(second[i], want[i]));
    }
  });
}

TEST_CASE("text that is no graph is refused with the line") {
  CHECK_THROWS_WITH_AS(
      Graph::parse("graph(a: f32[2]) {\n  b = nonsense(a) : f32[2]\n  return b\n}"),
      doctest::Contains("line 2: there is no op \"nonsense\""), Error);
  CHECK_THROWS_WITH_AS(Graph::parse("graph(a: f32[2]) {\n  b = neg(c) : f32[2]\n"),
                       doctest::Contains("\"c\" is not assigned"), Error);
  CHECK_THROWS_WITH_AS(Graph::parse("graph(a: f33[2]) {"), doctest::Contains("there is no type"),
                       Error);
  CHECK_THROWS_WITH_AS(Graph::parse("graph(a: f32[2], a: f32[2]) {"),
                       doctest::Contains("assigned twice"), Error);
  CHECK_THROWS_AS(Graph::parse("graph(a: f32[2]) { b = add(a, a) : f32[3] return b }"),
                  InternalError);
  CHECK_THROWS_AS(Graph::parse(""), Error);
  CHECK_THROWS_WITH_AS(Graph::parse("graph(a: f32[2]) { none = relu(a) : none return a }"),
                       doctest::Contains("\"relu\" always has a result"), Error);
  CHECK_THROWS_WITH_AS(
      Graph::parse(
          "graph(a: f32[2,2]) { matmul(a, a, a_by_columns=false, b_by_columns=false) return a }")
          .run({ones({2, 2})}),
      doctest::Contains("matmul has 1 results, and the graph names 0"), Error);
}

TEST_CASE("a graph is drawn with its writes and invoked functions marked") {
  const Graph g = trace(
      [](Tensor x) {
        Tensor y = x + 1.0;
        y.mul_(2.0);
        return invoke([](const Tensor& t) { return t * 1.0; }, y);
      },
      {ones({2})});
  const std::string text = g.dot();
  CHECK(text.find("digraph") == 0);
  CHECK(text.find("label=\"mul_\", color") != std::string::npos);
  CHECK(text.find("label=\"invoke\", color") != std::string::npos);
}
