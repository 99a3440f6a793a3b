/// Backward hooks of modules: section 5.2 of the hook semantics, M4, and the order vector of
/// section 6.
#include <doctest/doctest.h>

#include "grapnel/autograd/accumulate.h"
#include "grapnel/autograd/engine.h"
#include "grapnel/autograd/grad_mode.h"
#include "grapnel/autograd/multi_grad.h"
#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"
#include "grapnel/nn/nn.h"

using namespace grapnel;
using nn::Module;

namespace {

double number(const Tensor& t) { return t.item<double>(); }

/// y = w * x for numbers
struct Scale : Module {
  Tensor w;
  explicit Scale(double value) { w = register_parameter("w", tensor({value})); }
  Tensor forward(Tensor x) { return x * w; }
};

struct Flagged : Module {
  Tensor forward(bool negate, Tensor x) { return negate ? -x : x * 2; }
};

}  // namespace

TEST_CASE("eager.6: order of every hook in a pass through one linear layer") {
  nn::Linear m(2, 2);
  std::vector<std::string> log;
  m->register_full_backward_hook([&](Module&, const variable_list&, const variable_list&) {
    log.push_back("M.full_backward");
  });

  Tensor x = ones({3, 2}, requires_grad());
  Tensor y = m(x);
  Tensor loss = y.sum();

  const auto on_node = [&](NodePtr node, const std::string& name) {
    node->register_prehook([&log, name](const variable_list&) { log.push_back(name + ".pre"); });
    node->register_hook([&log, name](const variable_list&, const variable_list&) {
      log.push_back(name + ".post");
    });
  };
  const auto on_leaf = [&](const Tensor& leaf, const std::string& name) {
    leaf.register_hook([&log, name](const Tensor&) { log.push_back(name + ".th"); });
    on_node(grad_accumulator(leaf), name + ".A");
    leaf.register_post_accumulate_grad_hook(
        [&log, name](const Tensor&) { log.push_back(name + ".pa"); });
  };
  const NodePtr sum = loss.grad_fn(), id_out = sum->next_edge(0).node,
                addmm = id_out->next_edge(0).node;
  const NodePtr id_in = addmm->next_edge(1).node, transpose = addmm->next_edge(2).node;
  CHECK(id_out->name() == "identity");
  CHECK(addmm->name() == "addmm");
  CHECK(id_in->name() == "identity");
  CHECK(id_in->next_edge(0).node == NodePtr(grad_accumulator(x)));
  on_node(sum, "sum");
  on_node(id_out, "id_out");
  on_node(addmm, "addmm");
  on_node(transpose, "transpose");
  on_node(id_in, "id_in");
  on_leaf(m->bias, "b");
  on_leaf(m->weight, "W");
  on_leaf(x, "x");
  loss.backward();
  CHECK(log ==
        std::vector<std::string>{"sum.pre",       "sum.post",                                   //
                                 "id_out.pre",    "id_out.post",                                //
                                 "addmm.pre",     "addmm.post",                                 //
                                 "b.th",          "b.A.pre",         "b.pa",       "b.A.post",  //
                                 "transpose.pre", "transpose.post",                             //
                                 "W.th",          "W.A.pre",         "W.pa",       "W.A.post",  //
                                 "id_in.pre",     "M.full_backward", "id_in.post",              //
                                 "x.th",          "x.A.pre",         "x.pa",       "x.A.post"});
}

TEST_CASE(
    "eager.B1: gradients are aligned with positional arguments, undefined for those that are no "
    "tensors") {
  Flagged m;
  variable_list inputs, outputs;
  m.register_full_backward_hook([&](Module&, const variable_list& gi, const variable_list& go) {
    inputs = gi, outputs = go;
  });
  Tensor x = tensor({3.0}, requires_grad());
  nn::call(m, false, x).sum().backward();
  REQUIRE(inputs.size() == 2);
  CHECK(!inputs[0].defined());
  CHECK(number(inputs[1]) == 2);
  REQUIRE(outputs.size() == 1);
  CHECK(number(outputs[0]) == 1);
}

TEST_CASE("eager.Q1: a tensor argument that does not require grad has an undefined gradient") {
  struct Product : Module {
    Tensor forward(Tensor a, Tensor b) { return a * b; }
  } m;
  variable_list inputs;
  m.register_full_backward_hook(
      [&](Module&, const variable_list& gi, const variable_list&) { inputs = gi; });
  nn::call(m, tensor({2.0}), tensor({3.0}, requires_grad())).backward();
  REQUIRE(inputs.size() == 2);
  CHECK(!inputs[0].defined());
  CHECK(number(inputs[1]) == 2);
}

TEST_CASE(
    "eager.B2: what a backward pre-hook returns drives the module's backward and is what backward "
    "hooks see") {
  for (const double factor : {0.5, 0.0}) {
    for (const bool needs_grad : {true, false}) {
      CAPTURE(factor);
      CAPTURE(needs_grad);
      Scale m(3);
      double seen = -1;
      m.register_full_backward_pre_hook(
          [&](Module&, const variable_list& go) { return variable_list{go[0] * factor}; });
      m.register_full_backward_hook(
          [&](Module&, const variable_list&, const variable_list& go) { seen = number(go[0]); });
      nn::call(m, tensor({2.0}, requires_grad(needs_grad))).sum().backward();
      CHECK(seen == factor);
      CHECK(number(m.w.grad()) == 2 * factor);
    }
  }
}

TEST_CASE("eager.B2: a backward pre-hook that returns the wrong number of gradients is an error") {
  Scale m(3);
  m.register_full_backward_pre_hook([](Module&, const variable_list&) { return variable_list{}; },
                                    {.name = "halve"});
  Tensor y = nn::call(m, tensor({2.0}, requires_grad()));
  CHECK_THROWS_WITH_AS(y.backward(), doctest::Contains("full backward pre-hook 'halve'"), Error);
}

TEST_CASE("eager.B3: what a backward hook returns replaces grad_input; hooks chain") {
  Scale m(3);
  std::vector<double> seen;
  m.register_full_backward_hook([&](Module&, const variable_list& gi, const variable_list&) {
    seen.push_back(number(gi[0]));
    return variable_list{gi[0] * 2};
  });
  m.register_full_backward_hook([&](Module&, const variable_list& gi, const variable_list&) {
    seen.push_back(number(gi[0]));
  });
  Tensor x = tensor({1.0}, requires_grad());
  nn::call(m, x).backward();
  CHECK(seen == std::vector{3.0, 6.0});
  CHECK(number(x.grad()) == 6);
}

TEST_CASE(
    "eager.B3: the wrong number, or a gradient for what has none, is an error that names the "
    "hook") {
  Flagged m;
  Tensor x = tensor({1.0}, requires_grad());
  auto h = m.register_full_backward_hook(
      [](Module&, const variable_list& gi, const variable_list&) { return variable_list{gi[1]}; },
      {.name = "short"});
  CHECK_THROWS_WITH_AS(nn::call(m, true, x).backward(), doctest::Contains("'short'"), Error);
  CHECK_THROWS_WITH_AS(nn::call(m, true, x).backward(),
                       doctest::Contains("returned 1 gradients, expected 2"), Error);
  h.remove();
  m.register_full_backward_hook([](Module&, const variable_list& gi, const variable_list&) {
    return variable_list{gi[1], gi[1]};
  });
  CHECK_THROWS_WITH_AS(nn::call(m, true, x).backward(),
                       doctest::Contains("argument 0, which does not require grad"), Error);
}

TEST_CASE("eager.B4: own order and prepend; global hooks go first") {
  Scale m(3);
  std::vector<int> log;
  const auto post = [&](int i) {
    return [&log, i](Module&, const variable_list&, const variable_list&) { log.push_back(i); };
  };
  const auto pre = [&](int i) {
    return [&log, i](Module&, const variable_list&) { log.push_back(i); };
  };
  Tensor x = tensor({1.0}, requires_grad());
  SUBCASE("hooks") {
    for (int i : {0, 1, 2}) m.register_full_backward_hook(post(i));
    for (int i : {3, 4}) m.register_full_backward_hook(post(i), {.prepend = true});
    ScopedHook global = nn::register_module_full_backward_hook(post(9));
    nn::call(m, x).backward();
    CHECK(log == std::vector{9, 4, 3, 0, 1, 2});
  }
  SUBCASE("pre-hooks") {
    for (int i : {0, 1}) m.register_full_backward_pre_hook(pre(i), {.prepend = true});
    for (int i : {2, 3, 4}) m.register_full_backward_pre_hook(pre(i));
    ScopedHook global = nn::register_module_full_backward_pre_hook(pre(9));
    nn::call(m, x).backward();
    CHECK(log == std::vector{9, 1, 0, 2, 3, 4});
  }
}

TEST_CASE(
    "eager.B5: without an input that requires grad the hook fires at the outputs, with undefined "
    "grad_input") {
  Scale m(3);
  int count = 0;
  bool param_done = true;
  auto h =
      m.register_full_backward_hook([&](Module&, const variable_list& gi, const variable_list& go) {
        ++count;
        param_done = m.w.grad().defined();
        CHECK(gi.size() == 1);
        CHECK(!gi[0].defined());
        CHECK(number(go[0]) == 1);
      });
  nn::call(m, tensor({2.0})).backward();
  CHECK(count == 1);
  CHECK(!param_done);
  h.remove();

  m.register_full_backward_hook(
      [](Module&, const variable_list&, const variable_list& go) { return variable_list{go[0]}; });
  CHECK_THROWS_AS(nn::call(m, tensor({2.0})).backward(), Error);
}

TEST_CASE("eager.B5: the hook does not fire if no output requires grad or recording is off") {
  Flagged m;
  int count = 0;
  m.register_full_backward_hook(
      [&](Module&, const variable_list&, const variable_list&) { ++count; });
  Tensor y = nn::call(m, true, tensor({1.0}));
  CHECK(!y.requires_grad());
  Tensor x = tensor({1.0}, requires_grad());
  {
    NoGradGuard no_grad;
    y = nn::call(m, true, x);
  }
  CHECK(y.is_leaf());
  (x * y).backward();
  CHECK(count == 0);
}

TEST_CASE("eager.B6: after_parameters makes the hook wait for the parameters of the module") {
  for (const bool needs_grad : {true, false}) {
    CAPTURE(needs_grad);
    nn::Sequential m(nn::Linear(2, 2), nn::Tanh(), nn::Linear(2, 1));
    int count = 0, early = 0;
    m->register_full_backward_hook(
        [&](Module&, const variable_list&, const variable_list&) { ++early; });
    m->register_full_backward_hook(
        [&](Module& module, const variable_list& gi, const variable_list& go) {
          ++count;
          CHECK(gi.size() == 1);
          CHECK(gi[0].defined() == needs_grad);
          CHECK(go[0].defined());
          for (const Tensor& p : module.parameters()) CHECK(p.grad().defined());
        },
        {.after_parameters = true});
    Tensor x = ones({3, 2}, requires_grad(needs_grad));
    Tensor y = m(x).sum();
    y.backward({}, true);
    CHECK(count == 1);
    m->zero_grad();
    y.backward();
    CHECK(count == 2);
    CHECK(early == 2);
    for (const Tensor& p : m->parameters()) CHECK(hooks_of(p).empty());
  }
}

TEST_CASE(
    "eager.B6: after_parameters fires without accumulation, too, and may not return gradients") {
  Scale m(3);
  int count = 0;
  auto h = m.register_full_backward_hook(
      [&](Module&, const variable_list&, const variable_list&) { ++count; },
      {.after_parameters = true});
  Tensor x = tensor({1.0}, requires_grad());
  autograd::grad({nn::call(m, x)}, {x});
  CHECK(count == 1);
  autograd::grad({nn::call(m, x)}, {m.w});
  CHECK(count == 2);
  CHECK(!m.w.grad().defined());
  h.remove();
  m.register_full_backward_hook(
      [](Module&, const variable_list& gi, const variable_list&) { return gi; },
      {.after_parameters = true});
  CHECK_THROWS_WITH_AS(nn::call(m, x).backward(),
                       doctest::Contains("after the parameters were updated"), Error);
}

TEST_CASE(
    "eager.B7: the hooks of a call are those at forward; removing with `now` also stops arranged "
    "calls") {
  Scale m(3);
  int count = 0;
  const auto counter = [&](Module&, const variable_list&, const variable_list&) { ++count; };
  Tensor x = tensor({1.0}, requires_grad());
  HookHandle h = m.register_full_backward_hook(counter);
  Tensor y = nn::call(m, x);
  h.remove();
  m.register_full_backward_hook(
      [&](Module&, const variable_list&, const variable_list&) { count += 100; });
  y.backward({}, true);
  CHECK(count == 1);
  h.remove(HookHandle::now);
  y.backward();
  CHECK(count == 1);
}

TEST_CASE(
    "eager.B8: the hook fires once per pass that enters at the outputs and leaves at the inputs") {
  Scale m(3);
  int count = 0;
  m.register_full_backward_hook(
      [&](Module&, const variable_list&, const variable_list&) { ++count; });
  Tensor x = tensor({1.0}, requires_grad());
  Tensor y = nn::call(m, x);
  y.backward({}, true);
  CHECK(count == 1);
  y.backward({}, true);
  CHECK(count == 2);
  autograd::grad({y}, {m.w}, {}, true);
  CHECK(count == 2);
  autograd::grad({y}, {x});
  CHECK(count == 3);
}

TEST_CASE(
    "eager.M4: a second-order pass fires the hook only when it comes through the outputs again") {
  for (const bool squared : {false, true}) {
    CAPTURE(squared);
    nn::Sequential m(nn::Linear(2, 3), nn::Tanh());
    int count = 0;
    m->register_full_backward_hook(
        [&](Module&, const variable_list&, const variable_list&) { ++count; });
    Tensor x = ones({1, 2}, requires_grad());
    Tensor y = m(x);
    Tensor loss = squared ? (y * y).sum() : y.sum();
    Tensor g = autograd::grad({loss}, {x}, {}, true, true)[0];
    CHECK(count == 1);
    g.sum().backward();
    CHECK(count == (squared ? 2 : 1));
  }
}

TEST_CASE(
    "eager.M4: gradients of gradients are those without hooks, and see every path into the "
    "arguments") {
  struct Cube : Module {
    Tensor forward(Tensor x) { return x * x * x; }
  } m;
  double second_seen = 0;
  const auto second_order = [&] {
    Tensor x = tensor({2.0}, requires_grad());
    Tensor y = nn::call(m, x);
    Tensor g = autograd::grad({y * y}, {x}, {}, true, true)[0];  // 6 x^5
    g.backward();                                                // 30 x^4
    return number(x.grad());
  };
  CHECK(second_order() == 480);
  m.register_full_backward_hook(
      [&](Module&, const variable_list& gi, const variable_list&) { second_seen = number(gi[0]); });
  CHECK(second_order() == 480);
  CHECK(second_seen == 480);
}

TEST_CASE("eager.B11: hooks of the deprecated kind are not offered") {
  CHECK(![]<class M>(M&&) {
    return requires(M m) { m.register_backward_hook(0); };
  }(nn::Linear(1, 1)));
}
