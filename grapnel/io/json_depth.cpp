#include "grapnel/io/json_depth.h"

#include "grapnel/base/error.h"

namespace grapnel::io {

void check_json_depth(std::string_view text, const std::string& source) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      else if (c == '"') quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      check(++depth <= most_json_levels, source,
            ": is damaged: its lists and objects are nested deeper than ", most_json_levels,
            " levels at byte ", i, ".");
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
}

}  // namespace grapnel::io
