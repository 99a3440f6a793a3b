/// A tensor kept for the backward pass, and the hooks that may pack and unpack it.
///
/// Note [What a saved tensor holds]
/// An input is kept by its own handle: its history is right as long as its version has not moved, and the version is checked
/// when it is read. An output of the node itself is kept as a detached alias, since the output owns the node; reading it
/// re-attaches the history. With hooks, only what `pack` returned is kept, and the history is put on what `unpack` returns.
#pragma once

#include <any>
#include <functional>
#include <memory>
#include <string>

#include "grapnel/autograd/node.h"

namespace grapnel {

/// A pair of functions: tensor to anything at save time, and back when the node runs.
struct SavedTensorHookPair {
  std::function<std::any(const Tensor&)> pack;
  std::function<Tensor(const std::any&)> unpack;
};

template <class Pack, class Unpack>
SavedTensorHookPair make_saved_tensor_hooks(Pack pack, Unpack unpack) {
  using Packed = std::decay_t<std::invoke_result_t<Pack&, const Tensor&>>;
  static_assert(!std::is_void_v<Packed>, "pack must return what unpack will be given");
  static_assert(std::is_invocable_v<Unpack&, const Packed&>, "unpack must take what pack returns");
  static_assert(std::is_convertible_v<std::invoke_result_t<Unpack&, const Packed&>, Tensor>, "unpack must return a tensor");
  // Shared, so that callables need not be copyable and keep one state.
  auto p = std::make_shared<Pack>(std::move(pack));
  auto u = std::make_shared<Unpack>(std::move(unpack));
  // A holder keeps move-only packed values usable, too.
  return {[p](const Tensor& t) -> std::any { return std::make_shared<Packed>(std::invoke(*p, t)); },
          [u](const std::any& packed) -> Tensor {
            return std::invoke(*u, std::as_const(*std::any_cast<const std::shared_ptr<Packed>&>(packed)));
          }};
}

class SavedVariable {
 public:
  SavedVariable() = default;
  /// `owner` is the node that saves; an output must already be attached to it.
  SavedVariable(const Tensor& t, bool is_output, const Node& owner);

  /// The tensor with its history. `owner` as at saving. Checks that it was not overwritten since.
  Tensor unpack(const Node& owner) const;
  /// Packs this one slot, now. Refused on empty, freed and already hooked slots.
  template <class Pack, class Unpack>
  void register_hooks(Pack pack, Unpack unpack) {
    set_hooks(make_saved_tensor_hooks(std::move(pack), std::move(unpack)));
  }
  void set_hooks(SavedTensorHookPair hooks);
  void release();
  bool defined() const { return state_ == State::plain || state_ == State::packed; }
  bool freed() const { return state_ == State::freed; }

 private:
  enum class State : uint8_t { empty, plain, packed, freed };
  struct Packed;
  void pack(const Tensor& argument, const Tensor& original, SavedTensorHookPair hooks);
  [[noreturn]] void fail_version(const Node& owner) const;
  [[noreturn]] void fail_freed(const Node& owner) const;

  Tensor data_;
  uint32_t version_ = 0;
  uint32_t output_nr_ = 0;
  State state_ = State::empty;
  bool is_output_ = false;
  bool requires_grad_ = false;
  std::shared_ptr<Packed> packed_;
};

namespace autograd {

/// While it lives, tensors saved on this thread are packed and unpacked by the pair. Only the innermost pair applies.
class SavedTensorHooks {
 public:
  template <class Pack, class Unpack>
  SavedTensorHooks(Pack pack, Unpack unpack) {
    push(make_saved_tensor_hooks(std::move(pack), std::move(unpack)));
  }
  ~SavedTensorHooks();
  SavedTensorHooks(const SavedTensorHooks&) = delete;
  SavedTensorHooks& operator=(const SavedTensorHooks&) = delete;

 private:
  void push(SavedTensorHookPair pair);
};

/// While it lives, installing saved-tensor hooks on this thread fails with `message`.
class DisableSavedTensorHooks {
 public:
  explicit DisableSavedTensorHooks(std::string message);
  ~DisableSavedTensorHooks();
  DisableSavedTensorHooks(const DisableSavedTensorHooks&) = delete;
  DisableSavedTensorHooks& operator=(const DisableSavedTensorHooks&) = delete;

 private:
  std::string previous_;
  bool was_disabled_;
};

}  // namespace autograd

/// The thread's ambient saved-tensor hooks; a pass carries those of its caller to whatever thread runs it.
struct SavedHookStack {
  std::vector<SavedTensorHookPair> pairs;
  bool disabled = false;
  std::string message;
  static SavedHookStack& current();
};

}  // namespace grapnel
