/// What flags may be set to.
#include <charconv>
#include <cmath>

#include "command/commands.h"
#include "command/watch.h"

namespace command {

namespace {
template <class T>
bool reads(const std::string& text, T& value) {
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, value);
  return read.ec == std::errc() && read.ptr == end;
}
}  // namespace

CLI::Validator whole_number(int64_t low, int64_t high) {
  return CLI::Validator(
      [=](const std::string& text) -> std::string {
        int64_t value = 0;
        if (reads(text, value) && low <= value && value <= high) return "";
        return grapnel::str("must be a whole number from ", low, " to ", high, ", got ", text);
      },
      "");
}

CLI::Validator number_above_zero() {
  return CLI::Validator(
      [](const std::string& text) -> std::string {
        double value = 0;
        if (reads(text, value) && std::isfinite(value) && value > 0) return "";
        return "must be a number above 0, got " + text;
      },
      "");
}

CLI::Validator percent() {
  return CLI::Validator(
      [](const std::string& text) -> std::string {
        double value = 0;
        if (reads(text, value) && value >= 0 && value <= 100) return "";
        return "must be a number from 0 to 100, got " + text;
      },
      "");
}

CLI::Validator hook_words() {
  return CLI::Validator(
      [](const std::string& text) -> std::string {
        try {
          if (text != "none") HookSpec::parse(text);
          return "";
        } catch (const grapnel::Error& e) {
          return e.what();
        }
      },
      "");
}

}  // namespace command
