/// Module backward hooks live on gradient edges: identity, in-place changes, containers, nesting
/// and lifetimes (B9, B10).
#include <doctest/doctest.h>

#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"
#include "grapnel/nn/nn.h"

using namespace grapnel;
using nn::Kwargs;
using nn::Module;

namespace {

double number(const Tensor& t) { return t.item<double>(); }

/// y = w * x for numbers
struct Scale : Module {
  Tensor w;
  explicit Scale(double value) { w = register_parameter("w", tensor({value})); }
  Tensor forward(Tensor x) { return x * w; }
};

}  // namespace

TEST_CASE("eager.B9: arguments keep their identity, and results may be changed in place") {
  struct Keep : Module {
    Tensor seen;
    Tensor forward(Tensor x) {
      seen = x;
      return x * 2;
    }
  } m;
  int count = 0;
  m.register_full_backward_hook(
      [&](Module&, const variable_list&, const variable_list&) { ++count; });
  Tensor x = tensor({1.0}, requires_grad());
  Tensor out = nn::call(m, x);
  CHECK(m.seen.is_same(x));
  CHECK(x.is_leaf());
  CHECK(!out.is_view());
  out += 1;
  (out * out).backward();  // (2x + 1)^2
  CHECK(number(x.grad()) == 12);
  CHECK(count == 1);
}

TEST_CASE("eager.B9: a linear layer's result on batches may be changed in place under hooks") {
  nn::Linear m(2, 2);
  int count = 0;
  m->register_full_backward_hook(
      [&](Module&, const variable_list&, const variable_list&) { ++count; });
  Tensor x = ones({2, 3, 2}, requires_grad());
  Tensor y = m(x);
  y.mul_(2);
  y.sum().backward();
  CHECK(count == 1);
  CHECK(m->bias.grad().equal(full({2}, 12.0)));
}

TEST_CASE("eager.B9: forward may change its argument in place under hooks") {
  nn::ReLU m(nn::ReLUOptions(true));
  variable_list seen;
  m->register_full_backward_hook(
      [&](Module&, const variable_list& gi, const variable_list&) { seen = gi; });
  Tensor x = tensor({-1.0, 2.0}, requires_grad());
  Tensor h = x * 3;
  Tensor y = m(h);
  CHECK(y.is_same(h));
  y.sum().backward();
  CHECK(x.grad().equal(tensor({0.0, 3.0})));
  REQUIRE(seen.size() == 1);
  CHECK(seen[0].equal(tensor({0.0, 1.0})));
}

TEST_CASE(
    "eager.B9: an argument that is returned keeps its own history; the result is an alias that "
    "refuses in-place changes") {
  nn::Identity m;
  int count = 0;
  m->register_full_backward_hook(
      [&](Module&, const variable_list&, const variable_list&) { ++count; });
  Tensor x = tensor({1.0}, requires_grad());
  Tensor y = m(x);
  CHECK(!y.is_same(x));
  CHECK(y.is_alias_of(x));
  CHECK(x.is_leaf());
  CHECK_THROWS_AS(y += 1, Error);
  (y * 5).backward();
  CHECK(number(x.grad()) == 5);
  CHECK(count == 1);
  (x * 1).backward();
  CHECK(count == 1);
}

TEST_CASE("eager.B9: what would take a gradient around the hooks is refused, not ignored") {
  struct Bump : Module {
    Tensor forward(Tensor x) {
      x.add_(1);
      return x * 2;
    }
  } m;
  m.register_full_backward_hook([](Module&, const variable_list&, const variable_list&) {});
  Tensor base = tensor({1.0, 2.0}, requires_grad()) * 1;
  CHECK_THROWS_WITH_AS(nn::call(m, base.slice(0, 0, 1)), doctest::Contains("is a view"), Error);

  nn::Flatten flat;
  flat->register_full_backward_hook([](Module&, const variable_list&, const variable_list&) {});
  Tensor x = ones({2, 2, 2}, requires_grad()) * 1;
  Tensor y = flat(x);
  CHECK_THROWS_AS(x.add_(1), Error);
}

TEST_CASE(
    "eager.B10: tensors in lists, maps, tuples, structs and keyword arguments have gradients, "
    "after the positional places") {
  struct Gather : Module {
    std::map<std::string, Tensor> forward(std::vector<Tensor> list, Tensor x,
                                          const Kwargs& kwargs) {
      return {{"a", list[0] * 2 + list[1] * 3}, {"b", x * 5 + kwargs.at("bias").toTensor() * 7}};
    }
  } m;
  variable_list inputs, outputs;
  m.register_full_backward_hook([&](Module&, const variable_list& gi, const variable_list& go) {
    inputs = gi, outputs = go;
    variable_list out = gi;
    out[2] = gi[2] * 10;
    return out;
  });
  Tensor a = tensor({1.0}, requires_grad()), b = tensor({1.0}, requires_grad()),
         x = tensor({1.0}, requires_grad()), bias = tensor({1.0}, requires_grad());
  auto out = nn::call(m, std::vector<Tensor>{a, b}, x, Kwargs{{"bias", bias}, {"flag", true}});
  (out["a"] + out["b"] * 2).backward();
  // list, x | list[0], list[1] | bias
  REQUIRE(inputs.size() == 5);
  CHECK(!inputs[0].defined());
  CHECK(number(inputs[1]) == 10);
  CHECK(number(inputs[2]) == 2);
  CHECK(number(inputs[3]) == 3);
  CHECK(number(inputs[4]) == 14);
  REQUIRE(outputs.size() == 2);
  CHECK(number(outputs[1]) == 2);
  CHECK(number(a.grad()) == 20);
  CHECK(number(bias.grad()) == 14);
}

namespace {
struct Batch {
  Tensor x, y;
};
template <class F>
void visit_tensors(Batch& b, F&& fn) {
  fn(b.x);
  fn(b.y);
}
}  // namespace

TEST_CASE("eager.B10: a struct of the user's is opened by its visit_tensors") {
  struct Swap : Module {
    std::tuple<Batch, Tensor> forward(Batch b) { return {Batch{b.y * 2, b.x * 3}, b.x}; }
  } m;
  variable_list inputs, outputs;
  m.register_full_backward_hook([&](Module&, const variable_list& gi, const variable_list& go) {
    inputs = gi, outputs = go;
  });
  Tensor x = tensor({1.0}, requires_grad()), y = tensor({1.0}, requires_grad());
  auto [batch, same] = nn::call(m, Batch{x, y});
  (batch.x + batch.y + same * 10).backward();
  REQUIRE(inputs.size() == 3);
  CHECK(number(inputs[1]) == 13);
  CHECK(number(inputs[2]) == 2);
  REQUIRE(outputs.size() == 4);
  CHECK(!outputs[0].defined());
  CHECK(number(outputs[1]) == 10);
}

TEST_CASE(
    "eager.B10: one tensor passed twice has a gradient at each place, and one returned twice, "
    "too") {
  struct Both : Module {
    std::vector<Tensor> forward(Tensor a, Tensor b) {
      Tensor y = a * 2 + b * 3;
      return {y, y};
    }
  } m;
  variable_list inputs, outputs;
  m.register_full_backward_hook([&](Module&, const variable_list& gi, const variable_list& go) {
    inputs = gi, outputs = go;
  });
  Tensor x = tensor({1.0}, requires_grad());
  auto out = nn::call(m, x, x);
  (out[0] + out[1] * 10).backward();
  CHECK(number(inputs[0]) == 22);
  CHECK(number(inputs[1]) == 33);
  CHECK(number(outputs[0]) == 1);
  CHECK(number(outputs[1]) == 10);
  CHECK(number(x.grad()) == 55);
}

TEST_CASE("nested modules: each call has its own nodes, outer hooks fire around inner ones") {
  struct Outer : Module {
    std::shared_ptr<Scale> inner;
    Outer() { inner = register_module("inner", std::make_shared<Scale>(2)); }
    Tensor forward(Tensor x) { return nn::call(inner, x) + x; }
  };
  auto m = std::make_shared<Outer>();
  std::vector<std::string> log;
  m->register_full_backward_pre_hook(
      [&](Module&, const variable_list&) { log.push_back("outer pre"); });
  m->register_full_backward_hook([&](Module&, const variable_list& gi, const variable_list&) {
    log.push_back(str("outer ", number(gi[0])));
  });
  m->inner->register_full_backward_pre_hook(
      [&](Module&, const variable_list&) { log.push_back("inner pre"); });
  m->inner->register_full_backward_hook(
      [&](Module&, const variable_list& gi, const variable_list&) {
        log.push_back(str("inner ", number(gi[0])));
      });
  Tensor x = tensor({1.0}, requires_grad());
  nn::call(m, x).backward();
  CHECK(log == std::vector<std::string>{"outer pre", "inner pre", "inner 2", "outer 3"});
  CHECK(number(x.grad()) == 3);
}

TEST_CASE(
    "a graph keeps the modules whose hooks it holds; one on the stack that is gone is an error") {
  Tensor x = tensor({1.0}, requires_grad());
  int count = 0;
  const auto counter = [&](Module& m, const variable_list&, const variable_list&) {
    count += static_cast<int>(m.parameters().size());
  };
  Tensor y;
  {
    auto m = std::make_shared<Scale>(3);
    m->register_full_backward_hook(counter);
    y = nn::call(m, x);
  }
  y.backward();
  CHECK(count == 1);
  {
    Scale m(3);
    m.register_full_backward_hook(counter);
    y = nn::call(m, x);
  }
  CHECK_THROWS_WITH_AS(y.backward(), doctest::Contains("is gone"), Error);
}

TEST_CASE("module hooks and their graphs are freed with the last handle") {
  auto token = std::make_shared<int>(0);
  {
    auto m = std::make_shared<Scale>(3);
    m->register_full_backward_hook([token](Module&, const variable_list&, const variable_list&) {});
    m->register_full_backward_hook([token](Module&, const variable_list&, const variable_list&) {},
                                   {.after_parameters = true});
    Tensor x = tensor({1.0}, requires_grad());
    Tensor y = nn::call(m, x);
    y.backward({}, true);
    CHECK(token.use_count() == 3);
  }
  CHECK(token.use_count() == 1);
}
