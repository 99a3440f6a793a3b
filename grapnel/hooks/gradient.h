/// Hooks that change a gradient: ClipValue, ClipNorm, Scale, Noise, Mask, Freeze, Reverse.
///
///   hooks::attach(w, hooks::ClipNorm{1.0} | hooks::Scale{0.5});  // first clipped, then scaled
///   hooks::attach(net->parameters(), hooks::ClipValue{0.1});
///
/// Each is a function of the gradient, made of public ops, so it is recorded, fused and
/// differentiated like any other code. Any callable from tensor to tensor that has a name() joins a
/// chain.
#pragma once

#include <concepts>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "grapnel/functions/generator.h"
#include "grapnel/tensor/tensor.h"

namespace grapnel::hooks {

/// A hook that changes gradients and knows its name.
template <class H>
concept GradientHook = requires(const H& hook, const Tensor& g) {
  { hook(g) } -> std::convertible_to<Tensor>;
  { hook.name() } -> std::convertible_to<std::string>;
};

/// Clamps every element to [-limit, limit].
struct ClipValue {
  double limit;
  Tensor operator()(const Tensor& grad) const;
  std::string name() const;
};

/// Scales the gradient so that its norm is at most max_norm.
struct ClipNorm {
  double max_norm;
  double norm_type = 2;
  Tensor operator()(const Tensor& grad) const;
  std::string name() const;
};

/// Multiplies gradients by a factor.
struct Scale {
  double factor;
  Tensor operator()(const Tensor& grad) const;
  std::string name() const;
};

/// Adds normal noise of the given deviation, from the default generator unless told otherwise.
struct Noise {
  double std;
  std::optional<Generator> generator = {};
  Tensor operator()(const Tensor& grad) const;
  std::string name() const;
};

/// Lets a gradient through where `mask` is true (or weighs it, if it holds numbers).
struct Mask {
  Tensor mask;
  Tensor operator()(const Tensor& grad) const;
  std::string name() const;
};

/// No gradient at all: the parameter stays, though optimisers still see it.
struct Freeze {
  Tensor operator()(const Tensor& grad) const;
  std::string name() const { return "freeze"; }
};

/// Turns the gradient round: what follows learns to tell apart, what precedes learns to be
/// indistinguishable.
struct Reverse {
  double factor = 1;
  Tensor operator()(const Tensor& grad) const;
  std::string name() const;
};

/// One hook after the other.
template <GradientHook First, GradientHook Second>
struct Chain {
  First first;
  Second second;
  Tensor operator()(const Tensor& grad) const { return second(first(grad)); }
  std::string name() const {
    return std::string(first.name()) + " | " + std::string(second.name());
  }
};
template <GradientHook First, GradientHook Second>
Chain<First, Second> operator|(First first, Second second) {
  return {std::move(first), std::move(second)};
}

/// Registers the hook under its name.
template <GradientHook H>
HookHandle attach(const Tensor& tensor, H hook,
                  base::SourceLine site = std::source_location::current()) {
  std::string name = hook.name();
  // A gradient that is absent stays absent.
  return tensor.register_hook(
      [hook = std::move(hook)](const Tensor& g) { return g.defined() ? hook(g) : g; },
      {.name = std::move(name), .site = site});
}
/// The same on each tensor that requires grad.
template <GradientHook H>
std::vector<HookHandle> attach(const std::vector<Tensor>& tensors, const H& hook,
                               base::SourceLine site = std::source_location::current()) {
  std::vector<HookHandle> out;
  for (const Tensor& t : tensors)
    if (t.requires_grad()) out.push_back(attach(t, hook, site));
  return out;
}

/// The tensor itself, behind a node whose gradient is changed by the hook: `x = hooks::through(x,
/// hooks::Reverse{0.1})`. Unlike attach, it changes the gradient of this use of x only.
template <GradientHook H>
Tensor through(const Tensor& x, H hook, base::SourceLine site = std::source_location::current()) {
  const Tensor out = x.view_as(x);
  if (out.requires_grad()) attach(out, std::move(hook), site);
  return out;
}

}  // namespace grapnel::hooks
