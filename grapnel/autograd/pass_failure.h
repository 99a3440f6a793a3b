/// Who wants to know when a backward pass fails: data-parallel training, whose other ranks wait for
/// what the pass would have made.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace grapnel {

class Node;

namespace engine {

class FailureListener {
 public:
  /// A pass has ended with an exception, which goes on its way unchanged. Called on the thread of
  /// the pass.
  virtual void pass_failed(const std::string& what) noexcept = 0;

 protected:
  ~FailureListener() = default;
};

/// The listener hears about passes that were to run one of `nodes`. It keeps them alive; when it is
/// gone it is forgotten.
void add_failure_listener(std::weak_ptr<FailureListener> listener,
                          std::vector<const Node*> nodes);
/// Called by the pass while it handles the exception.
void tell_failure_listeners() noexcept;

}  // namespace engine
}  // namespace grapnel
