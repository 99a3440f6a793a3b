/// Errors of ops say where the user called which op.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "grapnel/base/place.h"
#include "grapnel/capture/graph.h"
#include "grapnel/compile/compile.h"
#include "grapnel/compile/trace.h"
#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"
#include "tests/ops/error_text.h"
#include "tests/ops/sweep.h"

namespace grapnel {

namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}
std::string here(int line) { return str("error_place_test.cpp:", line, " ("); }

struct UserCall {
  int line;
  std::function<Tensor()> run;
};
#define CALL(...)                                     \
  UserCall {                                          \
    __LINE__, [=]() -> Tensor { return __VA_ARGS__; } \
  }

/// A copy of `x` after fn(copy).
template <class Fn>
Tensor changed(const Tensor& x, Fn&& fn) {
  Tensor copy = x.clone();
  fn(copy);
  return copy;
}

/// Calls that fail, of every family of ops.
std::vector<UserCall> bad_calls() {
  const Tensor x = ones({2, 3}), y = ones({4, 5}), i = tensor({{0, 9}}), whole = tensor({1, 2});
  return {
      CALL(x + y),
      CALL(x * y),
      CALL(x - y),
      CALL(x / y),
      CALL(x < y),
      CALL(x == y),
      CALL(x.add(y, 0.5)),
      CALL(changed(x, [&](Tensor& t) { t += y; })),
      CALL(x.pow(y)),
      CALL(where(x > 0, x, y)),
      CALL(clamp(x)),
      CALL(x.masked_fill(y > 0, 1.0)),
      CALL(matmul(x, y)),
      CALL(x.mm(y)),
      CALL(bmm(x, y)),
      CALL(mv(x, y)),
      CALL(dot(x, y)),
      CALL(linear(x, y)),
      CALL(addmm(x, x, y)),
      CALL(einsum("ij,jk->ik", {x, y})),
      CALL(x.sum(5)),
      CALL(x.mean({0, 7})),
      CALL(std::get<0>(x.max(4))),
      CALL(x.argmax(3)),
      CALL(x.softmax(9)),
      CALL(log_softmax(x, -4)),
      CALL(x.cumsum(2)),
      CALL(zeros({3, -1})),
      CALL(ones({-4})),
      CALL(full({-4}, 0.5)),
      CALL(x.view({7})),
      CALL(x.view_as(y)),
      CALL(x.reshape({5, -1})),
      CALL(x.transpose(0, 5)),
      CALL(x.permute({0, 0})),
      CALL(x.squeeze(8)),
      CALL(x.unsqueeze(8)),
      CALL(x.select(0, 12)),
      CALL(x.narrow(1, 2, 9)),
      CALL(x.expand({3, 3})),
      CALL(x[11]),
      CALL(cat({x, y})),
      CALL(stack({x, y})),
      CALL(x.gather(1, i)),
      CALL(x.index_select(0, tensor({8}))),
      CALL(x.gather(0, x)),
      CALL(embedding(x, tensor({44}))),
      CALL(conv2d(x, y)),
      CALL(max_pool2d(x, {2})),
      CALL(layer_norm(x, {7})),
      CALL(dropout(x, 1.5)),
      CALL(mse_loss(x, y)),
      CALL(cross_entropy(x, tensor({7, 0}))),
      CALL(x.to(kFloat64).copy_(y)),
  };
}

}  // namespace

TEST_CASE("an error of an op names the line of the call, in a few lines") {
  for (const UserCall& call : bad_calls()) {
    const std::string text = full_error_text(call.run);
    CAPTURE(call.line);
    CAPTURE(text);
    CHECK(contains(text, "\n  at "));
    CHECK(contains(text, here(call.line)));
    CHECK(text.size() < 1000);
    CHECK(std::count(text.begin(), text.end(), '\n') < 5);
    CHECK(!contains(text, "grapnel::"));
  }
}

TEST_CASE("an error of an op that is recorded names the line of the call") {
  for (const UserCall& call : bad_calls()) {
    const std::string text = full_error_text([&] { compile([&] { return call.run(); })(); });
    CAPTURE(call.line);
    CAPTURE(text);
    CHECK(contains(text, here(call.line)));
    CHECK(std::count(text.begin(), text.end(), '\n') < 5);
  }
}

TEST_CASE("an error that depends on values names the line of the call, whoever runs it when") {
  const Tensor scores = ones({2, 4}, requires_grad()), table = ones({3, 2});
  const auto text_of = [](bool compiled, const std::function<Tensor()>& fn) {
    return full_error_text([&] {
      if (compiled) compile([&] { return fn().detach(); })();
      else fn();
    });
  };
  for (const bool compiled : {false, true}) {
    CAPTURE(compiled);
    int line = __LINE__ + 1;
    std::string text = text_of(compiled, [&] { return cross_entropy(scores, tensor({7, 0})); });
    CAPTURE(text);
    CHECK(contains(text, here(line)));
    CHECK(text.starts_with("cross_entropy: in "));
    CHECK(contains(text, "7"));

    line = __LINE__ + 1;
    text = text_of(compiled, [&] { return table.index_select(0, tensor({0, 5})) * 2; });
    CAPTURE(text);
    CHECK(contains(text, here(line)));
    CHECK(text.starts_with("index_select: "));
    CHECK(std::count(text.begin(), text.end(), '\n') < 5);
  }
}

TEST_CASE("an op that fails in another op comes first in the message") {
  const Tensor x = ones({2, 3}), y = ones({4, 5});
  CHECK(error_text([&] { mse_loss(x, y); }).starts_with("mse_loss: "));
  CHECK(error_text([&] { x.lerp(y, 0.5); }).starts_with("lerp: "));
  CHECK(error_text([] { zeros({-1}); }).starts_with("zeros: in empty: "));
  CHECK(error_text([] { ones({2, -3}); }).starts_with("ones: in empty: "));
  CHECK(error_text([] { full({-2}, 7); }).starts_with("full: in empty: "));
  CHECK(error_text([&] { x.view_as(y); }).starts_with("view_as: in view: "));
  CHECK(error_text([&] { x.reshape_as(y); }).starts_with("reshape_as: in view: "));
  CHECK(error_text([&] { x.expand_as(y); }).starts_with("expand_as: in expand: "));
  // An operator has no name to say, and a method has that of its op.
  CHECK(error_text([&] { x* y; }).starts_with("mul: "));
  CHECK(error_text([&] { x.clone().mul_(y); }).starts_with("mul"));
}

TEST_CASE("every operator and method remembers the line of the call") {
  const Tensor a = ones({2}, requires_grad()), b = ones({2}, requires_grad());
  const std::vector<UserCall> calls = {
      CALL(a * b),
      CALL(a + b),
      CALL(a - b),
      CALL(a / b),
      CALL(a * 2.0),
      CALL(a + 2.0),
      CALL(a - 2.0),
      CALL(a / 2.0),
      CALL(2.0 * a),
      CALL(2.0 + a),
      CALL(2.0 - a),
      CALL(2.0 / a),
      CALL(-a),
      CALL(changed(a, [&](Tensor& t) { t += b; })),
      CALL(changed(a, [&](Tensor& t) { t -= b; })),
      CALL(changed(a, [&](Tensor& t) { t *= 2.0; })),
      CALL(changed(a, [&](Tensor& t) { t /= 2.0; })),
      CALL(a.mul(2.0)),
      CALL(mul(a, 2.0)),
      CALL(mul(2.0, a)),
      CALL(div(a, 2.0)),
      CALL(sub(a, b, 2.0)),
      CALL(a.sub(1.0)),
      CALL(a.neg()),
      CALL(neg(a)),
      CALL(a.pow(2)),
      CALL(pow(a, 2)),
      CALL(a.square()),
      CALL(a.exp()),
      CALL(exp(a)),
      CALL(a.sum()),
      CALL(sum(a)),
      CALL(a.view({2, 1})),
      CALL(a.clamp(0, 1)),
      CALL(minimum(a, b)),
      CALL(a.softmax(0)),
      CALL(a.norm()),
      CALL(a.lerp(b, 0.5)),
      CALL(where(a > 0, a, b)),
      CALL(cat({a, b})),
      CALL(mse_loss(a, b)),
      CALL(dropout(a, 0.5)),
      CALL(layer_norm(a, {2})),
      CALL(a.view_as(b)),
      CALL(a.reshape_as(b)),
      CALL(a.expand_as(b)),
#ifdef __OPTIMIZE__
      // Methods in headers are functions of their own in code that is not optimised.
      CALL(a[0]),
      CALL(a.clamp_min(0)),
      CALL(a.std()),
      CALL(a.var(false)),
#endif
  };
  for (const UserCall& call : calls) {
    const std::string where = call.run().grad_fn()->where();
    CAPTURE(call.line);
    CAPTURE(where);
    CHECK(contains(where, here(call.line)));
  }
}

TEST_CASE("every comparison remembers the line of the call") {
  const Tensor a = ones({2}), b = ones({2});
  const std::vector<UserCall> calls = {
      CALL(a < b),    CALL(a <= b),     CALL(a > b),    CALL(a >= b),    CALL(a == b),
      CALL(a != b),   CALL(a < 2.0),    CALL(a <= 2.0), CALL(a > 2.0),   CALL(a >= 2.0),
      CALL(a == 2.0), CALL(a != 2.0),   CALL(a.lt(b)),  CALL(a.lt(2.0)), CALL(lt(a, b)),
      CALL(a.eq(b)),  CALL(eq(a, 2.0)), CALL(!(a > b)),
  };
  for (const UserCall& call : calls) {
    const std::string text =
        trace([&](const Tensor&) { return call.run(); }, {ones({1})}).str(/*sources=*/true);
    CAPTURE(call.line);
    CAPTURE(text);
    CHECK(contains(text, here(call.line)));
  }
}

TEST_CASE("every op: what it says about sizes that do not fit is short and names the line") {
  int failed = 0;
  const char none = 0;  // attributes of ops without any
  for (const Op* op : all_ops()) {
    CAPTURE(op->name);
    for (const Sample& sample : op->samples())
      for (size_t k = 0; k < sample.inputs.size(); ++k) {
        if (!sample.inputs[k].defined()) continue;
        for (int64_t dim = 0; dim < sample.inputs[k].dim(); ++dim) {
          std::vector<Tensor> inputs = sample.inputs;
          Shape sizes = inputs[k].shape();
          sizes[static_cast<int>(dim)] += 5;
          inputs[k] = zeros(sizes, inputs[k].dtype());
          std::vector<const Tensor*> list;
          for (const Tensor& t : inputs) list.push_back(&t);
          Specs specs;
          const std::string text = full_error_text(
              [&] { op->infer(list, sample.attrs ? sample.attrs.get() : &none, specs); });
          if (text.empty()) continue;
          ++failed;
          CAPTURE(text);
          CHECK(contains(text, "error_place_test.cpp:"));
          CHECK(text.size() < 1000);
          CHECK(std::count(text.begin(), text.end(), '\n') < 5);
        }
      }
  }
  CHECK(failed > 40);
}

}  // namespace grapnel
