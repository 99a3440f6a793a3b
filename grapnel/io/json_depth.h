/// JSON from files, which may be made up: how deep it goes is asked before it is parsed, since
/// walking through a value takes a piece of the stack per level.
#pragma once

#include <string>
#include <string_view>

namespace grapnel::io {

/// Nothing that we write has more than ten.
inline constexpr int most_json_levels = 100;

/// Throws if lists and objects are nested deeper than that; `source` names the text. Every call of
/// a JSON parser that builds a value comes after this one.
void check_json_depth(std::string_view text, const std::string& source);

}  // namespace grapnel::io
