/// ProcessWide: something with threads that the process as a whole has.
///
/// It is made when somebody asks for it, and comes to an orderly end when the program does: what
/// its threads have begun is finished. Objects that are destroyed still later, and children by
/// fork, get a new one when they ask.
#pragma once

#include <cstdlib>
#include <mutex>
#include <utility>

#include "grapnel/base/at_fork.h"
#include "grapnel/base/threads.h"

namespace grapnel::dist {

/// A global object, one for each type. Constant initialisation and no destructor.
template <class T, class... Args>
class ProcessWide {
 public:
  constexpr explicit ProcessWide(T (*make)(Args...)) : make_(make) {}

  /// The arguments are for making it.
  T get(Args... args) {
    const std::lock_guard lock(mutex_);
    if (!made_ || made_->home.is_elsewhere()) {
      made_ = new Made{make_(args...), {}};
      if (!std::exchange(the_one, this)) (void)std::atexit([] { the_one->end(); });
    }
    return made_->value;
  }

 private:
  struct Made {
    T value;
    base::HomeProcess home;
  };
  void end() {
    Made* dying = nullptr;
    {
      const std::lock_guard lock(mutex_);
      dying = std::exchange(made_, nullptr);
    }
    if (dying && !dying->home.is_elsewhere()) delete dying;
  }

  static inline constinit ProcessWide* the_one = nullptr;
  T (*const make_)(Args...);
  base::ProcessMutex mutex_{base::ForkOrder::ranks};
  Made* made_ = nullptr;
};

}  // namespace grapnel::dist
