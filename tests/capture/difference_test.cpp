/// Graph::difference: one text for everybody who compares what was recorded.
#include <doctest/doctest.h>

#include "grapnel/grapnel.h"

using namespace grapnel;

namespace {

Graph parse(const std::string& body, const std::string& inputs = "a: f32[2], b: f32[2]") {
  return Graph::parse("graph(" + inputs + ") {" + body + "}");
}
std::string difference(const std::string& now, const std::string& before) {
  return parse(now).difference(parse(before)).str();
}

}  // namespace

TEST_CASE("graphs that do the same do not differ, whatever their values are called") {
  const char* const text = "c = mul(a, 2.0) : f32[2] d = add(c, b) : f32[2] return d";
  CHECK(difference(text, text).empty());
  CHECK(difference("y = mul(a, 2.0) : f32[2] x = add(y, b) : f32[2] return x", text).empty());
  // A constant that only one of them has moves the names of all that follow it.
  CHECK(difference("k = constant : f32[2] c = mul(a, 2.0) : f32[2] d = add(c, k) : f32[2] return d",
                   text) == "call 1, add: operand 1 is another tensor from outside");
}

TEST_CASE("the first difference is named: the call, its operands, attributes and results") {
  const char* const text =
      "c = mul(a, 2.0) : f32[2] d = sum(c, dims=[0], keepdim=false) : f32[] return d";
  auto now = [&](const char* changed) { return difference(changed, text); };
  CHECK(now("c = add(a, 2.0) : f32[2] d = sum(c, dims=[0], keepdim=false) : f32[] return d") ==
        "call 0 is add, was mul");
  CHECK(now("c = mul(a, 3.0) : f32[2] d = sum(c, dims=[0], keepdim=false) : f32[] return d") ==
        "call 0, mul: operand 1 is 3.0, was 2.0");
  CHECK(now("c = mul(b, 2.0) : f32[2] d = sum(c, dims=[0], keepdim=false) : f32[] return d") ==
        "call 0, mul: operand 0 is another value");
  CHECK(now("c = mul(a, 2.0) : f32[2] d = sum(a, dims=[0], keepdim=false) : f32[] return d") ==
        "call 1, sum: operand 0 is another value");
  CHECK(now("c = mul(a, 2.0) : f32[2] d = sum(c, dims=[0], keepdim=true) : f32[1] return d") ==
        "call 1, sum: now with dims=[0], keepdim=true, before with dims=[0], keepdim=false");
  CHECK(now("c = mul(a, 2.0) : f32[2] return c") == "call 1, sum, is missing: there are 1 calls");
  CHECK(now("c = mul(a, 2.0) : f32[2] d = sum(c, dims=[0], keepdim=false) : f32[]"
            "e = neg(d) : f32[] return e") == "call 2, neg, is new: there were 2 calls");
  CHECK(now("c = mul(a, 2.0) : f32[2] d = sum(c, dims=[0], keepdim=false) : f32[] return c") ==
        "result 0 is another value");
  CHECK(now("c = mul(a, 2.0) : f32[2] d = sum(c, dims=[0], keepdim=false) : f32[] return d, d") ==
        "it returns 2 results, returned 1");
  CHECK(now("mul_(a, 2.0) d = sum(a, dims=[0], keepdim=false) : f32[] return d") ==
        "call 0 is mul_, was mul");
}

TEST_CASE("graphs of other inputs differ in them") {
  const Graph one = parse("return a", "a: f32[2]");
  CHECK(one.difference(parse("return a", "a: f32[3]")).str() == "input 0 is f32[2], was f32[3]");
  CHECK(one.difference(parse("return a", "a: number")).str() == "input 0 is f32[2], was number");
  CHECK(one.difference(parse("return a", "a: f32[2], none")).str() == "it takes 1 inputs, took 2");
  CHECK(parse("return a", "a: f32[2], none").str() == "graph(a: f32[2], none) {\n  return a\n}\n");
}

TEST_CASE(
    "a difference says where the call was recorded, and tensors from outside count by memory") {
  const Tensor x = ones({2});
  Tensor w = rand({2});
  auto graph = [&] { return trace([&](Tensor t) { return t + w; }, {x}); };
  const Graph before = graph();
  CHECK_FALSE(graph().difference(before));
  w = w.clone();
  const std::string text = graph().difference(before).str();
  CHECK(text.find("call 0, add: operand 1 is another tensor from outside, at ") == 0);
  CHECK(text.find("difference_test.cpp") != std::string::npos);
}

TEST_CASE("a tensor that is given twice is two inputs of its graph") {
  const Tensor x = ones({2});
  const Graph g = trace([](Tensor a, Tensor b) { return a + b; }, {x, x});
  CHECK(g.str() == "graph(a: f32[2], b: f32[2]) {\n  c = add(a, a) : f32[2]\n  return c\n}\n");
  CHECK_NOTHROW(g.verify());
}
