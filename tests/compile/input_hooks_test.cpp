/// compiled-hooks.md section 2.1: hooks registered on an input of a compiled function. V = [0,0,0],
/// seed [1,2,3].
#include "tests/compile/modes.h"

using namespace grapnel;

namespace {

using Values = std::vector<double>;

struct Setup {
  Tensor v = zeros({3}, requires_grad()), seed = tensor({1.0f, 2.0f, 3.0f}), y = randn({2, 2}),
         z = randn({2, 2});
};

/// Runs body(setup) captured or not, checks that it returns V itself, and compares V's gradient.
template <class Body>
void expect_gradient(Most most, const Values& want, Body body) {
  in_all_modes(most, [&](Mode& mode) {
    Setup s;
    const Tensor first = mode.call([&] { return body(s); });
    CHECK(first.is_same(s.v));
    mode.backward([&] { first.backward(s.seed); });
    CHECK(values_of(s.v.grad()) == want);
  });
}

Tensor times_four(const Tensor& g) { return g * 4.0; }

}  // namespace

TEST_CASE("compiled.1 only registering a hook makes no graph") {
  expect_gradient({.F = 0}, {2, 4, 6}, [](Setup& s) {
    s.v.register_hook([](const Tensor& g) { return g * 2.0; });
    return s.v;
  });
}

TEST_CASE("compiled.2 compiled.10 registration does not split the graph") {
  std::vector<Tensor> kept;
  expect_gradient({}, {2, 4, 6}, [&](Setup& s) {
    s.v.register_hook([](const Tensor& g) { return g * 2.0; });
    kept = {s.y * s.y, s.z * s.z};
    return s.v;
  });
}

TEST_CASE("compiled.3 compiled.11 removing a hook in the body is not a break") {
  std::vector<Tensor> kept;
  expect_gradient({}, {3, 6, 9}, [&](Setup& s) {
    HookHandle h = s.v.register_hook([](const Tensor& g) { return g * 2.0; });
    kept = {s.z * s.z};
    h.remove();
    s.v.register_hook([](const Tensor& g) { return g * 3.0; });
    return s.v;
  });
}

TEST_CASE("compiled.4 compiled.5 handles and their copies come back valid and equal") {
  in_all_modes({}, [](Mode& mode) {
    Setup s;
    const auto [x, h, copy] = mode.call([&] {
      HookHandle handle = s.v.register_hook([](const Tensor& g) { return g * 2.0; });
      return std::tuple(s.v, handle, handle);
    });
    CHECK(h == copy);
    CHECK(h.active());
    mode.backward([&, root = x] { root.backward(s.seed); });
    CHECK(values_of(s.v.grad()) == Values{2, 4, 6});
  });
}

TEST_CASE("compiled.6 a handle removed twice in the body is still a handle") {
  in_all_modes({}, [](Mode& mode) {
    Setup s;
    auto [h, again] = mode.call([&] {
      HookHandle handle = s.v.register_hook([](const Tensor& g) { return g * 2.0; });
      handle.remove();
      handle.remove();
      const Tensor used = s.z * s.z;
      return std::pair(handle, handle);
    });
    CHECK(!h.active());
    h.remove();
    mode.backward([&] { s.v.backward(s.seed); });
    CHECK(values_of(s.v.grad()) == Values{1, 2, 3});
  });
}

TEST_CASE("compiled.7 a handle stored in an object that was passed in") {
  struct Owner {
    std::optional<HookHandle> handle;
  };
  in_all_modes({}, [](Mode& mode) {
    Setup s;
    Owner owner;
    mode.call(
        [&](Owner& o) {
          o.handle = s.v.register_hook([](const Tensor& g) { return g * 2.0; });
          return s.z * s.z;
        },
        owner);
    CHECK(owner.handle.has_value());
    mode.backward([&] { s.v.backward(s.seed); });
    CHECK(values_of(s.v.grad()) == Values{2, 4, 6});
  });
}

TEST_CASE("compiled.8 a named hook is like any other") {
  expect_gradient({.F = 0}, {2, 4, 6}, [](Setup& s) {
    auto twice = [](const Tensor& g) { return g * 2.0; };
    s.v.register_hook(twice, HookOptions{"twice"});
    return s.v;
  });
}

TEST_CASE("compiled.9 the hook of an unused path does not fire") {
  in_all_modes({}, [](Mode& mode) {
    Setup s;
    int fired = 0;
    const auto [x, z] = mode.call([&] {
      auto hook = [&](const Tensor& g) {
        ++fired;
        return g * 2.0;
      };
      s.v.register_hook(hook);
      Tensor square = s.v * s.v;
      square.register_hook(hook);
      return std::pair(s.v, square);
    });
    mode.backward([&, root = x] { root.backward(s.seed); });
    CHECK(values_of(s.v.grad()) == Values{2, 4, 6});
    CHECK(fired == 1);
  });
}

TEST_CASE("compiled.12 free functions are hooks") {
  Tensor kept;
  expect_gradient({}, {4, 8, 12}, [&](Setup& s) {
    s.v.register_hook(times_four);
    kept = s.v * s.v;
    return s.v;
  });
}

TEST_CASE("compiled.13 several hooks run in the order of registration") {
  Tensor kept;
  expect_gradient({}, {6, 12, 18}, [&](Setup& s) {
    s.v.register_hook(times_four);
    s.v.register_hook([](const Tensor& g) { return g / 2.0; });
    s.v.register_hook([](const Tensor& g) { return g * 3.0; });
    kept = s.v * s.v;
    return s.v;
  });
}

TEST_CASE("compiled.14 hooks removed after the call leave the gradient to accumulate alone") {
  in_all_modes({.F = 1, .B = 2}, [](Mode& mode) {
    Setup s;
    auto handles = mode.call([&] {
      std::vector<HookHandle> list{s.v.register_hook(times_four),
                                   s.v.register_hook([](const Tensor& g) { return g / 2.0; }),
                                   s.v.register_hook([](const Tensor& g) { return g * 3.0; })};
      const Tensor used = s.v * s.v;
      return list;
    });
    mode.backward([&] { s.v.backward(s.seed); });
    CHECK(values_of(s.v.grad()) == Values{6, 12, 18});
    for (HookHandle& h : handles) h.remove();
    mode.backward([&] { s.v.backward(s.seed); });
    CHECK(values_of(s.v.grad()) == Values{7, 14, 21});
  });
}

TEST_CASE("compiled.15 a handle written to a global") {
  static std::optional<HookHandle> global;
  in_all_modes({.F = 1, .B = 2}, [](Mode& mode) {
    Setup s;
    const Tensor used = mode.call([&] {
      global = s.v.register_hook(times_four);
      return s.v * s.v;
    });
    mode.backward([&] { s.v.backward(s.seed); });
    CHECK(values_of(s.v.grad()) == Values{4, 8, 12});
    global->remove();
    mode.backward([&] { s.v.backward(s.seed); });
    CHECK(values_of(s.v.grad()) == Values{5, 10, 15});
  });
}
