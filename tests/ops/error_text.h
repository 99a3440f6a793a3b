/// Error messages as values, so that tests can compare their wording.
#pragma once

#include <string>

#include "grapnel/base/error.h"
#include "grapnel/base/place.h"

namespace grapnel {

/// What fn() throws as an Error, with the lines that say where; empty when it throws none.
template <class Fn>
std::string full_error_text(Fn&& fn) {
  try {
    fn();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}
/// Without them.
template <class Fn>
std::string error_text(Fn&& fn) {
  return std::string(base::without_places(full_error_text(fn)));
}

}  // namespace grapnel
