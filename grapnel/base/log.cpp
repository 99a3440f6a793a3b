#include "grapnel/base/log.h"

#include <cstdio>
#include <mutex>
#include <set>
#include <string_view>
#include <utility>

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

bool base::first_at(const void* call_site, const char* what) {
  static auto* mutex = new std::mutex;
  static auto* seen = new std::set<std::pair<const void*, std::string_view>>;
  std::lock_guard lock(*mutex);
  return seen->emplace(call_site, what).second;
}

}  // namespace grapnel
