#include "grapnel/base/foreign.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "grapnel/autograd/meta.h"
#include "grapnel/grapnel.h"

namespace grapnel {

namespace {

using base::SourceSite;

std::vector<void*> dead;
SourceSite line_now;

std::string describe_line(uint64_t number) { return "model.py:" + std::to_string(number); }
SourceSite now() { return line_now; }
void let_go(void* wrapper) noexcept { dead.push_back(wrapper); }

/// A front end in another language, as long as it lives.
struct Language {
  Language() { base::set_foreign_language({describe_line, now, let_go}); }
  ~Language() {
    base::set_foreign_language({});
    line_now = {};
    dead.clear();
  }
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const std::exception&) {
    return explain();
  }
  return {};
}

/// A hook of the other language: it holds an object of that language.
struct ForeignHook {
  const void* object;
  Tensor operator()(const Tensor& g) const { return g * 2; }
  const void* foreign() const { return object; }
};
struct ForeignListHook {
  const void* object;
  void operator()(const variable_list&) const {}
  void operator()(const variable_list&, const variable_list&) const {}
  const void* foreign() const { return object; }
};

}  // namespace

TEST_CASE("a foreign site is a number with bit 63 set, and no address of code") {
  const SourceSite site = SourceSite::foreign(17);
  CHECK(site.is_foreign());
  CHECK(site.foreign_number() == 17);
  CHECK(reinterpret_cast<uintptr_t>(site.address) == ((uint64_t{1} << 63) | 17));
  CHECK(!SourceSite{}.is_foreign());
  CHECK(!SourceSite{__builtin_return_address(0)}.is_foreign());
  CHECK(SourceSite::foreign(~uint64_t{0}).foreign_number() == ~uint64_t{0} >> 1);
}

TEST_CASE("the front end says what its lines are called") {
  CHECK(contains(base::describe(SourceSite::foreign(4)), "line number 4 of another language"));
  const Language python;
  CHECK(base::describe(SourceSite::foreign(4)) == "model.py:4");
}

TEST_CASE("a line is one of C++, a foreign one, or nobody's") {
  const Language python;
  const base::SourceLine here = std::source_location::current();
  const base::SourceLine there = SourceSite::foreign(8), nobodys;
  CHECK(here.known());
  CHECK(contains(here.str(), "foreign_test.cpp:"));
  CHECK(there.known());
  CHECK(there.str() == "model.py:8");
  CHECK(!nobodys.known());
  CHECK(nobodys.str().empty());
  CHECK(!base::SourceLine(std::source_location()).known());
}

TEST_CASE("hooks of every kind are listed with the foreign line that registered them") {
  const Language python;
  const auto nothing = [](auto&&...) {};
  const auto line = [](uint64_t number) { return base::SourceLine(SourceSite::foreign(number)); };
  Tensor leaf = ones({2}, requires_grad());
  leaf.register_hook([](const Tensor&) {}, {"a", line(1)});
  leaf.register_post_accumulate_grad_hook([](const Tensor&) {}, {"b", line(2)});
  const Tensor y = leaf * 2;
  y.grad_fn()->register_prehook([](const variable_list&) {}, {"c", line(3)});
  nn::Linear fc(2, 2);
  fc->register_forward_pre_hook([](nn::Module&, const nn::Args&) {},
                                {.name = "d", .site = line(4)});
  fc->register_full_backward_hook([](nn::Module&, const variable_list&, const variable_list&) {},
                                  {.name = "e", .site = line(5)});
  std::vector<std::string> sites;
  for (const auto& hooks : {hooks_of(leaf), hooks_of(y.grad_fn()), hooks_of(*fc)})
    for (const HookInfo& hook : hooks) sites.push_back(hook.name + " " + hook.site);
  CHECK(sites == std::vector<std::string>{"a model.py:1", "b model.py:2", "c model.py:3",
                                          "d model.py:4", "e model.py:5"});
  optim::SGD sgd({leaf}, optim::SGDOptions(0.1));
  sgd.register_step_pre_hook([](optim::Optimizer&) { fail("not yet."); },
                             {.name = "f", .site = line(6)});
  CHECK(contains(error_of([&] { sgd.step(); }), "'f' registered at model.py:6"));
  (void)nothing;
}

TEST_CASE("errors of hooks, nodes and ops name foreign lines, eager and compiled") {
  const Language python;
  Tensor leaf = ones({2}, requires_grad());
  const auto step = [&] {
    Tensor y;
    {
      const base::CallSiteScope line(SourceSite::foreign(30).address);
      y = leaf * 2;
    }
    y.register_hook([](const Tensor&) { fail("no."); }, {"", SourceSite::foreign(31)});
    y.sum().backward();
  };
  for (const bool compiled : {false, true}) {
    CAPTURE(compiled);
    const std::string text = error_of([&] {
      if (compiled) compile(step)();
      else step();
    });
    CAPTURE(text);
    CHECK(contains(text, "registered at model.py:31"));
    CHECK(contains((leaf * 1).grad_fn()->where(), "foreign_test.cpp"));
  }
  line_now = SourceSite::foreign(32);
  CHECK(contains(error_of([&] { matmul(ones({2, 3}), ones({2, 3})); }), "at model.py:32"));
}

TEST_CASE("a node has the foreign line of the call that made it") {
  const Language python;
  const Tensor leaf = ones({2}, requires_grad());
  const base::CallSiteScope line(SourceSite::foreign(40).address);
  CHECK((leaf * 2).grad_fn()->where() == "model.py:40");
}

TEST_CASE(
    "headers and nodes have room for the object that stands for them, and tell of their end") {
  const Language python;
  int object = 0, other = 0;
  {
    Tensor t = ones({2}, requires_grad());
    CHECK(t.impl().wrapper == nullptr);
    t.impl().wrapper = &object;
    const Tensor copy = t, detached = t.detach();
    CHECK(copy.impl().wrapper == &object);
    CHECK(detached.impl().wrapper == nullptr);
    const Tensor y = t * 2;
    CHECK(y.grad_fn()->wrapper == nullptr);
    y.grad_fn()->wrapper = &other;
    CHECK(dead.empty());
  }
  CHECK(dead == std::vector<void*>{&other, &object});
}

TEST_CASE("a wrapper that was taken back hears nothing") {
  const Language python;
  int object = 0;
  {
    Tensor t = ones({2});
    t.impl().wrapper = &object;
    t.impl().wrapper = nullptr;
  }
  CHECK(dead.empty());
}

TEST_CASE("use_count of a node counts tensors, handles and the edges that lead to it") {
  const Tensor leaf = ones({2}, requires_grad());
  Tensor y = leaf * 2;
  {
    const NodePtr node = y.grad_fn();
    CHECK(node->use_count() == 2);
    const Tensor z = y * 3;
    CHECK(node->use_count() >= 3);
  }
  CHECK(y.grad_fn()->use_count() == 2);  // the one that grad_fn() returned, too
}

TEST_CASE("a collector sees what the hooks of a table hold, and can drop them") {
  const Language python;
  int objects[4] = {};
  Tensor leaf = ones({2}, requires_grad());
  leaf.register_hook(ForeignHook{&objects[0]});
  leaf.register_hook([](const Tensor&) {});
  const NodePtr node = grad_accumulator(leaf);
  node->register_prehook(ForeignListHook{&objects[1]});
  node->register_hook(ForeignListHook{&objects[2]});
  std::vector<const void*> seen;
  HookTable& table = *find_meta(leaf)->hooks.get();
  table.visit_user_hooks([&](HookKind, uint32_t, const HookEntry& entry) {
    CHECK(entry.hook.use_count() == 1);
    seen.push_back(entry.hook->foreign());
  });
  CHECK(seen == std::vector<const void*>{&objects[0], nullptr, &objects[1], &objects[2]});
  table.remove_user_hooks();
  CHECK(hooks_of(leaf).empty());
  leaf.sum().backward();
  CHECK(leaf.grad()[0].item<double>() == 1);
}

}  // namespace grapnel
