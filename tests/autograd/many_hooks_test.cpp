/// Hooks by the thousand, chains by the hundred thousand, and hooks of several threads at once.
#include <chrono>
#include <thread>

#include "grapnel/autograd/meta.h"
#include "tests/autograd/vectors.h"

using namespace grapnel;
using namespace grapnel::test;

namespace {
using std::chrono::steady_clock;

void on_threads(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int t = 0; t < count; ++t) threads.emplace_back([&body, t] { body(t); });
  for (std::thread& t : threads) t.join();
}
}  // namespace

TEST_CASE("removing thousands of hooks of a tensor, in any order, keeps the order of the others") {
  auto x = leaf(1);
  std::vector<int> fired;
  std::vector<HookHandle> handles;
  constexpr int kHooks = 60000;
  for (int i = 0; i < kHooks; ++i)
    handles.push_back(x.register_hook([&fired, i](const Tensor&) { fired.push_back(i); }));
  const auto begin = steady_clock::now();
  for (int i = 0; i < kHooks; ++i)
    if (i % 100 != 7) handles[static_cast<size_t>((i * 7919) % kHooks)].remove();
  std::vector<int> left;
  for (int i = 0; i < kHooks; ++i)
    if (handles[static_cast<size_t>(i)].active()) left.push_back(i);
  CHECK(steady_clock::now() - begin < std::chrono::seconds(3));
  CHECK(left.size() == kHooks / 100);
  x.backward();
  CHECK(fired == left);
  CHECK(hooks_of(x).size() == left.size());
}

TEST_CASE("hooks that remove themselves and each other while firing leave the rest in order") {
  auto x = leaf(1);
  std::vector<int> fired;
  std::vector<HookHandle> handles;
  for (int i = 0; i < 100; ++i)
    handles.push_back(x.register_hook([&, i](const Tensor&) {
      fired.push_back(i);
      if (i % 2 == 0) handles[static_cast<size_t>(i)].remove();
      if (i % 10 == 0) handles[static_cast<size_t>(99 - i)].remove();
    }));
  x.backward();
  CHECK(fired.size() == 100);  // each list is taken as it is when it starts
  fired.clear();
  x.backward();
  std::vector<int> expected;
  for (int i = 1; i < 100; i += 2)
    if (i % 10 != 9) expected.push_back(i);
  CHECK(fired == expected);
}

TEST_CASE("a long list that shrinks to one hook and grows again fires what is left") {
  auto x = leaf(1);
  std::vector<HookHandle> handles;
  for (int i = 0; i < 40; ++i) handles.push_back(x.register_hook(times(1)));
  HookHandle last = x.register_hook(times(3));
  for (HookHandle& h : handles) h.remove();
  x.backward();
  CHECK(value(x.grad()) == 3);
  x.register_hook(times(5));
  x.reset_grad();
  x.backward();
  CHECK(value(x.grad()) == 15);
  last.remove();
  x.reset_grad();
  x.backward();
  CHECK(value(x.grad()) == 5);
}

TEST_CASE("a chain of 300,000 leaves, each held by a hook of the next, is freed without a deep stack") {
  Tensor t = leaf(1);
  for (int i = 0; i < 300000; ++i) {
    Tensor next = leaf(1);
    next.register_hook([t](const Tensor&) {});
    t = next;
  }
  t = Tensor();
}

TEST_CASE("a chain of 300,000 gradients is freed without a deep stack") {
  Tensor t = ones({1});
  for (int i = 0; i < 300000; ++i) {
    Tensor next = ones({1});
    next.set_grad(t);
    t = next;
  }
  t = Tensor();
}

TEST_CASE("hooks on views of one tensor leave nothing behind in it") {
  auto w = leaf({1, 2, 3, 4}) * 1;
  for (int i = 0; i < 5000; ++i) w.view({2, 2}).register_hook([](const Tensor&) {});
  Tensor lasting = w.view({2, 2});
  for (int i = 0; i < 5000; ++i) lasting.register_hook([](const Tensor&) {}).remove();
  CHECK(find_meta(w)->hooked_views.size() < 20);
  w.add_(1);
  HookHandle kept = lasting.register_hook([](const Tensor&) {});
  CHECK_THROWS_WITH_AS(w.add_(1), doctest::Contains("a view of the tensor to change has hooks"),
                       Error);
}

TEST_CASE("threads may put hooks on views of one parameter at once") {
  Tensor w = ones({2, 2}, requires_grad());
  std::atomic<int> fired{0};
  on_threads(3, [&](int) {
    for (int i = 0; i < 1000; ++i) {
      Tensor v = w.t();
      v.register_hook([&](const Tensor&) { ++fired; });
      v.sum().backward();
    }
  });
  CHECK(fired == 3000);
  CHECK(w.grad()[0][0].item<double>() == 3000);
}

TEST_CASE("a retained gradient adds up over passes that run through one graph at once") {
  for (int round = 0; round < 20; ++round) {
    Tensor x = ones({4}, requires_grad()), y = x * 2;
    y.retain_grad();
    Tensor z = (y * y).sum();
    on_threads(3, [&](int) {
      for (int i = 0; i < 50; ++i) z.backward({}, true);
    });
    CHECK(y.grad()[0].item<double>() == 150 * 4);
    CHECK(x.grad()[0].item<double>() == 150 * 8);
  }
}
