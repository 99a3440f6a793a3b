/// A tensor kept for the backward pass, and the hooks that may pack and unpack it.
///
/// Note [What a saved tensor holds]
/// A node must not own a tensor that can come to own the node. An output does so from the start,
/// and any other tensor does once it is changed in place by something computed from it: `s =
/// sin(c); c.add_(s)`. So a detached alias is kept, which shares memory and version, and beside it
/// the edge its gradient takes; reading puts the two together. For a leaf that requires grad the
/// edge alone is enough: its accumulate node has the leaf. With hooks, only what `pack` returned is
/// kept, and the history is put on what `unpack` returns; a tensor that `pack` returned as it is
/// loses its own, or a node could own itself. The version is checked when a value is read, and for
/// a leaf whether set_data() gave it other data.
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

/// A pair of hooks made of two callables: what `pack` returns is what `unpack` will be given.
template <class Pack, class Unpack>
SavedTensorHookPair make_saved_tensor_hooks(Pack pack, Unpack unpack) {
  using Packed = std::decay_t<std::invoke_result_t<Pack&, const Tensor&>>;
  static_assert(!std::is_void_v<Packed>, "pack must return what unpack will be given");
  static_assert(std::is_invocable_v<Unpack&, const Packed&>, "unpack must take what pack returns");
  static_assert(std::is_convertible_v<std::invoke_result_t<Unpack&, const Packed&>, Tensor>,
                "unpack must return a tensor");
  // Shared, so that callables need not be copyable and keep one state.
  auto p = std::make_shared<Pack>(std::move(pack));
  auto u = std::make_shared<Unpack>(std::move(unpack));
  // A holder keeps move-only packed values usable, too.
  return {[p](const Tensor& t) -> std::any { return std::make_shared<Packed>(std::invoke(*p, t)); },
          [u](const std::any& packed) -> Tensor {
            return std::invoke(
                *u, std::as_const(*std::any_cast<const std::shared_ptr<Packed>&>(packed)));
          }};
}

class AccumulateGrad;

/// A tensor that a node keeps for its backward pass, and what checks that it has not changed since.
class SavedVariable {
 public:
  SavedVariable() = default;
  /// An output of the node that saves it, to which it must already be attached.
  static SavedVariable output(const Tensor& t);
  /// Any other tensor; `history` is its gradient edge, empty if it has none.
  SavedVariable(const Tensor& t, Edge history);

  /// The tensor with its history. `owner` is the node that saved it. Checks that it was not
  /// overwritten since.
  Tensor unpack(const Node& owner) const;
  /// The same without history, for formulas that are not recorded.
  Tensor unpack_values(const Node& owner) const;
  /// Packs this one slot, now. Refused on empty, freed and already hooked slots.
  template <class Pack, class Unpack>
  void register_hooks(Pack pack, Unpack unpack) {
    set_hooks(make_saved_tensor_hooks(std::move(pack), std::move(unpack)));
  }
  void set_hooks(SavedTensorHookPair hooks);
  void release();
  bool defined() const { return state_ == State::plain || state_ == State::packed; }
  bool freed() const { return state_ == State::freed; }
  /// The edge that the gradient of an input takes, which keeps its node.
  const Edge& history() const { return history_; }
  /// What a pack hook returned, if that is what is kept; null otherwise.
  const std::any* packed() const;

 private:
  enum class State : uint8_t { empty, plain, packed, freed };
  struct Packed;
  void keep(const Tensor& t);
  const Tensor& data() const;
  void pack(const Tensor& argument, SavedTensorHookPair hooks);
  const AccumulateGrad& leaf_node() const;
  Tensor read(const Node& owner) const;
  void attach(const Tensor& t, const Node& owner) const;
  [[noreturn]] void fail_version(const Node& owner) const;
  [[noreturn]] void fail_freed(const Node& owner) const;
  [[noreturn]] void fail_new_data(const Node& owner) const;

  Tensor data_;   ///< unless it is a leaf that requires grad
  Edge history_;  ///< of an input
  uint32_t version_ = 0;
  uint32_t output_nr_ = 0;  ///< of an output; for a leaf, the number of its data
  State state_ = State::empty;
  bool is_output_ = false;
  bool is_leaf_ = false;  ///< and requires grad
  bool requires_grad_ = false;
  std::shared_ptr<Packed> packed_;
};

namespace autograd {

/// While it lives, tensors saved on this thread are packed and unpacked by the pair. Only the
/// innermost pair applies.
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

using autograd::SavedTensorHooks;

/// The thread's ambient saved-tensor hooks.
struct SavedHookStack {
  std::vector<SavedTensorHookPair> pairs;
  bool disabled = false;
  std::string message;
  static SavedHookStack& current();
};

}  // namespace grapnel
