/// Hooks as the user sees them: handles, what a hook is told, and how any callable becomes one.
///
/// The kinds form a closed list, in the order in which they fire around one node of the backward
/// pass.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grapnel/base/source_site.h"

namespace grapnel {

/// Whether a type of callable is never entered by a recording; true for what `opaque` returns.
template <class F>
inline constexpr bool is_opaque = false;

class Tensor;
class Node;
class TensorHook;
class PostAccumulateGradHook;
using variable_list = std::vector<Tensor>;

/// | kind            | fires                       | is given                     | may replace |
/// |-----------------|-----------------------------|------------------------------|-------------|
/// | tensor          | a gradient is complete      | that gradient                | yes         |
/// | retain_grad     | after all tensor hooks      | the hooked gradient          | no          |
/// | capture         | after that, in `grad()`     | the hooked gradient          | no          |
/// | node_pre        | before a node runs          | gradients of its outputs     | yes         |
/// | unpack          | a saved tensor is read      | what `pack` returned         | yes         |
/// | post_accumulate | a leaf's `grad` was updated | the leaf                     | no          |
/// | node_post       | after a node ran            | gradients of inputs, outputs | yes         |
/// | end_of_pass     | after the pass's last node  | nothing                      | no          |
///
/// Hooks on several tensors are made of tensor and post-accumulate hooks. Modules, optimisers and
/// ranks have kinds of their own, which fire around calls of forward, the backward pass of a call,
/// saving and loading, registration, steps, and when gradients were reduced. The list is complete:
/// a switch over it has no default, so that a new kind stops the build where it needs an answer.
enum class HookKind : uint8_t {
  tensor,
  retain_grad,
  capture,
  node_pre,
  unpack,
  post_accumulate,
  node_post,
  end_of_pass,
  pack,
  multi_grad,
  multi_post_accumulate,
  forward_pre,
  forward,
  full_backward_pre,
  full_backward,
  state_dict_pre,
  state_dict_post,
  load_state_dict_pre,
  load_state_dict_post,
  registration,
  step_pre,
  step_post,
  comm,
  after_reduction,
};
inline constexpr int kHookKinds = static_cast<int>(HookKind::after_reduction) + 1;
std::string_view name(HookKind kind);

/// One registered hook, for listing.
struct HookInfo {
  uint64_t id = 0;
  HookKind kind = HookKind::tensor;
  int slot = 0;      ///< which output of the node a tensor hook belongs to
  std::string name;  ///< given by the user, or empty
  std::string
      site;  ///< file:line of the registration, of C++ or foreign; empty for a hook of the library's own
  const std::string& place() const { return site.empty() ? name : site; }
};

/// Whoever keeps hooks: knows how to drop one by its id.
class HookOwner {
 public:
  virtual ~HookOwner() = default;
  virtual void remove_hook(uint64_t id) = 0;
  /// The same, and calls that were already arranged for the hook are off, too.
  virtual void remove_hook_now(uint64_t id) { remove_hook(id); }
  virtual bool has_hook(uint64_t id) const = 0;
};

/// A fresh id, unique in the process and growing.
uint64_t next_hook_id();
/// How many hooks this thread has registered so far.
uint64_t hooks_registered();

/// Names one registration. Copies are equal and remove the same hook; dropping a handle keeps the
/// hook; removing twice is silent; a handle may outlive the tensor, the node and the graph.
class HookHandle {
 public:
  HookHandle() = default;
  HookHandle(uint64_t id, std::weak_ptr<HookOwner> owner) : id_(id), owner_(std::move(owner)) {}
  /// From LibTorch's hook number; can be used with Tensor::remove_hook.
  HookHandle(unsigned id) : id_(id) {}
  operator unsigned() const { return static_cast<unsigned>(id_); }

  void remove() {
    if (auto owner = owner_.lock()) owner->remove_hook(id_);
  }
  /// Marks that a hook is removed from graphs that exist, too.
  struct Now {};
  static constexpr Now now{};
  /// `handle.remove(HookHandle::now)` also stops a module's backward hook for graphs made before,
  /// which remove() leaves as they are.
  void remove(Now) {
    if (auto owner = owner_.lock()) owner->remove_hook_now(id_);
  }
  /// True while the hook is registered.
  bool active() const {
    auto owner = owner_.lock();
    return owner && owner->has_hook(id_);
  }
  uint64_t id() const { return id_; }
  bool has_owner() const { return owner_.lock() != nullptr; }
  friend bool operator==(const HookHandle& a, const HookHandle& b) { return a.id_ == b.id_; }

 private:
  uint64_t id_ = 0;
  std::weak_ptr<HookOwner> owner_;
};

/// Removes the hook when the scope is left, also by an exception.
class [[nodiscard]] ScopedHook {
 public:
  ScopedHook() = default;
  ScopedHook(HookHandle handle) : handle_(std::move(handle)) {}
  ScopedHook(ScopedHook&& other) noexcept : handle_(other.release()) {}
  ScopedHook& operator=(ScopedHook&& other) noexcept {
    if (this != &other) {
      handle_.remove();
      handle_ = other.release();
    }
    return *this;
  }
  ~ScopedHook() { handle_.remove(); }
  const HookHandle& handle() const { return handle_; }
  /// Lets the hook live on.
  HookHandle release() { return std::exchange(handle_, HookHandle()); }

 private:
  HookHandle handle_;
};

/// How a hook was registered.
struct HookLabel {
  std::string name;  ///< given by the user, or empty
  base::SourceLine site;
};

/// What a hook can learn about the moment it fires. Valid during the call only.
struct HookContext {
  const Node* node = nullptr;  ///< the node whose gradient this is
  int slot = 0;                ///< which of its outputs
  uint64_t pass = 0;           ///< number of the backward pass; nested passes have their own
  int depth = 0;  ///< 0 for a pass started by the user, 1 for one started inside a hook, and so on
  bool creates_graph = false;  ///< whether what the hook computes is differentiable
  const HookLabel* label = nullptr;
  /// As registered.
  std::string_view hook_name() const {
    return label ? std::string_view(label->name) : std::string_view();
  }
  /// True when no pass is waiting for this one, so the gradient is the one the caller of backward()
  /// asked for.
  bool final() const { return depth == 0; }
  /// The name given to the tensor with set_name, or an empty string.
  std::string tensor_name() const;
};

/// How a hook of any kind is registered. Options that a kind does not have are refused.
struct HookOptions {
  std::string name = {};  ///< for messages and listings
  /// Filled in by itself. An empty one, `{}`, is for hooks of the library's own; a front end in another
  /// language gives a foreign one, `base::SourceSite::foreign(number)`.
  base::SourceLine site = std::source_location::current();
  /// Modules and optimisers: goes to the front of its list.
  bool prepend = false;
  /// Forward hooks: called also when a pre-hook, forward or another hook throws. Its own exceptions
  /// become warnings then.
  bool always_call = false;
  /// Full backward hooks: fires when the pass has also updated grad() of every parameter of the module
  /// that it reaches. Such a hook can look at gradients but no longer change them, so it returns
  /// nothing.
  bool after_parameters = false;
};
/// Fails for options that hooks of the kind do not have.
void check_options(HookKind kind, const HookOptions& options);

/// A name in the place of options: `x.register_hook(clip, "clip")`.
template <class N>
concept HookName = std::convertible_to<N, std::string>;

}  // namespace grapnel
