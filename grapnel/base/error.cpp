#include "grapnel/base/error.h"

#include "grapnel/base/context.h"

namespace grapnel::base {

void throw_error(std::string message) {
  try {
    message = with_place(message);
  } catch (...) {
    // Without memory there is no place.
  }
  throw Error(message);
}

void throw_internal(const char* condition, const char* file, int line, std::string message) {
  throw InternalError(
      str("internal error: ", condition, " does not hold at ", file, ":", line,
          message.empty() ? "" : ": ", message,
          "\nThis is a defect in Grapnel; please report it with the program that led here."));
}

}  // namespace grapnel::base
