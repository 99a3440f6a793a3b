#include "grapnel/base/error.h"

#include "grapnel/base/error_kinds.h"
#include "grapnel/base/place.h"

namespace grapnel::base {

std::string placed(std::string message) {
  try {
    message = with_place(message);
  } catch (...) {
    // Without memory there is no place.
  }
  return message;
}

void throw_error(std::string message) { throw Error(placed(std::move(message))); }

void throw_internal(const char* condition, const char* file, int line, std::string message) {
  throw InternalError(
      str("internal error: ", condition, " does not hold at ", file, ":", line,
          message.empty() ? "" : ": ", message,
          "\nThis is a defect in Grapnel; please report it with the program that led here."));
}

}  // namespace grapnel::base
