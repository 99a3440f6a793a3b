/// A hook that owns the tensor it is registered on is found when it is registered.
#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "grapnel/grapnel.h"

namespace grapnel {

namespace {

struct Warnings {
  std::vector<std::string> seen;
  Warnings() {
    set_warning_handler([this](const std::string& text) { seen.push_back(text); });
  }
  ~Warnings() { set_warning_handler(nullptr); }
};

[[gnu::noinline]] std::optional<Tensor> emptied(const Tensor& x) {
  std::optional<Tensor> held = x;
  held.reset();
  return held;
}
Tensor leaf() { return ones({2}, requires_grad()); }

}  // namespace

TEST_CASE("a tensor hook that owns its tensor is named, once for each line") {
  Warnings warnings;
  int line = 0;
  for (int i = 0; i < 3; ++i) {
    const Tensor x = leaf(), y = x * 2;
    line = __LINE__ + 1;
    const ScopedHook hook = y.register_hook([y](const Tensor& g) { return g * y; }, {"scale"});
    y.sum().backward();
  }
  REQUIRE(warnings.seen.size() == 1);
  CAPTURE(warnings.seen[0]);
  CHECK(warnings.seen[0] ==
        str("the tensor hook 'scale' registered at ", __FILE__, ":", line,
            " holds the tensor that it is registered on; neither is freed as long as the hook is "
            "registered.\nCapture t.detach() or what is needed of the tensor; a post-accumulate "
            "hook is given the leaf."));
}

TEST_CASE("a hook's tensor is found wherever it lies in the closure") {
  struct Own {
    std::string name;
    std::optional<Tensor> tensor;
    void operator()(const Tensor&) const {}
  };
  Warnings warnings;
  Tensor x = leaf();
  const Tensor same = x;
  const char letter = 'a';
  const std::string word = "word";
  const auto kept = [x](const Tensor&) {};
  const ScopedHook hooks[] = {
      x.register_hook([letter, x](const Tensor&) { (void)letter; }),
      x.register_hook([word, x](const Tensor&) { (void)word; }),
      x.register_hook([same](const Tensor&) { (void)same; }),
      x.register_hook([pair = std::pair(leaf(), x)](const Tensor&) {}),
      x.register_hook(Own{"own", x}),
      x.register_hook(kept),
      x.register_hook([x, word](const Tensor&) mutable { x = Tensor(), (void)word; }),
  };
  CHECK(warnings.seen.size() == std::size(hooks));
}

TEST_CASE("a post-accumulate hook that owns its leaf is told of the argument") {
  Warnings warnings;
  const Tensor x = leaf();
  const ScopedHook hook =
      x.register_post_accumulate_grad_hook([x](const Tensor&) { x.reset_grad(); });
  REQUIRE(warnings.seen.size() == 1);
  CHECK(warnings.seen[0].starts_with("the post-accumulate hook registered at "));
  CHECK(warnings.seen[0].ends_with(", or use the leaf that the hook is given."));
}

TEST_CASE("hooks that do not own their tensor are not taken for owners") {
  struct Holder {
    std::string name;
    const TensorImpl* address;
    void operator()(const Tensor&) const {}
  };
  struct MoveOnly {
    std::vector<std::unique_ptr<int>> list;
    void operator()(const Tensor&) const {}
  };
  Warnings warnings;
  Tensor x = leaf();
  const Tensor other = leaf(), y = x * 2;
  const std::string word = "a word that is too long to lie in the string itself";
  const ScopedHook hooks[] = {
      x.register_hook([](const Tensor&) {}),
      x.register_hook([&x](const Tensor&) { (void)x.dim(); }),
      x.register_hook([other](const Tensor&) { (void)other; }),
      x.register_hook([values = x.detach()](const Tensor&) { (void)values; }),
      x.register_hook([word](const Tensor&) { (void)word; }),
      x.register_hook(Holder{word, x.impl_ptr()}),
      x.register_hook([address = x.impl_ptr()](const Tensor&) { (void)address; }),
      x.register_hook(MoveOnly{}),
      y.register_hook([x](const Tensor&) {}),
  };
  CHECK(warnings.seen.empty());
}

TEST_CASE("what a closure held before is not taken for what it holds") {
  // The memory of the closures is that of others, which owned the tensor.
  Warnings warnings;
  const Tensor x = leaf();
  for (int i = 0; i < 10; ++i) {
    x.register_hook([none = emptied(x), word = std::string("w")](const Tensor&) {}).remove();
    x.register_hook([f = std::function<void()>([] {})](const Tensor&) {}).remove();
  }
  CHECK(warnings.seen.empty());
}

TEST_CASE("a callable that throws when it is copied leaves no hook") {
  struct Throws {
    Tensor tensor;
    explicit Throws(const Tensor& t) : tensor(t) {}
    Throws(const Throws&) { throw std::runtime_error("copied"); }
    void operator()(const Tensor&) const {}
  };
  const Tensor x = leaf();
  const Throws callable(x);
  CHECK_THROWS_AS(x.register_hook(callable), std::runtime_error);
  CHECK(hooks_of(x).empty());
  CHECK(x.use_count() == 2);
}

}  // namespace grapnel
