/// An exception that comes out of a hook says which hook, and stays what it is.
#include <doctest/doctest.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "grapnel/grapnel.h"
#include "tests/ops/error_text.h"

namespace grapnel {

namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}
std::string registered_at(int line) {
  return str("registered at ", __FILE__, ":", line);
}

/// An exception of the user's, with more in it than a text.
struct Stop : std::runtime_error {
  explicit Stop(int n) : std::runtime_error("stop"), code(n) {}
  int code;
};

/// What is known of the exception of type E that fn() throws.
template <class E>
std::string explained(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const E&) {
    return explain();
  }
  return "nothing was thrown";
}

/// A place for a hook, and the words for it.
struct Registration {
  const char* kind;
  const char* node;
  int line;
};

/// Registers a hook of each kind in turn on a fresh graph and runs it.
template <class Fail>
std::string run_with(int kind, Fail fail_now, Registration& told) {
  Tensor x = ones({2}, requires_grad());
  x.set_name("x");
  const Tensor y = x * 3.0;
  switch (kind) {
    case 0:
      told = {"tensor hook 'mine'", "at mul, called at ", __LINE__ + 1};
      y.register_hook([=](const Tensor&) { fail_now(); }, {"mine"});
      break;
    case 1:
      told = {"tensor hook 'mine'", "at the leaf 'x' of shape [2]", __LINE__ + 1};
      x.register_hook([=](const Tensor&) { fail_now(); }, {"mine"});
      break;
    case 2:
      told = {"node pre-hook 'mine'", "at mul, called at ", __LINE__ + 1};
      y.grad_fn()->register_prehook([=](const variable_list&) { fail_now(); }, {"mine"});
      break;
    case 3:
      told = {"node post-hook 'mine'", "at mul, called at ", __LINE__ + 1};
      y.grad_fn()->register_hook(
          [=](const variable_list&, const variable_list&) { fail_now(); }, {"mine"});
      break;
    case 4:
      told = {"post-accumulate hook 'mine'", "at the leaf 'x' of shape [2]", __LINE__ + 1};
      x.register_post_accumulate_grad_hook([=](const Tensor&) { fail_now(); }, {"mine"});
      break;
    default:
      // The second of two, since a hook that is alone is called on a short way.
      told = {"tensor hook 'mine'", "at mul, called at ", __LINE__ + 2};
      y.register_hook([](const Tensor&) {});
      y.register_hook([=](const Tensor&) { fail_now(); }, {"mine"});
  }
  try {
    y.sum().backward();
  } catch (...) {
    return explain();
  }
  return "nothing was thrown";
}

}  // namespace

TEST_CASE("an Error of an op in a hook names the line, the hook and the node") {
  for (const bool compiled : {false, true})
    for (int kind = 0; kind < 6; ++kind) {
      std::optional<CompiledBackward> scope;
      if (compiled) scope.emplace();
      Registration told{};
      int line = 0;
      const std::string text = run_with(
          kind, [&line] { line = __LINE__, (void)(ones({3}) + ones({4})); }, told);
      CAPTURE(text);
      CAPTURE(compiled);
      CHECK(text.starts_with("add: "));
      CHECK(contains(text, str("\n  at ", __FILE__, ":", line, " (lambda in ")));
      CHECK(contains(text, std::string("\n  in the ") + told.kind));
      CHECK(contains(text, registered_at(told.line)));
      CHECK(contains(text, told.node));
      CHECK(std::count(text.begin(), text.end(), '\n') < 5);
    }
}

TEST_CASE("an exception of the user's keeps its type and text, and explain() has the hook") {
  for (const bool compiled : {false, true})
    for (int kind = 0; kind < 6; ++kind) {
      std::optional<CompiledBackward> scope;
      if (compiled) scope.emplace();
      Registration told{};
      CAPTURE(compiled);
      const std::string text = run_with(kind, [] { throw Stop(7); }, told);
      CAPTURE(text);
      CHECK(text.starts_with("stop\n  in the "));
      CHECK(contains(text, told.kind));
      CHECK(contains(text, registered_at(told.line)));
      CHECK(contains(text, told.node));
    }
  Tensor x = ones({2}, requires_grad());
  x.register_hook([](const Tensor&) { throw Stop(7); });
  try {
    x.sum().backward();
    FAIL("nothing was thrown");
  } catch (const Stop& e) {
    CHECK(e.code == 7);
    CHECK(std::string(e.what()) == "stop");
  }
}

TEST_CASE("what is no std::exception can be explained, too") {
  Tensor x = ones({2}, requires_grad());
  x.register_hook([](const Tensor&) { throw 42; }, {"answer"});
  const std::string text = explained<int>([&] { x.sum().backward(); });
  CHECK(text.starts_with("an exception of unknown type\n  in the tensor hook 'answer' "));
}

TEST_CASE("an exception that came through no hook is explained by its text alone") {
  Tensor x = ones({2}, requires_grad());
  x.register_hook([](const Tensor&) { throw Stop(1); });
  CHECK_THROWS_AS(x.sum().backward(), Stop);
  CHECK(explained<Stop>([] { throw Stop(2); }) == "stop");
  CHECK(explain(nullptr) == "");
}

TEST_CASE("an exception can be explained on another thread, and later") {
  Tensor x = ones({2}, requires_grad());
  x.register_hook([](const Tensor&) { throw Stop(1); }, {"far"});
  std::exception_ptr error;
  std::thread([&] {
    try {
      x.sum().backward();
    } catch (...) {
      error = std::current_exception();
    }
  }).join();
  CHECK(contains(explain(error), "'far'"));
}

TEST_CASE("an exception that passes many hooks is told with the first and the last of them") {
  const Tensor x = ones({2}, requires_grad());
  std::function<void(int)> nest = [&](int depth) {
    const AutoGradMode on(true);  // it is off in hooks
    const Tensor y = x * 2;
    y.register_hook([&, depth](const Tensor&) {
      if (depth == 0) throw Stop(1);
      nest(depth - 1);
    });
    y.sum().backward();
  };
  const std::string text = explained<Stop>([&] { nest(10); });
  CAPTURE(text);
  CHECK(std::count(text.begin(), text.end(), '\n') < 6);
}

TEST_CASE("hooks of optimisers are named, in an Error and in explain()") {
  using Register = std::function<HookHandle(optim::Optimizer&, const std::function<void()>&)>;
  using Run = std::function<void(optim::Optimizer&)>;
  const auto step = [](optim::Optimizer& o) { o.step(); };
  const auto save = [](optim::Optimizer& o) { (void)o.state_dict(); };
  const auto load = [](optim::Optimizer& o) { o.load_state_dict({}); };
  struct Case {
    const char* kind;
    int line;
    Register add;
    Run run;
  };
#define ADD(method, ...)                                                                   \
  __LINE__, [](optim::Optimizer& o, const std::function<void()>& fail_now) -> HookHandle { \
    return o.method([fail_now](__VA_ARGS__) { fail_now(); }, {.name = "mine"});            \
  }
  const std::vector<Case> cases = {
      {"step pre-hook", ADD(register_step_pre_hook, optim::Optimizer&), step},
      {"step post-hook", ADD(register_step_post_hook, optim::Optimizer&), step},
      {"state_dict pre-hook", ADD(register_state_dict_pre_hook, optim::Optimizer&), save},
      {"state_dict post-hook",
       ADD(register_state_dict_post_hook, optim::Optimizer&, optim::OptimizerStateDict&), save},
      {"load_state_dict pre-hook",
       ADD(register_load_state_dict_pre_hook, optim::Optimizer&, optim::OptimizerStateDict&), load},
  };
#undef ADD
  for (const Case& c : cases) {
    CAPTURE(c.kind);
    const std::string told =
        str("\n  in the ", c.kind, " 'mine' ", registered_at(c.line), ", of SGD");
    const auto run = [&](const std::function<void()>& fail_now) {
      optim::SGD sgd({ones({2}, requires_grad())}, optim::SGDOptions(0.1));
      c.add(sgd, fail_now);
      c.run(sgd);
    };
    const std::string beside = explained<Stop>([&] { run([] { throw Stop(7); }); });
    CHECK(beside == "stop" + told);
    const std::string inside = full_error_text([&] { run([] { (void)(ones({3}) + ones({4})); }); });
    CHECK(inside.starts_with("add: "));
    CHECK(inside.ends_with(told));
  }
}

TEST_CASE("hooks on saving, loading and registration are named") {
  const auto stop = [](auto&&...) { throw Stop(7); };
  const auto told = [](const char* kind, int line) {
    return str("stop\n  in the ", kind, " 'mine' ", registered_at(line), ", of LinearImpl");
  };
  const auto check_named = [&](const char* kind, int line, auto&& add) {
    nn::Linear fc(2, 2);
    const ScopedHook hook = add(*fc);
    CHECK(explained<Stop>([&] { fc->load_state_dict(fc->state_dict()); }) == told(kind, line));
  };
  check_named("state_dict pre-hook", __LINE__ + 1, [&](nn::Module& m) {
    return m.register_state_dict_pre_hook(stop, {.name = "mine"});
  });
  check_named("state_dict post-hook", __LINE__ + 1, [&](nn::Module& m) {
    return m.register_state_dict_post_hook(stop, {.name = "mine"});
  });
  check_named("load_state_dict pre-hook", __LINE__ + 1, [&](nn::Module& m) {
    return m.register_load_state_dict_pre_hook(stop, {.name = "mine"});
  });
  check_named("load_state_dict post-hook", __LINE__ + 1, [&](nn::Module& m) {
    return m.register_load_state_dict_post_hook(stop, {.name = "mine"});
  });
  const auto refuse = [](nn::Module&, const std::string&, const Tensor&) { throw Stop(7); };
  const int line = __LINE__ + 1;
  const ScopedHook hook = nn::register_module_parameter_registration_hook(refuse, {"mine"});
  const std::string text = explained<Stop>([] { nn::Linear(2, 2); });
  CHECK(text.starts_with("stop\n  in the registration hook 'mine' " + registered_at(line)));
}

TEST_CASE("a callback for the end of a pass is named by the line that queued it") {
  const Tensor x = ones({2}, requires_grad());
  int line = 0;
  x.register_hook([&](const Tensor&) {
    line = __LINE__ + 1;
    autograd::queue_callback([] { throw Stop(1); });
    asm volatile("");
  });
  const std::string text = explained<Stop>([&] { x.sum().backward(); });
  CAPTURE(text);
  CHECK(text.starts_with("stop\n  in the end-of-pass callback queued at "));
  CHECK(contains(text, str("hook_error_test.cpp:", line)));
}

TEST_CASE("a gradient that does not fit is told with the hook and the node or leaf") {
  const Tensor x = ones({2}, requires_grad());
  x.set_name("x");
  const int line = __LINE__ + 1;
  const Tensor y = x * 3;
  const std::string called = ", at mul, called at ";
  const auto text_of = [&](const auto& add) {
    const ScopedHook hook = add();
    return full_error_text([&] { y.sum().backward({}, true); });
  };
  const auto longer = [](const Tensor&) { return ones({7}); };
  std::string text = text_of([&] { return y.register_hook(longer, {"mine"}); });
  CAPTURE(text);
  CHECK(text.starts_with("the tensor hook 'mine' " + registered_at(__LINE__ - 2) + called));
  CHECK(contains(text, str("hook_error_test.cpp:", line)));
  CHECK(contains(text, "), changed the size of the gradient from [2] to [7]."));
  text = text_of([&] { return x.register_hook(longer, {"mine"}); });
  CHECK(contains(text, ", at the leaf 'x' of shape [2], changed the size of the gradient"));
  text = text_of([&] {
    return y.grad_fn()->register_prehook([](const variable_list&) { return variable_list(); });
  });
  CHECK(contains(text, called));
  CHECK(contains(text, "), returned 0 gradients, expected 1."));
}

TEST_CASE("hooks of saved tensors are named") {
  const Tensor x = ones({2}, requires_grad());
  CHECK(contains(explained<Stop>([&] {
                   SavedTensorHooks scope(
                       [](const Tensor& t) -> Tensor { return throw Stop(1), t; },
                       [](const Tensor& t) { return t; });
                   x.square();
                 }),
                 "\n  in the pack hook "));
  Tensor y;
  {
    SavedTensorHooks scope([](const Tensor& t) { return t; },
                           [](const Tensor& t) -> Tensor { return throw Stop(1), t; });
    y = x.square();
  }
  CHECK(contains(explained<Stop>([&] { y.sum().backward(); }),
                 "\n  in the unpack hook of a value saved by square"));
}

TEST_CASE("an error in the backward of an op names the op, its line and the line of backward()") {
  struct Wrong : autograd::Function<Wrong> {
    static Tensor forward(autograd::AutogradContext*, Tensor x) { return x * 2; }
    static variable_list backward(autograd::AutogradContext*, variable_list g) {
      return {g[0] + ones({77})};
    }
  };
  const Tensor x = ones({2}, requires_grad());
  const int line = __LINE__ + 1;
  const Tensor y = Wrong::apply(x);
  const std::string text = full_error_text([&] { y.sum().backward(); });
  CAPTURE(text);
  CHECK(contains(text, "hook_error_test.cpp"));
  CHECK(contains(text, "\n  in the backward of Wrong, called at "));
  CHECK(contains(text, str("hook_error_test.cpp:", line)));
  CHECK(contains(text, ", node 2 of 3"));
}

}  // namespace grapnel
