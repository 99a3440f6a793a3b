/// Hooks that the library registers for somebody have the line of the user's that wanted them, or
/// none: never one of the library's.
#include <doctest/doctest.h>

#include <string>

#include "grapnel/grapnel.h"

namespace grapnel {

namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}
void check_sites(const std::vector<HookInfo>& hooks, size_t number) {
  CHECK(hooks.size() == number);
  for (const HookInfo& hook : hooks) {
    CAPTURE(hook.name);
    CAPTURE(hook.site);
    CHECK((hook.site.empty() || contains(hook.site, "hook_site_test.cpp:")));
    CHECK(!hook.name.empty());
  }
}

}  // namespace

TEST_CASE("the hooks that a module's backward hooks make have their lines") {
  nn::Linear fc(2, 2);
  const auto nothing = [](nn::Module&, const variable_list&, const variable_list&) {};
  fc->register_full_backward_hook(nothing);
  fc->register_full_backward_hook(nothing, {.after_parameters = true});
  const Tensor x = ones({1, 2}, requires_grad()) * 1;
  const Tensor y = fc(x);
  check_sites(hooks_of(y.grad_fn()), 1);
  CHECK(!hooks_of(y.grad_fn())[0].site.empty());
}

TEST_CASE("ready hooks have no line that nobody wrote") {
  Tensor w = ones({2}, requires_grad());
  optim::SGD sgd({w}, optim::SGDOptions(0.1));
  optim::StepInBackward stepping(sgd);
  hooks::Statistics statistics;
  statistics.attach("w", w);
  check_sites(hooks_of(w), 2);
}

TEST_CASE("data-parallel training names no line of the library") {
  dist::run_threads(1, [](dist::ProcessGroup group) {
    nn::Linear fc(2, 1);
    dist::DistributedDataParallel parallel(fc, group);
    check_sites(hooks_of(grad_accumulator(fc->weight)), 1);
  });
}

}  // namespace grapnel
