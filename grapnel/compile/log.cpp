#include "grapnel/compile/log.h"

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace grapnel::compiler::log {

namespace {
bool names(std::string_view list, std::string_view topic) {
  while (!list.empty()) {
    const size_t comma = list.find(',');
    if (list.substr(0, comma) == topic) return true;
    if (comma == std::string_view::npos) return false;
    list.remove_prefix(comma + 1);
  }
  return false;
}
}  // namespace

bool enabled(Topic topic) {
  static const std::string_view list = [] {
    const char* value = std::getenv("GRAPNEL_LOG");
    return std::string_view(value ? value : "");
  }();
  return !list.empty() && names(list, topic == Topic::compile ? "compile" : "backward");
}

void write(const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); }

}  // namespace grapnel::compiler::log
