/// A scope whose work stays on its thread.
#pragma once

namespace grapnel::base {

/// While one lives, parallel_for runs everything on this thread and leaves the pool to others. For
/// work in the background, which would else take the pool from the thread that everybody waits for.
class OnThisThread {
 public:
  OnThisThread();
  ~OnThisThread();
  OnThisThread(const OnThisThread&) = delete;
  OnThisThread& operator=(const OnThisThread&) = delete;

 private:
  bool before_;
};

}  // namespace grapnel::base
