/// What compiled functions and CompiledBackward hold: a session, which remembers, and a scope, which records. What a
/// session is made of is in session.h.
#pragma once

#include <memory>

#include "grapnel/compile/options.h"

namespace grapnel {

namespace record {
class RecordScope;
}

namespace compiler {

class Session;
std::shared_ptr<Session> make_session(const CompileOptions& options);
CompileStats stats_of(const Session& session);
/// Forgets statistics and the graphs that were compiled for the session.
void reset(Session& session);

/// Whether a recording is open that a compiled function becomes part of.
bool is_nested();

/// Records until `finish` if nothing is recorded on this thread yet; inside an open recording it
/// changes nothing but adds `fullgraph`.
class CompileScope {
 public:
  explicit CompileScope(const std::shared_ptr<Session>& session);
  ~CompileScope();
  CompileScope(const CompileScope&) = delete;
  CompileScope& operator=(const CompileScope&) = delete;
  void finish();

 private:
  std::shared_ptr<Session> session_;
  std::unique_ptr<record::RecordScope> scope_;
};

}  // namespace compiler
}  // namespace grapnel
