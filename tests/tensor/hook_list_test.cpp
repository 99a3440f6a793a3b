#include "grapnel/tensor/hook_list.h"

#include <doctest/doctest.h>

#include <chrono>
#include <functional>
#include <string>

#include "grapnel/grapnel.h"

using namespace grapnel;

namespace {
using List = HookList<std::function<int()>>;

HookHandle add(List& list, int result, bool prepend = false) {
  return list.add(HookKind::forward, [result] { return result; }, {.prepend = prepend});
}
std::vector<int> called(const List& list) {
  std::vector<int> out;
  if (const auto entries = list.snapshot())
    for (const auto& entry : *entries) out.push_back(entry->hook());
  return out;
}
using Results = std::vector<int>;
}  // namespace

TEST_CASE(
    "a hook list keeps the order of registration, prepended hooks first, whatever is removed") {
  List list;
  CHECK(list.empty());
  HookHandle a = add(list, 1), b = add(list, 2), c = add(list, 3, true), d = add(list, 4, true);
  CHECK(called(list) == Results{4, 3, 1, 2});
  const auto before = list.snapshot();
  c.remove();
  CHECK_FALSE(c.active());
  CHECK(a.active());
  CHECK(called(list) == Results{4, 1, 2});
  CHECK(before->size() == 4);  // whoever runs a list has it as it was
  const List copy(list);
  for (HookHandle* h : {&d, &a, &b}) h->remove();
  CHECK(list.empty());
  CHECK(called(copy) == Results{4, 1, 2});
}

TEST_CASE("a hook removed with `now` is stopped for those who run an older list") {
  List list;
  HookHandle a = add(list, 1);
  const auto held = list.snapshot();
  a.remove();
  CHECK_FALSE((*held)[0]->stopped);
  a.remove(HookHandle::now);
  CHECK((*held)[0]->stopped);
}

TEST_CASE("registering and removing thousands of hooks of one list takes no time to speak of") {
  List list;
  std::vector<HookHandle> handles;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 50000; ++i) handles.push_back(add(list, i, i % 2 == 0));
  CHECK(called(list).size() == 50000);
  for (HookHandle& h : handles) h.remove();
  CHECK(list.empty());
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(3));
}

TEST_CASE("every kind of hook has a name") {
  for (int i = 0; i < kHookKinds; ++i) {
    CAPTURE(i);
    CHECK(!name(static_cast<HookKind>(i)).empty());
  }
}

TEST_CASE("options that a kind of hook does not have are refused by name") {
  const Tensor x = ones({1}, requires_grad());
  const auto nothing = [](const Tensor&) {};
  const auto error_of = [](auto&& f) {
    try {
      f();
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  CHECK(error_of([&] {
          x.register_hook(nothing, {.prepend = true});
        }).starts_with("a tensor hook has no option prepend"));
  CHECK(error_of([&] {
          x.register_post_accumulate_grad_hook(nothing, {.always_call = true});
        }).starts_with("a post-accumulate hook has no option always_call"));
  nn::Linear fc(1, 1);
  const auto pre = [](nn::Module&, const nn::Args&) {};
  CHECK(error_of([&] {
          fc->register_forward_pre_hook(pre, {.after_parameters = true});
        }).starts_with("a forward pre-hook has no option after_parameters"));
  CHECK_NOTHROW(fc->register_forward_pre_hook(pre, {.name = "first", .prepend = true}));
}

TEST_CASE("a name may stand for the options") {
  const Tensor x = ones({1}, requires_grad());
  const std::string name = "b";
  x.register_hook([](const Tensor&) {}, "a");
  x.register_hook([](const Tensor&) {}, name);
  x.register_hook([](const Tensor&) {}, {"c"});
  x.register_hook([](const Tensor&) {}, HookOptions{name});
  std::string names;
  for (const HookInfo& hook : hooks_of(x)) {
    names += hook.name;
    CHECK(hook.site.find("hook_list_test.cpp:") != std::string::npos);
  }
  CHECK(names == "abcb");
}
