/// SHA-256 (FIPS 180-4), which browsers know scripts by: a page's policy lists the scripts that may
/// run.
#pragma once

#include <string>
#include <string_view>

namespace command {

/// As a Content-Security-Policy has it: 'sha256-BASE64', quotes included.
std::string policy_hash(std::string_view text);

}  // namespace command
