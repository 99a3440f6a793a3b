#include "tests/autograd/vectors.h"

using namespace grapnel;
using namespace grapnel::test;

TEST_CASE("eager.H1: removing a hook twice is silent") {
  auto v = leaf({0, 0, 0});
  HookHandle h = v.register_hook(times(2));
  CHECK(h.active());
  h.remove();
  h.remove();
  CHECK_FALSE(h.active());
  v.backward(constant({1, 2, 3}));
  CHECK(values(v.grad()) == Values{1, 2, 3});
}

TEST_CASE("eager.H2: after removal later passes go on accumulating without the hook") {
  auto v = leaf({0, 0, 0});
  HookHandle handles[] = {v.register_hook(times(4)),
                          v.register_hook([](const Tensor& g) { return g / 2; }),
                          v.register_hook(times(3))};
  v.backward(constant({1, 2, 3}));
  CHECK(values(v.grad()) == Values{6, 12, 18});
  for (HookHandle& h : handles) h.remove();
  v.backward(constant({1, 2, 3}));
  CHECK(values(v.grad()) == Values{7, 14, 21});

  auto w = leaf({0, 0, 0});
  HookHandle h = w.register_hook(times(4));
  w.backward(constant({1, 2, 3}));
  CHECK(values(w.grad()) == Values{4, 8, 12});
  h.remove();
  w.backward(constant({1, 2, 3}));
  CHECK(values(w.grad()) == Values{5, 10, 15});
}

TEST_CASE("eager.H3: a scoped hook is gone at scope exit, also after an exception") {
  auto x = leaf(1);
  try {
    ScopedHook guard = x.register_hook(times(5));
    (x * 1).backward();
    CHECK(value(x.grad()) == 5);
    throw 1;
  } catch (int) {
  }
  x.reset_grad();
  (x * 1).backward();
  CHECK(value(x.grad()) == 1);
}

TEST_CASE("eager.H4: a handle may outlive tensor and graph") {
  HookHandle leaf_handle, node_handle;
  {
    auto x = leaf(1);
    auto y = x * 2;
    leaf_handle = x.register_hook(identity);
    node_handle = y.register_hook(identity);
  }
  leaf_handle.remove();
  node_handle.remove();
  CHECK_FALSE(leaf_handle.active());
}

TEST_CASE("eager.H5: dropping a handle keeps the hook, and copies of a handle are equal") {
  auto x = leaf(1);
  HookHandle copy;
  {
    HookHandle h = x.register_hook(times(2));
    copy = h;
    CHECK(copy == h);
  }
  (x * 1).backward();
  CHECK(value(x.grad()) == 2);
  copy.remove();
  x.reset_grad();
  (x * 1).backward();
  CHECK(value(x.grad()) == 1);
}

TEST_CASE("eager.H6: hook and handle of a non-leaf live as long as its node") {
  auto run = [](bool remove) {
    auto x = leaf(1);
    HookHandle h;
    Tensor z;
    {
      auto y = x * 2;
      z = y * 3;
      h = y.register_hook(times(10));
    }
    if (remove) h.remove();
    z.backward();
    return value(x.grad());
  };
  CHECK(run(false) == 60);
  CHECK(run(true) == 6);
}

TEST_CASE("eager.H7: a list is taken as it is when it starts to run") {
  auto x = leaf(1);
  int count = 0;
  HookHandle b;
  x.register_hook([&](const Tensor&) { b.remove(); });
  b = x.register_hook([&](const Tensor&) { ++count; });
  (x * 1).backward();
  CHECK(count == 1);
  (x * 1).backward();
  CHECK(count == 1);
}

TEST_CASE("eager.H8: a hook added to the running list first runs in the next pass") {
  auto x = leaf(1);
  int added = 0;
  bool once = false;
  x.register_hook([&](const Tensor&) {
    if (!std::exchange(once, true))
      for (int i = 0; i < 100; ++i) x.register_hook([&](const Tensor&) { ++added; });
  });
  (x * 1).backward();
  CHECK(added == 0);
  (x * 1).backward();
  CHECK(added == 100);
}

TEST_CASE("eager.H9: a hook may remove itself") {
  auto t = ones({1, 5}, requires_grad());
  HookHandle h;
  h = t.register_hook([&](const Tensor& g) {
    h.remove();
    return zeros_like(g);
  });
  t.mean().backward();
  CHECK(values(t.grad()) == Values(5, 0));
  t.reset_grad();
  t.mean().backward();
  CHECK(t.grad().allclose(full({1, 5}, 0.2)));
}

TEST_CASE("eager.H10: handles are ids that stay valid, and a wrong number is an error") {
  auto x = leaf(1);
  auto y = x * 2;
  unsigned id = y.register_hook(times(10));
  CHECK_ERROR(y.remove_hook(3), "does not name a hook of this tensor");
  y.remove_hook(id);
  y.remove_hook(id);
  (y * 1).backward();
  CHECK(value(x.grad()) == 2);

  // After an in-place change the tensor has a new list; the handle still names the old hook.
  auto a = leaf(1);
  auto b = a.clone();
  HookHandle h = b.register_hook(times(2));
  b.mul_(2);
  b.register_hook(times(7));
  b.remove_hook(h);
  b.backward();
  CHECK(value(a.grad()) == 14);
}

TEST_CASE("eager.H11: hooks are not copied by clone or detach") {
  auto x = leaf(1);
  x.register_hook(times(10));
  auto copy = x.detach().clone().set_requires_grad(true);
  (copy * 1).backward();
  CHECK(value(copy.grad()) == 1);
  CHECK(hooks_of(copy).empty());
}

TEST_CASE("eager.H12: ids are unique in the process and grow") {
  auto x = leaf(1), y = leaf(1);
  const uint64_t a = x.register_hook(identity).id(), b = y.register_hook(identity).id(),
                 c = x.register_hook(identity).id();
  CHECK(a < b);
  CHECK(b < c);
}

TEST_CASE("hooks can be listed with kind, name and place of registration") {
  auto x = leaf(1);
  x.register_hook(identity, "clip");
  x.register_post_accumulate_grad_hook([](const Tensor&) {}, "step");
  grad_accumulator(x)->register_prehook([](const variable_list&) {});
  const auto infos = hooks_of(x);
  REQUIRE(infos.size() == 3);
  CHECK(infos[0].kind == HookKind::tensor);
  CHECK(infos[0].name == "clip");
  CHECK(contains(infos[0].site, "handle_test.cpp:"));
  CHECK(infos[1].kind == HookKind::node_pre);
  CHECK(infos[2].kind == HookKind::post_accumulate);
  CHECK(infos[2].name == "step");
}

TEST_CASE(
    "asking for a gradient that is not kept warns once per line and says what would keep it") {
  std::vector<std::string> warnings;
  set_warning_handler([&](const std::string& text) { warnings.push_back(text); });
  auto x = leaf(2);
  auto y = x * 3, z = x * 4;
  z.retain_grad();
  CHECK((!x.grad().defined() && !z.grad().defined()));
  (y + z).backward();
  for (int i = 0; i < 3; ++i) CHECK(!y.grad().defined());
  CHECK((x.grad().defined() && z.grad().defined()));
  set_warning_handler(nullptr);
  REQUIRE(warnings.size() == 1);
  CHECK(contains(warnings[0], "the result of mul"));
  CHECK(contains(warnings[0], "handle_test.cpp:"));
  CHECK(contains(warnings[0], "retain_grad()"));
}
