/// HoldSignals: keeps signal handlers off this thread for a while.
#pragma once

#include <csignal>

namespace grapnel::base {

/// While it lives, signals sent to this thread wait. Faults of the thread's own, such as SIGSEGV,
/// are handled as ever. A thread that is started meanwhile holds them for good: signals belong to
/// the user's threads.
class HoldSignals {
 public:
  HoldSignals() {
    static const sigset_t held = [] {
      sigset_t set;
      sigfillset(&set);
      for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT})
        sigdelset(&set, fault);
      return set;
    }();
    pthread_sigmask(SIG_BLOCK, &held, &before_);
  }
  ~HoldSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  HoldSignals(const HoldSignals&) = delete;
  HoldSignals& operator=(const HoldSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace grapnel::base
