#include "grapnel/base/threads.h"

#include <dlfcn.h>
#include <unistd.h>

#include "grapnel/base/hold_signals.h"

namespace grapnel::base {

std::thread start_user_thread(std::function<void()> body) {
  stay_loaded();
  return std::thread(std::move(body));
}

std::thread start_thread(std::function<void()> body) {
  const HoldSignals hold;
  return start_user_thread(std::move(body));
}

void join(std::thread& thread, const HomeProcess& home) {
  if (!thread.joinable()) return;
  if (home.is_elsewhere() || thread.get_id() == std::this_thread::get_id()) thread.detach();
  else thread.join();
}

HomeProcess::HomeProcess() : pid_(::getpid()) {}
bool HomeProcess::is_elsewhere() const noexcept { return ::getpid() != pid_; }

void stay_loaded() noexcept {
  // Linked into a plugin, the library would go with it at dlclose.
  static const bool done = [] {
    Dl_info info{};
    if (::dladdr(reinterpret_cast<const void*>(&stay_loaded), &info) != 0 && info.dli_fname)
      (void)::dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
    return true;
  }();
  (void)done;
}

}  // namespace grapnel::base
