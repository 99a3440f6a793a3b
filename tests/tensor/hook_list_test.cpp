#include "grapnel/tensor/hook_list.h"

#include <doctest/doctest.h>

#include <chrono>
#include <functional>

using namespace grapnel;

namespace {
using List = HookList<std::function<int()>>;

HookHandle add(List& list, int result, bool prepend = false) {
  return list.add([result] { return result; }, "", std::source_location::current(), prepend);
}
std::vector<int> called(const List& list) {
  std::vector<int> out;
  if (const auto entries = list.snapshot())
    for (const auto& entry : *entries) out.push_back(entry->hook());
  return out;
}
using Results = std::vector<int>;
}  // namespace

TEST_CASE("a hook list keeps the order of registration, prepended hooks first, whatever is removed") {
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
