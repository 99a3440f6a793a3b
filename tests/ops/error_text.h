/// Error messages as values, so that tests can compare their wording.
#pragma once

#include <string>

#include "grapnel/base/error.h"

namespace grapnel {

/// What fn() throws as an Error; empty when it throws none.
template <class Fn>
std::string error_text(Fn&& fn) {
  try {
    fn();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

}  // namespace grapnel
