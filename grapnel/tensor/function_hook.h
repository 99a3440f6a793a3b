/// The interfaces behind every hook list. Users may derive from the three that LibTorch names; any
/// callable of a fitting signature is wrapped into one by hook_callable.h.
///
/// Each hook can be run, described for a cache key (`compiled_args`) and recorded into a graph
/// (`apply_with_saved`). The defaults of the last two are right for any hook: it is called on the
/// values of the recording, in eager's order.
#pragma once

#include <concepts>
#include <typeinfo>

#include "grapnel/tensor/hook.h"

namespace grapnel {

/// Visitor by which a node or hook describes itself for the key of a compiled backward pass.
class CompiledNodeArgs;
/// Visitor that swaps saved values for those of a recording, and back.
class SwapSavedVariables;

/// Root of everything that can stand in a hook list.
class HookBase {
 public:
  virtual ~HookBase() = default;
  /// Called when the hook is due in a recorded pass. A hook that calls `args.declare(...)` here
  /// promises that its result depends only on what it lists, and is then not called in every pass;
  /// the default declares nothing. See ops/compiled_args.h.
  virtual void compiled_args(CompiledNodeArgs& /*args*/) const {}
  /// Whether a recording calls the hook when the graph runs instead of entering it.
  virtual bool opaque() const { return false; }
  /// The type of the user's object or callable: declarations of different types never mean the
  /// same.
  virtual const std::type_info& type() const { return typeid(*this); }
  /// What the hook holds of a front end in another language, whose collector wants to see it; null
  /// for hooks of C++. The front end knows what it points to.
  virtual const void* foreign() const { return nullptr; }
};

/// A callable that declares itself like a hook class does: a functor with a member `compiled_args`.
template <class F>
concept DeclaresItself = requires(const F& f, CompiledNodeArgs& args) { f.compiled_args(args); };

/// A callable of a front end in another language says what it holds by a member `foreign`.
template <class F>
const void* foreign_part_of(const F& f) {
  if constexpr (requires {
                  { f.foreign() } -> std::convertible_to<const void*>;
                })
    return f.foreign();
  else return nullptr;
}

/// A gradient hook on one tensor: returns the replacement, or an undefined tensor for "unchanged".
class TensorHook : public HookBase {
 public:
  virtual Tensor call(const Tensor& grad, const HookContext& context) = 0;
};

/// A hook before a node runs: gradients of its outputs in, the same number out.
class FunctionPreHook : public HookBase {
 public:
  virtual variable_list operator()(const variable_list& grad_outputs) = 0;
};

/// A hook after a node ran: (gradients of its inputs, gradients of its outputs) in, gradients of
/// its inputs out.
class FunctionPostHook : public HookBase {
 public:
  virtual variable_list operator()(const variable_list& grad_inputs,
                                   const variable_list& grad_outputs) = 0;
};

/// A hook after a leaf's grad() was updated.
class PostAccumulateGradHook : public HookBase {
 public:
  virtual void operator()(const Tensor& leaf) = 0;
  /// Records the hook's work on the stand-in `leaf`.
  virtual void apply_with_saved(Tensor& leaf, SwapSavedVariables& /*saved*/) { (*this)(leaf); }
};

}  // namespace grapnel
