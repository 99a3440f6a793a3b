#include "grapnel/base/log.h"

#include <cstdio>
#include <mutex>

namespace grapnel {

namespace {
struct Handler {
  std::mutex mutex;
  std::function<void(const std::string&)> fn = [](const std::string& m) {
    std::fprintf(stderr, "grapnel: %s\n", m.c_str());
  };
};
Handler& handler() {
  static auto* h = new Handler;  // never destroyed: warnings may come during static destruction
  return *h;
}
}  // namespace

void set_warning_handler(std::function<void(const std::string&)> fn) {
  std::lock_guard lock(handler().mutex);
  handler().fn = std::move(fn);
}

void base::warn(const std::string& message) {
  std::function<void(const std::string&)> fn;
  {
    std::lock_guard lock(handler().mutex);
    fn = handler().fn;
  }
  if (fn) fn(message);
}

}  // namespace grapnel
