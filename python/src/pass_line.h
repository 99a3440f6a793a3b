/// The line of a call that runs a backward pass.
///
/// Nodes have places of their own, which hide what a LineScope says; and a pass runs without the
/// interpreter's lock, so that nobody can look when one of them fails.
#pragma once

#include "python/src/lines.h"

namespace grapnel::python {

/// While it lives, the user's line that runs now is that of whatever fails on this thread, unless
/// something inside has a line of its own.
class PassLine {
 public:
  PassLine();
  ~PassLine();
  PassLine(const PassLine&) = delete;
  PassLine& operator=(const PassLine&) = delete;

 private:
  const base::SourceSite outer_;
};

}  // namespace grapnel::python
