#include "grapnel/autograd/pass_failure.h"

#include <algorithm>
#include <exception>
#include <mutex>

#include "grapnel/base/at_fork.h"


namespace grapnel::engine {

namespace {
struct Listener {
  std::weak_ptr<FailureListener> self;
  std::vector<const TensorImpl*> leaves;
};
struct Listeners {
  base::ProcessMutex mutex{base::ForkOrder::settings};
  std::vector<Listener> all;
};
Listeners& listeners() {
  // Never destroyed: passes may run while static objects are torn down.
  static Listeners* const made = new Listeners;
  return *made;
}

std::string current_message() {
  try {
    throw;
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}
}  // namespace

void add_failure_listener(std::weak_ptr<FailureListener> listener,
                          std::vector<const TensorImpl*> leaves) {
  Listeners& l = listeners();
  const std::lock_guard lock(l.mutex);
  std::erase_if(l.all, [](const Listener& known) { return known.self.expired(); });
  l.all.push_back({std::move(listener), std::move(leaves)});
}

void tell_failure_listeners() noexcept try {
  std::vector<std::shared_ptr<FailureListener>> concerned;
  {
    Listeners& l = listeners();
    const std::lock_guard lock(l.mutex);
    if (l.all.empty()) return;
    const auto leaves = leaves_of_pass();
    const auto reached = [&](const TensorImpl* leaf) { return leaves.contains(leaf); };
    for (const Listener& known : l.all)
      // Only those of this thread's pass are taken hold of: others may be about to end elsewhere.
      if (std::any_of(known.leaves.begin(), known.leaves.end(), reached))
        if (auto listener = known.self.lock()) concerned.push_back(std::move(listener));
  }
  if (concerned.empty()) return;
  const std::string what = current_message();
  // Without the lock: they wait for what the failure ends.
  for (const auto& listener : concerned) listener->pass_failed(what);
} catch (...) {
  // Without memory for it nobody is told; the failure under way says more.
}

}  // namespace grapnel::engine
