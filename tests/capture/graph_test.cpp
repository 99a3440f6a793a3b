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

TEST_CASE(
    "names follow the order of the text, wherever constants and fresh memory were seen first") {
  const Tensor w = ones({2});
  const Graph g = trace([&](Tensor x) { return (x * 2.0 + w).sum(); }, {ones({2})});
  CHECK(g.str() ==
        "graph(a: f32[2]) {\n"
        "  b = constant : f32[2]\n"
        "  c = mul(a, 2.0) : f32[2]\n"
        "  d = add(c, b) : f32[2]\n"
        "  e = sum(d, dims=[0], keepdim=false) : f32[]\n"
        "  return e\n"
        "}\n");
  CHECK(Graph::parse(g.str()).str() == g.str());

  // A text that assigns memory late is printed with it in front, and stays as it is from there on.
  const Graph late = Graph::parse(
      "graph(x: f32[2]) { y = mul(x, 1.0) : f32[2]  m = empty : f32[2]  fill_(m, 3.0)"
      "  k = constant : f32[2]  z = add(m, k) : f32[2]  return y, z }");
  CHECK(late.str() ==
        "graph(a: f32[2]) {\n"
        "  b = empty : f32[2]\n"
        "  c = constant : f32[2]\n"
        "  d = mul(a, 1.0) : f32[2]\n"
        "  fill_(b, 3.0)\n"
        "  e = add(b, c) : f32[2]\n"
        "  return d, e\n"
        "}\n");
  CHECK(Graph::parse(late.str()).str() == late.str());
  CHECK(late.name_of(late.calls().outputs_of(late.instructions()[0])[0]) == "d");
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
  CHECK_THROWS_WITH_AS(Graph::parse("graph(a: f32[2]) { b = add(a, a) : f32[3] return b }"),
                       doctest::Contains("Graph::parse: the text is no graph: "), Error);
  CHECK_THROWS_AS(Graph::parse(""), Error);
  CHECK_THROWS_WITH_AS(Graph::parse("graph(a: f32[2]) { none = relu(a) : none return a }"),
                       doctest::Contains("\"relu\" always has a result"), Error);
  CHECK_THROWS_WITH_AS(
      Graph::parse(
          "graph(a: f32[2,2]) { matmul(a, a, a_by_columns=false, b_by_columns=false) return a }")
          .run({ones({2, 2})}),
      doctest::Contains("matmul has 1 results, and the graph names 0"), Error);
}

TEST_CASE("a graph that was read from text refuses the types that its ops refuse") {
  const Tensor mask = tensor({true, false});
  const auto run = [&](const std::string& call) {
    Graph::parse("graph(a: bool[2]) { b = " + call + " : bool[2] return b }").run({mask});
  };
  CHECK_THROWS_WITH_AS(run("neg(a)"), doctest::Contains("neg: not defined for bool"), Error);
  CHECK_THROWS_WITH_AS(run("sub(a, a)"), doctest::Contains("sub: not defined for bool"), Error);
}

TEST_CASE("no text makes a graph that leads outside of memory") {
  const auto run = [](const std::string& call, const std::string& type) {
    const std::string text = "graph(a: f32[2,2]) { b = " + call + " : " + type + " return b }";
    return Graph::parse(text).run({ones({2, 2})})[0].clone();
  };
  CHECK_THROWS_AS(run("slice(a, dim=0, start=0, end=1000000, step=1)", "f32[2,2]"), Error);
  CHECK_THROWS_AS(run("slice(a, dim=7, start=0, end=1, step=1)", "f32[2,2]"), Error);
  CHECK_THROWS_AS(run("slice(a, dim=0, start=0, end=1, step=0)", "f32[2,2]"), Error);
  CHECK_THROWS_AS(run("select(a, dim=0, index=100000000)", "f32[2]"), Error);
  CHECK_THROWS_AS(run("permute(a, dims=[5,7])", "f32[2,2]"), Error);
  CHECK_THROWS_AS(run("transpose(a, dim0=100000, dim1=1)", "f32[2,2]"), Error);
  CHECK_THROWS_AS(run("expand(a, sizes=[5])", "f32[5]"), Error);
  CHECK_THROWS_AS(run("squeeze(a, dims=[0,1,2,3,4])", "f32[]"), Error);
  CHECK_THROWS_AS(run("sum(a, dims=[9,100], keepdim=false)", "f32[]"), Error);
  CHECK_THROWS_AS(run("unbind(a, dim=77)", "f32[2]"), Error);
  CHECK_THROWS_AS(run("split(a, dim=0, size=0)", "f32[2,2]"), Error);
  CHECK_THROWS_AS(run("gather(a, a, dim=50)", "f32[2,2]"), Error);
  CHECK_THROWS_AS(run("slice_backward(a, sizes=[1], dim=0, start=0, end=4, step=1)", "f32[1]"),
                  Error);
  CHECK_THROWS_AS(run("as_strided(a, base_sizes=[2,2], base_strides=[2,1], base_offset=0, "
                      "sizes=[1000000], strides=[1], offset=0)",
                      "f32[1000000]"),
                  Error);
  CHECK_THROWS_WITH_AS(
      Graph::parse("graph(a: f32[2]) { sort_(a, dim=0, descending=false) return a }"),
      doctest::Contains("\"sort_\" does not work in place"), Error);
  CHECK_THROWS_AS(Graph::parse("graph(a: f32[4611686018427387904,4]) { return a }"), Error);
  CHECK_THROWS_WITH_AS(run("sum(a, dims=[0], keepdim=true)", "f32[2]"),
                       doctest::Contains("Graph::parse: the text is no graph"), Error);
  CHECK_THROWS_WITH_AS(run("transpose(a, dim0=0, dim1=1)", "f32[4]"),
                       "Graph::run: transpose gives f32[2, 2], and the graph says f32[4].", Error);
}

TEST_CASE("a graph that runs on a smaller input than it was traced with says what does not fit") {
  const Graph part = trace([](Tensor x) { return x.narrow(0, 100, 50) * 2.0; }, {ones({150})});
  CHECK(part.run({ones({150})})[0].equal(full({50}, 2.0)));
  CHECK_THROWS_WITH_AS(part.run({ones({4})}),
                       doctest::Contains("slice: elements 100 to 150 are asked for, but dimension "
                                         "0 has 4 (shape [4])"),
                       Error);
  const Graph one = trace([](Tensor x) { return x[40] + 1.0; }, {ones({41})});
  CHECK_THROWS_WITH_AS(one.run({ones({4})}),
                       doctest::Contains("select: index 40 is out of range for dimension 0"),
                       Error);
  // Where every op allows it, sizes are free.
  const Graph whole = trace(
      [](Tensor x) {
        const Tensor both[] = {x * 2.0, x.exp()};
        return cat(both, 0).sum();
      },
      {ones({3})});
  Tensor x = rand({5}, requires_grad());
  const Tensor y = whole.run({x})[0];
  CHECK(y.allclose((x * 2.0).sum() + x.exp().sum()));
  y.backward();
  CHECK(x.grad().allclose(x.detach().exp() + 2.0));
}

TEST_CASE("constants of a graph that was read from text need values before it runs") {
  const Tensor w = tensor({2.0, 3.0});
  const Graph g = trace([&](Tensor x) { return x * w + 1.0; }, {ones({2})});
  CHECK(g.run({ones({2})})[0].equal(tensor({3.0, 4.0})));
  Graph again = Graph::parse(g.str());
  CHECK(again.str() == g.str());
  CHECK_THROWS_WITH_AS(again.run({ones({2})}),
                       doctest::Contains("Graph::run: the values of constant b, f32[2], are not "
                                         "known: the text of a graph does not hold them.\nGive it "
                                         "some with set_constant(\"b\", tensor)"),
                       Error);
  CHECK_THROWS_WITH_AS(again.set_constant("b", ones({3})),
                       "Graph::set_constant: b is f32[2], got f32[3].", Error);
  CHECK_THROWS_WITH_AS(again.set_constant("a", w),
                       doctest::Contains("the graph has no constant \"a\""), Error);
  again.set_constant("b", w);
  CHECK(again.run({ones({2})})[0].equal(tensor({3.0, 4.0})));
}

TEST_CASE("the name of a hook does not change what its graph says") {
  const Tensor w = ones({4}, requires_grad());
  w.register_hook([](const Tensor& g) { return g * 2.0; }, {"a\n  return a\n}\n#"});
  const Graph g =
      trace([&](Tensor x) { return autograd::grad({(w * x).sum()}, {w})[0]; }, {ones({4})});
  CHECK(g.str().find("a\\n  return a\\n}\\n#") != std::string::npos);
  Graph again = Graph::parse(g.str());
  CHECK(again.instructions().size() == g.instructions().size());
  CHECK(again.outputs() == g.outputs());
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
