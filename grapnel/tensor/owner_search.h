/// Finds out whether a hook owns the tensor that it is registered on.
///
/// Note [A hook that owns its tensor]
/// A closure that holds a handle of the tensor it is registered on makes a cycle: as long as the
/// hook is registered, neither is freed. What a closure captured cannot be listed, but it can be
/// seen while the closure is moved into the hook: one of its words is the address of the tensor, and
/// is empty afterwards, or there is one handle more, if the capture is const and was copied. What is
/// left over in padding does neither, nor does a raw pointer. Handles that lie elsewhere in memory
/// are not seen: in a std::function or opaque(), a container, an object that is shared, the graph of
/// another tensor.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

#include "grapnel/tensor/tensor.h"

namespace grapnel {

/// Memory for a callable on its way into a hook.
class OwnerSearch {
 public:
  /// The memory is zeroed, so that nobody's old bytes are looked at.
  OwnerSearch(const Tensor& tensor, size_t size, size_t alignment);
  ~OwnerSearch();
  OwnerSearch(const OwnerSearch&) = delete;
  OwnerSearch& operator=(const OwnerSearch&) = delete;

  void* memory() const { return memory_; }
  /// Call it when the callable is there,
  void before_move();
  /// and when it was moved on: true if it owns the tensor.
  bool owned_after_move() const;

 private:
  const Tensor& tensor_;
  const size_t words_;
  const std::align_val_t alignment_;
  void* const memory_;
  std::vector<size_t> found_;  ///< words that are the tensor's address
  size_t handles_ = 0;
};

/// Says so, once for each line that registers such a hook. `kind` is what the hook is called.
void warn_of_owner(HookKind kind, const HookOptions& options);

/// Makes a callable a hook of a tensor, and warns if it owns the tensor.
template <class Hook, class F>
std::shared_ptr<Hook> make_hook_on(const Tensor& tensor, HookKind kind, const HookOptions& options,
                                   F&& callable) {
  using D = std::decay_t<F>;
  if constexpr (std::is_trivially_copyable_v<D>) {  // owns nothing
    return std::make_shared<Hook>(std::forward<F>(callable));
  } else {
    struct Staged {
      D* callable;
      ~Staged() { callable->~D(); }
    };
    OwnerSearch search(tensor, sizeof(D), alignof(D));
    const Staged staged{::new (search.memory()) D(std::forward<F>(callable))};
    search.before_move();
    auto hook = std::make_shared<Hook>(std::move(*staged.callable));
    if (search.owned_after_move()) [[unlikely]]
      warn_of_owner(kind, options);
    return hook;
  }
}

}  // namespace grapnel
