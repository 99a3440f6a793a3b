/// will_fire: whether a pass from a tensor would call a hook.
#include "tests/autograd/vectors.h"

namespace grapnel::test {

TEST_CASE("will_fire tells hooks that a pass calls from those that never fire") {
  auto w = leaf({1, 2}), unused = leaf({1, 2});
  auto y = w * 2;
  const auto look = [](const Tensor&) {};
  const auto look_at_all = [](const variable_list&) {};
  const HookHandle on_leaf = w.register_hook(look), on_result = y.register_hook(look),
                   after = w.register_post_accumulate_grad_hook(look),
                   pre = y.grad_fn()->register_prehook(look_at_all),
                   both = register_multi_grad_hook({w, unused}, look_at_all),
                   none = register_multi_grad_hook({unused, unused}, look_at_all),
                   lost = unused.register_hook(look),
                   lost_after = unused.register_post_accumulate_grad_hook(look);
  const Tensor loss = y.sum();
  for (const HookHandle& h : {on_leaf, on_result, after, pre, both}) CHECK(will_fire(h, loss));
  for (const HookHandle& h : {none, lost, lost_after}) CHECK_FALSE(will_fire(h, loss));
  CHECK(will_fire(on_leaf, w));
  CHECK_FALSE(will_fire(on_result, w));

  HookHandle removed = on_leaf;
  removed.remove();
  CHECK_FALSE(will_fire(on_leaf, loss));
  CHECK_FALSE(will_fire(HookHandle(), loss));
  CHECK_ERROR(will_fire(after, constant(1)), "does not require grad");
}

TEST_CASE("will_fire sees backward hooks of the modules whose calls are in the graph") {
  nn::Linear layer(2, 2), other(2, 2);
  const auto pre = [](nn::Module&, const variable_list&) {};
  const auto full = [](nn::Module&, const variable_list&, const variable_list&) {};
  const HookHandle on_results = layer->register_full_backward_pre_hook(pre),
                   on_arguments = layer->register_full_backward_hook(full),
                   late = layer->register_full_backward_hook(full, {.after_parameters = true}),
                   later = layer->register_full_backward_hook(full, {.after_parameters = true}),
                   elsewhere = other->register_full_backward_hook(full);
  const Tensor x = ones({1, 2}), y = ones({1, 2}, requires_grad());
  for (const Tensor& argument : {x, y}) {
    const Tensor loss = layer(argument).sum();
    for (const HookHandle& h : {on_results, on_arguments, late, later}) CHECK(will_fire(h, loss));
    CHECK_FALSE(will_fire(elsewhere, loss));
    // Registered after the call.
    CHECK_FALSE(will_fire(layer->register_full_backward_hook(full), loss));
  }
  CHECK_FALSE(will_fire(on_arguments, layer->forward(y).sum()));  // calls no hooks
}

}  // namespace grapnel::test
