/// Runs a test on several ranks: threads of the test program, or the processes that mpirun started.
#pragma once

#include <doctest/doctest.h>

#include "grapnel/dist/dist.h"
#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"

namespace grapnel::test {

using namespace std::chrono_literals;
using dist::Future;
using dist::GradBucket;
using dist::ProcessGroup;

/// Calls `fn(group)` on `count` ranks. Under mpirun with fewer processes than that, nothing
/// happens; with more, the others look on.
inline void on_ranks(int count, const std::function<void(ProcessGroup)>& fn,
                     std::chrono::milliseconds timeout = 5s) {
  if (!dist::launched_by_mpi()) return dist::run_threads(count, fn, {.timeout = timeout});
  // A test may leave a group unusable, so each gets one of its own.
  static ProcessGroup last = dist::init();
  last = last.renew();
  last.set_timeout(timeout);
  if (last.size() >= count) {
    std::vector<int> ranks;
    for (int r = 0; r < count; ++r) ranks.push_back(r);
    if (ProcessGroup group = last.subgroup(ranks, "test")) fn(group);
  }
}

/// The text of the exception of type E that `fn` throws, or a sentence that says that there was
/// none.
template <class E, class F>
std::string error_of(F&& fn) {
  try {
    fn();
  } catch (const E& e) {
    return e.what();
  }
  return "no exception";
}
inline bool has(const std::string& text, const std::string& part) {
  const bool found = text.find(part) != std::string::npos;
  if (!found) MESSAGE("expected \"" << part << "\" in: " << text);
  return found;
}
inline double number(const Tensor& t) { return t.item<double>(); }
inline Tensor filled(double value, std::vector<int64_t> sizes = {1}, DType dtype = kFloat32) {
  return full(sizes, value, dtype);
}
/// All elements equal to `value`.
inline bool all_are(const Tensor& t, double value) {
  return t.defined() && equal(t, full_like(t, value));
}

}  // namespace grapnel::test
