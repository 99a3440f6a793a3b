/// Context: everything that changes what code means on a thread, in one place.
///
/// Note [One context]
/// Grad mode, an open recorder, the hook that runs, the line that called: each is set by a scope that
/// its own folder defines, and all of them stand here. A thread has one Context, `this_context`; asking
/// it is one load. The folders above are named by pointers only, so this header knows none of them.
///
/// What one thread does for another has the meaning that it has there: pieces of parallel work,
/// callbacks of futures and work of data loaders begin with `modes` of the thread that asked
/// (ModesScope). The rest belongs to calls that are under way on one stack; another thread, which may
/// outlive them, must not see it. Deeply nested passes go on with a fresh stack on the same thread
/// (base/fresh_stack.h), so they have all of it.
///
/// Thread-local state that is no part of this keeps memory ready, counts, or belongs to a thread and
/// not to its code. tests/layers/check_context.py lists it, each with its reason.
#pragma once

#include <cstdint>
#include <memory>

#include "grapnel/base/per_thread.h"
#include "grapnel/base/rank.h"

namespace grapnel {

enum class DType : uint8_t;
class CompiledNodeArgs;
class Evaluator;
class Generator;
class Pass;
class RunObserver;
struct EdgeOverrides;
struct SavedHookStack;
struct TapeObservers;
struct WaitingCalls;
namespace autograd {
class CheckpointRun;
}
namespace base {
class Place;
}
namespace capture {
class RunLog;
}
namespace compiler {
struct Asking;
}
namespace dist {
class Executor;
class ProcessGroup;
}  // namespace dist
namespace engine {
class PassRunner;
}

/// How ops are meant. Plain values, so that work for this thread may take them anywhere.
struct Modes {
  bool grad = true;  ///< ops on tensors that require grad are recorded for backward
  bool inference = false;
  DType autocast = DType{6};  ///< what products compute in; Float32: no autocast
  base::Rank rank = {};
  friend bool operator==(const Modes&, const Modes&) = default;
};

/// See Note [One context].
struct Context {
  Modes modes = {};

  // Where things happen, for messages and traces: base/source_site.h, base/place.h.
  const void* call_site = nullptr;    ///< return address of the outermost public call
  const void* module_site = nullptr;  ///< of the outermost call of a module of the library's
  const char* called_op = nullptr;    ///< __PRETTY_FUNCTION__ of the outermost op function
  base::Place* place = nullptr;       ///< the innermost module or hook

  // Recordings.
  Evaluator* recorder = nullptr;               ///< the one that is open
  const char* reader = nullptr;                ///< who reads values just now
  const CompiledNodeArgs* declared = nullptr;  ///< arguments of the declared hook that runs
  WaitingCalls* waiting = nullptr;             ///< opaque calls that were recorded and have not run
  capture::RunLog* run = nullptr;              ///< the graph that runs
  RunObserver* run_observer = nullptr;
  const compiler::Asking* asking = nullptr;  ///< compilers of the user's that are being asked
  bool on_other_tensors = false;  ///< a graph runs on other inputs than it was recorded with
  int nested_fullgraph = 0;  ///< `fullgraph` of compiled functions inside an open recording

  // The tape and backward passes.
  int walks = 0;         ///< backward passes that are being walked
  Pass* pass = nullptr;  ///< the innermost one
  engine::PassRunner* pass_runner = nullptr;
  bool strong_backward = false;  ///< whether passes started now restore grad() when they fail
  EdgeOverrides* overrides = nullptr;
  SavedHookStack* saved_hooks = nullptr;
  TapeObservers* observers = nullptr;
  autograd::CheckpointRun* checkpoint = nullptr;

  // Whose the thread is.
  Generator* generator = nullptr;  ///< the default one, if not that of the process
  const dist::ProcessGroup* group = nullptr;
  const std::shared_ptr<dist::Executor>* executor = nullptr;  ///< runs callbacks of new futures
};
extern constinit thread_local Context this_context [[gnu::tls_model("initial-exec")]];

/// While it lives, ops on this thread are meant as `modes` says: those of another thread, or of
/// another time.
class ModesScope {
 public:
  explicit ModesScope(const Modes& modes) noexcept : before_(this_context.modes) {
    this_context.modes = modes;
  }
  ~ModesScope() { this_context.modes = before_; }
  ModesScope(const ModesScope&) = delete;
  ModesScope& operator=(const ModesScope&) = delete;

 private:
  const Modes before_;
};

/// What `this_context.*member` points to; this thread's own is made if there is none. It lives until
/// the thread ends: see Note [What a thread owns].
template <auto member>
auto& wanted_in_context() {
  using T = std::remove_pointer_t<std::remove_reference_t<decltype(this_context.*member)>>;
  struct Own {
    T value;
    ~Own() {
      if (this_context.*member == &value) this_context.*member = nullptr;
    }
  };
  if (this_context.*member == nullptr) [[unlikely]] {
    static constinit thread_local base::PerThread<Own> own;
    this_context.*member = &own.get().value;
  }
  return *(this_context.*member);
}

}  // namespace grapnel
