/// The backward side of one module call: identity nodes on its gradient edges, with the module's
/// backward hooks on them.
///
/// Note [Module backward hooks]
/// For a call with backward hooks, one identity node stands between everything forward does with
/// its arguments and where their gradients flow, and another between the results and what made
/// them. Backward pre-hooks are post-hooks of the second, backward hooks are post-hooks of the
/// first; if no argument requires grad there is no first one, and they run after the pre-hooks
/// instead, with undefined grad_input. Arguments are the user's tensors themselves: only their
/// gradients are routed, and only inside the call. Results are what forward returned, unless that
/// is a leaf or a tensor made before the call, which then gets an alias.
///
/// The hooks are those registered when the call was made. They fire in a pass that comes through
/// the results and goes on to the arguments, once. A hook with `after_parameters` fires when,
/// besides, the last parameter of the module that the pass updates has been updated.
///
/// A graph keeps the modules whose hooks it holds. A module that in turn stores a result of its own
/// would keep itself alive for ever; store result.detach() instead.
#pragma once

#include <memory>
#include <vector>

#include "grapnel/autograd/meta.h"
#include "grapnel/nn/identity_node.h"
#include "grapnel/nn/module.h"

namespace grapnel::nn {

class BackwardCall {
 public:
  /// Takes its place before forward. Does nothing unless the module has backward hooks and
  /// recording is on.
  BackwardCall(Module& module, Args& args, Kwargs& kwargs);
  ~BackwardCall();
  BackwardCall(const BackwardCall&) = delete;
  BackwardCall& operator=(const BackwardCall&) = delete;

  /// Attaches the results, after all forward hooks.
  void finish(Value& result);

  /// What the hooks on the nodes share; lives as long as they do.
  struct Record;

 private:
  void route_arguments(Args& args, Kwargs& kwargs);
  void check_arguments() const;
  void hook_results();
  void hook_arguments();

  /// An argument whose history inside forward decides whether its gradient still comes by.
  struct Routed {
    Tensor tensor;
    NodePtr node;
    bool alias = false;
    size_t place = 0;
  };

  std::shared_ptr<Record> record_;
  IntrusivePtr<IdentityNode> before_, after_;
  std::vector<Routed> routed_;
  std::vector<std::unique_ptr<EdgeOverride>> overrides_;
};

}  // namespace grapnel::nn
