/// Who wants to know when a backward pass fails: data-parallel training, whose other ranks wait for
/// what the pass would have made.
#pragma once

#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

namespace grapnel {

struct TensorImpl;

namespace engine {

class FailureListener {
 public:
  /// A pass has ended with an exception, which goes on its way unchanged. Called on the thread of
  /// the pass.
  virtual void pass_failed(const std::string& what) noexcept = 0;

 protected:
  ~FailureListener() = default;
};

/// The listener hears about passes that were to accumulate into one of `leaves`. It keeps them
/// alive; when it is gone it is forgotten.
void add_failure_listener(std::weak_ptr<FailureListener> listener,
                          std::vector<const TensorImpl*> leaves);
/// Called by the pass while it handles the exception.
void tell_failure_listeners() noexcept;

/// The leaves that the innermost pass of this thread accumulates into, those done included. Leaves
/// and not their nodes: set_data() gives a leaf another node.
std::unordered_set<const TensorImpl*> leaves_of_pass();

}  // namespace engine
}  // namespace grapnel
