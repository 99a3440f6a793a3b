#include "grapnel/base/warn.h"

#include <cstdio>
#include <mutex>
#include <set>
#include <string_view>
#include <utility>

#include "grapnel/base/at_fork.h"

namespace grapnel {

namespace {
struct Handler {
  base::ProcessMutex mutex{base::ForkOrder::warnings};
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
  // The old one, which is the user's, dies outside the lock.
  std::lock_guard lock(handler().mutex);
  handler().fn.swap(fn);
}

void base::warn(const std::string& message) {
  std::function<void(const std::string&)> fn;
  {
    std::lock_guard lock(handler().mutex);
    fn = handler().fn;
  }
  if (fn) fn(message);
}

bool base::first_at(const void* call_site, const char* what) {
  static constinit base::ProcessMutex mutex{base::ForkOrder::warnings};
  static auto* seen = new std::set<std::pair<const void*, std::string_view>>;
  std::lock_guard lock(mutex);
  return seen->emplace(call_site, what).second;
}

bool base::first_at(const SourceLine& site, const char* what) {
  const std::string place = site.str();  // outside the lock: a front end may be asked
  static constinit base::ProcessMutex mutex{base::ForkOrder::warnings};
  static auto* seen = new std::set<std::pair<std::string, std::string_view>>;
  std::lock_guard lock(mutex);
  return seen->emplace(place, what).second;
}

}  // namespace grapnel
