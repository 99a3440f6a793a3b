#include "grapnel/base/error.h"

namespace grapnel::base {

void throw_error(std::string message) { throw Error(std::move(message)); }

void throw_internal(const char* condition, const char* file, int line, std::string message) {
  throw InternalError(
      str("internal error: ", condition, " does not hold at ", file, ":", line,
          message.empty() ? "" : ": ", message,
          "\nThis is a defect in Grapnel; please report it with the program that led here."));
}

}  // namespace grapnel::base
