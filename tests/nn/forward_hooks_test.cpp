/// Forward hooks of modules: section 5.1 of the hook semantics.
#include <doctest/doctest.h>

#include <atomic>
#include <stdexcept>
#include <thread>

#include "grapnel/autograd/grad_mode.h"
#include "grapnel/base/warn.h"
#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"
#include "grapnel/nn/nn.h"

using namespace grapnel;
using nn::Args;
using nn::Kwargs;
using nn::Module;
using nn::Value;

namespace {

struct Double : Module {
  Tensor forward(Tensor x) { return x * 2; }
};
/// x + kwargs["bias"]
struct Shift : Module {
  Tensor forward(Tensor x, const Kwargs& kwargs) { return x + kwargs.at("bias").toTensor(); }
};
struct Failing : Module {
  Tensor forward(Tensor) { throw std::domain_error("forward failed"); }
};

double number(const Tensor& t) { return t.item<double>(); }

struct Warnings {
  std::vector<std::string> seen;
  Warnings() {
    set_warning_handler([this](const std::string& text) { seen.push_back(text); });
  }
  ~Warnings() { set_warning_handler(nullptr); }
};

}  // namespace

TEST_CASE("eager.F1: pre-hooks run before forward, hooks after it, backward hooks in backward") {
  nn::Linear m(2, 1);
  std::vector<int> log;
  m->register_full_backward_hook(
      [&](Module&, const variable_list&, const variable_list&) { log.push_back(3); });
  m->register_full_backward_pre_hook([&](Module&, const variable_list&) { log.push_back(2); });
  m->register_forward_hook([&](Module&, const Args&, const Value&) { log.push_back(1); });
  m->register_forward_pre_hook([&](Module&, const Args&) { log.push_back(0); });
  Tensor y = m(ones({1, 2}, requires_grad()));
  CHECK(log == std::vector{0, 1});
  y.sum().backward();
  CHECK(log == std::vector{0, 1, 2, 3});
}

TEST_CASE("eager.F1: global hooks go before the module's own, and see every module") {
  auto m = std::make_shared<Double>();
  std::vector<std::string> log;
  m->register_forward_pre_hook([&](Module&, const Args&) { log.push_back("own pre"); });
  m->register_forward_hook([&](Module&, const Args&, const Value&) { log.push_back("own"); });
  ScopedHook pre = nn::register_module_forward_pre_hook(
      [&](Module&, const Args&) { log.push_back("global pre"); });
  ScopedHook post = nn::register_module_forward_hook(
      [&](Module&, const Args&, const Value&) { log.push_back("global"); });
  CHECK(number(nn::call(m, tensor({3.0}))) == 6);
  CHECK(log == std::vector<std::string>{"global pre", "own pre", "global", "own"});
  log.clear();
  Double other;
  nn::call(other, tensor({1.0}));
  CHECK(log == std::vector<std::string>{"global pre", "global"});
}

TEST_CASE(
    "eager.F2: prepend puts a hook before all existing ones of its kind; global ones still go "
    "first") {
  auto m = std::make_shared<Double>();
  std::vector<int> log;
  const auto pre = [&](int i) { return [&log, i](Module&, const Args&) { log.push_back(i); }; };
  m->register_forward_pre_hook(pre(0));
  m->register_forward_pre_hook(pre(1), {.prepend = true});
  m->register_forward_pre_hook(pre(2));
  m->register_forward_pre_hook(pre(3));
  m->register_forward_pre_hook(pre(4), {.prepend = true});
  nn::call(m, tensor({1.0}));
  CHECK(log == std::vector{4, 1, 0, 2, 3});
  log.clear();
  ScopedHook global = nn::register_module_forward_pre_hook(pre(9));
  nn::call(m, tensor({1.0}));
  CHECK(log == std::vector{9, 4, 1, 0, 2, 3});
}

TEST_CASE("eager.F3: a forward pre-hook replaces the arguments by a list, or by one value") {
  auto m = std::make_shared<Double>();
  auto h = m->register_forward_pre_hook(
      [](Module&, const Args& args) { return Args{args[0].toTensor() + 1}; });
  CHECK(number(nn::call(m, tensor({3.0}))) == 8);
  h.remove();
  m->register_forward_pre_hook([](Module&, const Args& args) { return args[0].toTensor() * 10; });
  CHECK(number(nn::call(m, tensor({3.0}))) == 60);
}

TEST_CASE("eager.F3: with kwargs, a forward pre-hook returns both") {
  auto m = std::make_shared<Shift>();
  m->register_forward_pre_hook([](Module&, const Args& args, const Kwargs& kwargs) {
    Kwargs changed = kwargs;
    changed["bias"] = kwargs.at("bias").toTensor() * 2;
    return std::pair(args, changed);
  });
  CHECK(number(nn::call(m, tensor({1.0}), Kwargs{{"bias", tensor({1.0})}})) == 3);
}

TEST_CASE(
    "eager.F3: a pre-hook that leaves too many arguments, or names forward does not take, is an "
    "error that says so") {
  auto m = std::make_shared<Double>();
  auto h =
      m->register_forward_pre_hook([](Module&, const Args& args) { return Args{args[0], true}; });
  CHECK_THROWS_WITH_AS(nn::call(m, tensor({1.0})),
                       doctest::Contains("takes 1 argument but was given 2"), Error);
  h.remove();
  m->register_forward_pre_hook([](Module&, const Args& args, const Kwargs&) {
    return std::pair(args, Kwargs{{"scale", 2}});
  });
  CHECK_THROWS_WITH_AS(nn::call(m, tensor({1.0})),
                       doctest::Contains("takes no arguments by name but was given 'scale'"),
                       Error);
}

TEST_CASE(
    "eager.F4: a forward hook sees the changed arguments and replaces the result for later hooks "
    "and the caller") {
  auto m = std::make_shared<Shift>();
  m->register_forward_pre_hook([](Module&, const Args& args, const Kwargs& kwargs) {
    Kwargs changed = kwargs;
    changed["bias"] = kwargs.at("bias").toTensor() * 2;
    return std::pair(args, changed);
  });
  auto h =
      m->register_forward_hook([](Module&, const Args&, const Kwargs& kwargs, const Value& out) {
        return out.toTensor() + kwargs.at("bias").toTensor();
      });
  std::vector<double> seen;
  m->register_forward_hook(
      [&](Module&, const Args&, const Tensor& out) { seen.push_back(number(out)); });
  const Kwargs bias{{"bias", tensor({1.0})}};
  CHECK(number(nn::call(m, tensor({1.0}), bias)) == 5);
  h.remove();
  CHECK(number(nn::call(m, tensor({1.0}), bias)) == 3);
  CHECK(seen == std::vector{5.0, 3.0});
}

TEST_CASE("eager.F4: a result of another type than forward's is an error") {
  auto m = std::make_shared<Double>();
  m->register_forward_hook([](Module&, const Args&, const Value&) { return std::string("oops"); });
  CHECK_THROWS_WITH_AS(nn::call(m, tensor({1.0})), doctest::Contains("a string, expected a tensor"),
                       Error);
}

TEST_CASE("eager.F5: hooks run only through the module call, not when forward is called directly") {
  nn::Linear m(1, 1);
  int count = 0;
  m->register_forward_hook([&](Module&, const Args&, const Value&) { ++count; });
  const Tensor x = ones({1, 1});
  m->forward(x);
  CHECK(count == 0);
  m(x);
  (*m)(x);
  nn::call(m.ptr(), x);
  CHECK(count == 3);
}

TEST_CASE(
    "eager.F6: hooks with always_call run once, whether forward, a pre-hook or another hook "
    "throws") {
  std::vector<int> stack;
  const auto enter = [&](Module&, const Args&) { stack.push_back(2); };
  const auto exit = [&](Module&, const Args&, const Value&) { stack.push_back(-1); };
  SUBCASE("success") {
    Double m;
    m.register_forward_pre_hook(enter);
    m.register_forward_hook(exit, {.always_call = true});
    nn::call(m, tensor({1.0}));
  }
  SUBCASE("failing forward") {
    Failing m;
    m.register_forward_pre_hook(enter);
    m.register_forward_hook(exit, {.always_call = true});
    CHECK_THROWS_AS(nn::call(m, tensor({1.0})), std::domain_error);
  }
  SUBCASE("failing pre-hook") {
    Double m;
    m.register_forward_pre_hook(enter);
    m.register_forward_pre_hook([](Module&, const Args&) { throw std::domain_error("pre"); });
    m.register_forward_hook(exit, {.always_call = true});
    CHECK_THROWS_AS(nn::call(m, tensor({1.0})), std::domain_error);
  }
  SUBCASE("failing hook after it, and before it") {
    Double m;
    m.register_forward_pre_hook(enter);
    m.register_forward_hook(exit, {.always_call = true});
    m.register_forward_hook(
        [](Module&, const Args&, const Value&) { throw std::domain_error("hook"); });
    CHECK_THROWS_AS(nn::call(m, tensor({1.0})), std::domain_error);
  }
  CHECK(stack == std::vector{2, -1});
}

TEST_CASE(
    "eager.F6: an always-called hook gets the result so far, and its own exception becomes a "
    "warning") {
  Warnings warnings;
  Failing m;
  bool none = false;
  int global = 0;
  m.register_forward_hook([&](Module&, const Args&, const Value& out) { none = out.is_none(); },
                          {.always_call = true});
  m.register_forward_hook(
      [](Module&, const Args&, const Value&) { throw std::logic_error("second error"); },
      {.name = "audit", .always_call = true});
  ScopedHook h = nn::register_module_forward_hook(
      [&](Module&, const Args&, const Value&) { global = none ? 2 : 1; }, {.always_call = true});
  CHECK_THROWS_AS(nn::call(m, tensor({1.0})), std::domain_error);
  CHECK(none);
  CHECK(global == 1);
  REQUIRE(warnings.seen.size() == 1);
  CHECK(warnings.seen[0].find("audit") != std::string::npos);
  CHECK(warnings.seen[0].find("second error") != std::string::npos);
}

TEST_CASE("eager.F7: global hooks take kwargs, before forward, after it and when it fails") {
  Shift m;
  int seen = 0;
  ScopedHook pre =
      nn::register_module_forward_pre_hook([&](Module&, const Args& args, const Kwargs& kwargs) {
        Kwargs changed = kwargs;
        changed["bias"] = kwargs.at("bias").toTensor() * 3;
        return std::pair(args, changed);
      });
  ScopedHook post = nn::register_module_forward_hook(
      [&](Module&, const Args&, const Kwargs& kwargs, const Value&) {
        seen = static_cast<int>(number(kwargs.at("bias").toTensor()));
      },
      {.always_call = true});
  CHECK(number(nn::call(m, tensor({1.0}), Kwargs{{"bias", tensor({2.0})}})) == 7);
  CHECK(seen == 6);
  m.register_forward_pre_hook([](Module&, const Args&) { throw std::domain_error("late"); });
  CHECK_THROWS_AS(nn::call(m, tensor({1.0}), Kwargs{{"bias", tensor({4.0})}}), std::domain_error);
  CHECK(seen == 12);
}

TEST_CASE("eager.F8: hooks may remove themselves; a list is taken as it is when it starts") {
  Double m;
  int count = 0;
  HookHandle a, b;
  a = m.register_forward_hook(
      [&](Module&, const Args&, const Value&) { ++count, a.remove(), b.remove(); });
  b = m.register_forward_hook([&](Module&, const Args&, const Value&) { ++count, b.remove(); });
  nn::call(m, tensor({1.0}));
  CHECK(count == 2);
  nn::call(m, tensor({1.0}));
  CHECK(count == 2);
  CHECK(!a.active());
}

TEST_CASE(
    "eager.F9: global registration hooks see parameters, buffers and submodules, and may replace "
    "them") {
  std::vector<std::string> log;
  const Tensor shared = zeros({3}, requires_grad());
  ScopedHook p = nn::register_module_parameter_registration_hook(
      [&](Module&, const std::string& name, const Tensor&) {
        log.push_back("parameter " + name);
        return name == "bias" ? shared : Tensor();
      });
  ScopedHook b = nn::register_module_buffer_registration_hook(
      [&](Module&, const std::string& name, const Tensor&) { log.push_back("buffer " + name); });
  auto replacement = nn::Linear(3, 3).ptr();
  log.clear();
  ScopedHook s = nn::register_module_module_registration_hook(
      [&](Module&, const std::string& name,
          const std::shared_ptr<Module>&) -> std::shared_ptr<Module> {
        log.push_back("module " + name);
        return name == "fc" ? replacement : nullptr;
      });
  struct Net : Module {
    nn::Linear fc{nullptr};
    Net() {
      register_buffer("steps", zeros({1}));
      fc = register_module("fc", nn::Linear(2, 2));
    }
  };
  Net net;
  CHECK(log == std::vector<std::string>{"buffer steps", "parameter weight", "parameter bias",
                                        "module fc"});
  CHECK(net.fc.ptr() == replacement);
  CHECK(net.fc->bias.is_same(shared));
}

TEST_CASE("hooks of a module can be listed by kind, name and place, and cleared") {
  nn::Linear m(1, 1);
  m->register_forward_hook([](Module&, const Args&, const Value&) {}, {.name = "log"});
  m->register_full_backward_hook([](Module&, const variable_list&, const variable_list&) {});
  const auto infos = hooks_of(*m);
  REQUIRE(infos.size() == 2);
  CHECK(infos[0].kind == HookKind::forward);
  CHECK(infos[0].name == "log");
  CHECK(infos[0].site.find("forward_hooks_test.cpp:") != std::string::npos);
  CHECK(infos[1].kind == HookKind::full_backward);
  m->remove_hook(infos[0].id);
  CHECK(hooks_of(m).size() == 1);
  m->clear_hooks();
  CHECK(hooks_of(m).empty());
}

TEST_CASE(
    "calls with any arguments pass through hooks unchanged: defaults, overloads, tuples, "
    "optionals, structs") {
  struct Point {
    double x, y;
  };
  struct Many : Module {
    std::tuple<Tensor, int> forward(Tensor x, bool twice = true, std::optional<double> plus = {}) {
      return {(twice ? x * 2 : x) + plus.value_or(0), 7};
    }
  };
  struct Overloaded : Module {
    Tensor forward(Tensor x) { return x; }
    Tensor forward(Tensor x, const Point& p) { return x * p.x + p.y; }
    int calls = 0;
  };
  Many many;
  Overloaded overloaded;
  for (bool hooked : {false, true}) {
    CAPTURE(hooked);
    if (hooked) {
      many.register_forward_hook([](Module&, const Args&, const Value&) {});
      overloaded.register_forward_hook([](Module&, const Args&, const Value&) {});
    }
    CHECK(number(std::get<0>(nn::call(many, tensor({3.0})))) == 6);
    CHECK(number(std::get<0>(nn::call(many, tensor({3.0}), false))) == 3);
    CHECK(number(std::get<0>(nn::call(many, tensor({3.0}), false, 0.5))) == 3.5);
    CHECK(std::get<1>(nn::call(many, tensor({3.0}))) == 7);
    CHECK(number(nn::call(overloaded, tensor({3.0}))) == 3);
    CHECK(number(nn::call(overloaded, tensor({3.0}), Point{2, 1})) == 7);
  }
}

TEST_CASE("hooks may be added and removed on any thread while others call the module") {
  auto m = std::make_shared<Double>();
  std::atomic<int> fired{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        ScopedHook hook =
            m->register_forward_hook([&](Module&, const Args&, const Value&) { ++fired; });
        if (number(nn::call(m, tensor({1.0}))) != 2) fired = -1000000;
      }
    });
  for (auto& t : threads) t.join();
  CHECK(fired >= 600);
  CHECK(hooks_of(*m).empty());
}
