/// What passes, scopes and registrations leave behind when they end, or are refused.
#include <thread>

#include "grapnel/autograd/tape_observer.h"
#include "tests/autograd/vectors.h"

namespace grapnel::test {

namespace {
/// Whether this run of the tests records all backward passes.
bool recorded_passes() {
  bool recorded = false;
  auto x = leaf(1);
  x.register_hook([&](const Tensor& g) { recorded = g.impl().storage->pending() != nullptr; });
  (x * 2).backward();
  return recorded;
}
}  // namespace

TEST_CASE("a hook on several tensors that is refused is registered on none of them") {
  auto a = leaf(1), b = leaf(1);
  const Tensor y = b * 2, plain = constant(1);
  int calls = 0;
  const auto count = [&](const variable_list&) { ++calls; };
  CHECK_ERROR(register_multi_post_accumulate_grad_hook({a, b, y}, count),
              "tensor 2 is the result of an operation");
  CHECK_ERROR(register_multi_post_accumulate_grad_hook({a, Tensor()}, count), "tensor 1 is undefined");
  CHECK_ERROR(register_multi_post_accumulate_grad_hook({a, plain}, count),
              "tensor 1 does not require grad");
  CHECK_ERROR(register_multi_post_accumulate_grad_hook({}, count),
              "register_multi_post_accumulate_grad_hook: the list of tensors is empty");
  CHECK_ERROR(register_multi_grad_hook({a, plain}, count), "tensor 1 does not require grad");
  CHECK(hooks_of(a).empty());
  (a * y).backward();
  CHECK(calls == 0);
}

TEST_CASE("a CompiledBackward may end inside a hook of the pass that it records") {
  auto w = leaf(3);
  std::optional<CompiledBackward> scope(std::in_place);
  HookHandle h = w.register_hook([&](const Tensor&) { scope.reset(); });
  (w * w).backward();
  h.remove();
  (w * w).backward();
  CHECK(value(w.grad()) == 12);
}

TEST_CASE("a StrongBackward that ends inside a hook stays ended") {
  auto a = leaf(1), b = leaf(1);
  std::optional<autograd::StrongBackward> scope(std::in_place);
  HookHandle h = a.register_hook([&](const Tensor&) { scope.reset(); });
  (a * 2).backward();
  h.remove();
  a.reset_grad();
  b.register_hook([](const Tensor&) { throw std::runtime_error("no"); });
  CHECK_THROWS_AS((b * 3 + a).backward(), std::runtime_error);
  // Recorded passes keep nothing when they fail, in any case.
  if (!recorded_passes()) CHECK(value(a.grad()) == 1);
}

TEST_CASE("under StrongBackward a failing pass leaves retained gradients as they were") {
  auto x = leaf({1, 2});
  auto y = x * 2, z = x * 3;
  y.retain_grad();
  z.retain_grad();
  y.sum().backward({}, true);
  bool fails = true;
  x.register_hook([&](const Tensor&) {
    if (fails) throw std::runtime_error("no");
  });
  const autograd::StrongBackward strong;
  CHECK_THROWS_AS((y.sum() + z.sum()).backward({}, true), std::runtime_error);
  CHECK(values(y.grad()) == Values{1, 1});
  CHECK_FALSE(z.grad().defined());
  fails = false;
  (y.sum() + z.sum()).backward();
  CHECK(values(y.grad()) == Values{2, 2});
  CHECK(values(z.grad()) == Values{1, 1});
}

TEST_CASE("hooks of a single root see the seed even if none of the inputs is reached") {
  auto x = leaf(1), other = leaf(1);
  const auto make = [&](int& fired) {
    Tensor y = x * 2;
    y.register_hook([&fired](const Tensor& g) { return ++fired, g * 10; });
    y.retain_grad();
    y.grad_fn()->register_prehook([&fired](const variable_list&) { fired += 100; });
    return y;
  };
  int fired = 0, second = 0;
  Tensor y = make(fired);
  y.backward({}, true, false, variable_list{other});
  CHECK(fired == 1);
  CHECK(value(y.grad()) == 10);
  CHECK_FALSE(autograd::grad({y}, {other}, {}, true, false, true)[0].defined());
  CHECK(fired == 2);
  CHECK(value(y.grad()) == 20);

  // Several roots: only those that lead somewhere, also if it is one tensor twice.
  fired = 0;
  y = make(fired);
  const Tensor z = make(second);
  autograd::backward({y, z}, {}, true, false, {other});
  autograd::backward({y, y}, {}, true, false, {other});
  CHECK(fired == 0);
  CHECK(second == 0);
  CHECK_FALSE(y.grad().defined());

  // The root may be a leaf; its grad() is not written.
  fired = 0;
  auto w = leaf(1);
  w.register_hook([&](const Tensor&) { ++fired; });
  w.backward({}, true, false, variable_list{other});
  CHECK(fired == 1);
  CHECK_FALSE(w.grad().defined());
}

namespace {
struct GivesNothing : autograd::Function<GivesNothing> {
  static Tensor forward(autograd::AutogradContext*, const Tensor& x) { return x * 2; }
  static variable_list backward(autograd::AutogradContext*, variable_list) { return {Tensor()}; }
};
}  // namespace

TEST_CASE("a pass of grad() that refuses an unused input has changed nothing") {
  auto x = leaf({1, 2}), unused = leaf(1);
  int fired = 0;
  auto y = x * x;
  y.retain_grad();
  y.register_hook([&](const Tensor&) { ++fired; });
  CHECK_ERROR(autograd::grad({y.sum()}, {x, unused}), "input 1 was not used");
  CHECK(fired == 0);
  CHECK_FALSE(y.grad().defined());
  y.sum().backward();  // nothing was freed
  CHECK(values(x.grad()) == Values{2, 4});

  // What only the pass can find out: retained gradients are put back.
  auto z = x * 3;
  z.retain_grad();
  CHECK_ERROR(autograd::grad({GivesNothing::apply(z * 1).sum() + z.sum() * 0}, {unused}), "input 0");
  CHECK_ERROR(autograd::grad({(GivesNothing::apply(unused) + z).sum()}, {unused}), "input 0 was not used");
  CHECK_FALSE(z.grad().defined());
}

TEST_CASE("anomaly mode ends with its last guard, whatever the order in which guards end") {
  auto a = std::make_unique<DetectAnomalyGuard>(true);
  auto b = std::make_unique<DetectAnomalyGuard>(false);
  CHECK_FALSE(AnomalyMode::should_check_nan());
  a.reset();
  CHECK(AnomalyMode::is_enabled());
  CHECK_FALSE(AnomalyMode::should_check_nan());
  b.reset();
  CHECK_FALSE(AnomalyMode::is_enabled());

  // Two threads, each with a scope of its own that overlaps the other's.
  for (int round = 0; round < 50; ++round) {
    const auto scope = [] {
      const DetectAnomalyGuard guard;
      std::this_thread::yield();
      if (!AnomalyMode::is_enabled()) throw std::logic_error("off inside a guard");
    };
    std::thread other(scope);
    scope();
    other.join();
    CHECK_FALSE(AnomalyMode::is_enabled());
  }
}

TEST_CASE("what a pack hook returns does not keep its own graph alive") {
  const auto as_is = [](const Tensor& t) { return t; };
  const auto view = [](const Tensor& t) { return t.narrow(0, 0, 2); };
  const auto any = [](const Tensor& t) { return std::any(t); };
  const auto from_any = [](const std::any& t) { return std::any_cast<Tensor>(t); };
  const auto is_freed = [](auto pack, auto unpack) {
    const auto alive = std::make_shared<int>(0);
    auto x = leaf({1, 2});
    {
      autograd::SavedTensorHooks hooks(pack, unpack);
      const Tensor y = (x * 1).exp();  // saves its own result
      y.register_hook([alive](const Tensor&) {});
    }
    return alive.use_count() == 1;  // never run
  };
  CHECK(is_freed(as_is, as_is));
  CHECK(is_freed(view, as_is));
  CHECK(is_freed(any, from_any));
}

TEST_CASE("a hook on the node of a view is not lost by a change in place") {
  const auto look = [](const variable_list&) {};
  auto x = leaf({1, 2});
  auto base = x * 2, view = base.narrow(0, 0, 1);
  HookHandle h = view.grad_fn()->register_prehook(look);
  CHECK_ERROR(base.add_(1), "a view of the tensor to change has hooks");
  CHECK_ERROR(view.add_(1), "a view of the tensor to change has hooks");
  h.remove();
  base.add_(1);

  // A node that was reached otherwise: the view's next use says so.
  auto other = base.narrow(0, 1, 1), user = other * 3;
  HookHandle through = user.grad_fn()->next_edge(0).node->register_prehook(look);
  base.add_(1);
  CHECK_ERROR(other * 2, "which would never fire again");
  through.remove();
  (other * 2).sum().backward();
  CHECK(values(x.grad()) == Values{0, 4});
}

namespace {
thread_local int of_the_program = 0;

class CountOps : public TapeObserver {
 public:
  int ops = 0;
  void on_op(Node&, std::span<const Tensor>) override { ++ops; }
};
}  // namespace

TEST_CASE("a pass started inside many others has everything that belongs to the thread") {
  of_the_program = 7;
  const auto observer = std::make_shared<CountOps>();
  TapeObserver::add(observer);
  const std::thread::id caller = std::this_thread::get_id();
  int deepest = 0, right = 0;
  const std::function<void(int)> nest = [&](int depth) {
    const EnableGradGuard grad;
    auto x = leaf(1);
    x.register_hook([&, depth](const Tensor&) {
      deepest = std::max(deepest, depth);
      const int before = observer->ops;
      {
        const EnableGradGuard on;
        (void)(x * 2);
      }
      right += of_the_program == 7 && std::this_thread::get_id() == caller &&
               observer->ops == before + 1;
      if (depth < 130) nest(depth + 1);
    });
    (x * 1).backward();
  };
  nest(0);
  CHECK(deepest == 130);
  CHECK(right == 131);
}

TEST_CASE("an exception leaves passes that are nested deeply") {
  const std::function<void(int)> nest = [&](int depth) {
    auto x = leaf(1);
    x.register_hook([&, depth](const Tensor&) {
      if (depth == 70) throw std::runtime_error("at the bottom");
      const EnableGradGuard grad;
      nest(depth + 1);
    });
    (x * 1).backward();
  };
  CHECK_THROWS_WITH_AS(nest(0), "at the bottom", std::runtime_error);
  auto x = leaf(1);
  (x * 2).backward();
  CHECK(value(x.grad()) == 2);
}

}  // namespace grapnel::test
