#pragma once

#include <mpi.h>

#include <stdexcept>
#include <string>

namespace grapnel::dist {

/// Throws what MPI says about a failure.
inline void check_mpi(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw std::runtime_error(std::string(what) + ": " + text);
}

}  // namespace grapnel::dist
