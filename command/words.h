/// Words for people: what they may paste into a shell, and what they may have meant.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "grapnel/base/error.h"

namespace command {

/// A flag, or flags together, that make no sense: the command ends with status 2.
class WrongFlag : public grapnel::Error {
 public:
  using grapnel::Error::Error;
};

template <class... Parts>
void check_flag(bool condition, const Parts&... parts) {
  if (!condition) throw WrongFlag(grapnel::str(parts...));
}

/// As a shell takes it for one word, and no program for a flag.
std::string shell_quoted(const std::filesystem::path& path);

/// The nearest of the known words, if it is near enough to be what was meant; otherwise empty.
std::string did_you_mean(const std::string& word, const std::vector<std::string>& known);

}  // namespace command
