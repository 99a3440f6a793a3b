/// What MPI says about failures, as exceptions.
#pragma once

#include <mpi.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "grapnel/dist/mpi/transport.h"

namespace grapnel::dist {

/// Throws what MPI says about a failure.
inline void check_mpi(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw std::runtime_error(std::string(what) + ": " + text);
}

/// A message that is to be received.
struct Expected {
  size_t request;  ///< its place among the requests
  int from;
  MPI_Datatype type;
  int64_t elements;
};

/// Whether all requests are complete. Every message must be as long as was expected: MPI itself is
/// content with less.
inline bool test_all(std::vector<MPI_Request>& requests, const std::vector<Expected>& expected,
                     std::vector<MPI_Status>& statuses) {
  const auto differs = [](const Expected& e, const std::string& how, MPI_Count count) {
    throw MpiMismatch("rank " + std::to_string(e.from) + " sent " + how + std::to_string(count) +
                      (e.type == MPI_BYTE ? " bytes" : " elements"));
  };
  const auto truncated = [](int code) {
    int kind = MPI_SUCCESS;
    return MPI_Error_class(code, &kind) == MPI_SUCCESS && kind == MPI_ERR_TRUNCATE;
  };
  statuses.resize(requests.size());
  int done = 0;
  const int code =
      MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, statuses.data());
  if (code != MPI_SUCCESS) {
    for (const Expected& e : expected)
      if (code == MPI_ERR_IN_STATUS ? truncated(statuses[e.request].MPI_ERROR)
                                    : truncated(code) && expected.size() == 1)
        differs(e, "more than ", e.elements);
    check_mpi(code, "MPI_Testall");
  }
  if (!done) return false;
  for (const Expected& e : expected) {
    MPI_Count got = 0;
    MPI_Get_elements_x(&statuses[e.request], e.type, &got);
    if (got != e.elements) differs(e, "", got);
  }
  return true;
}

}  // namespace grapnel::dist
