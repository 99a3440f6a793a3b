#include "grapnel/nn/call.h"

#include <unordered_set>

#include "grapnel/base/log.h"
#include "grapnel/nn/backward_call.h"
#include "grapnel/nn/checkpointed_call.h"
#include "grapnel/ops/generator.h"

namespace grapnel::nn::detail {

namespace {

/// One call under way.
class ForwardCall {
 public:
  ForwardCall(Module& module, Args args, Kwargs kwargs)
      : module_(module), args_(std::move(args)), kwargs_(std::move(kwargs)) {}

  Value run(const ForwardFn& forward) {
    if (auto* checkpoint = autograd::CheckpointRun::current()) [[unlikely]]
      return run_checkpointed(forward, *checkpoint);
    run_pre_hooks();
    BackwardCall backward(module_, args_, kwargs_);
    result_ = forward(args_, kwargs_);
    run_hooks();
    backward.finish(result_);
    return std::move(result_);
  }

  /// After a failure: hooks that run always and have not run yet. The failure stays the caller's
  /// news, so theirs are warnings.
  void run_always_called() {
    if (again_) return;
    for (const auto& e : hooks_now(global_.forward, module_.hooks().forward)) {
      if (!e->hook.always_call || !called_.insert(e->id).second) continue;
      try {
        e->hook.call(module_, args_, kwargs_, result_);
      } catch (const std::exception& error) {
        warn_about(*e, error.what());
      } catch (...) {
        warn_about(*e, "unknown exception");
      }
    }
  }

 private:
  void run_pre_hooks() {
    for (const auto& e : hooks_now(global_.forward_pre, module_.hooks().forward_pre))
      e->hook.call(module_, args_, kwargs_);
  }
  void run_hooks() {
    for (const auto& e : hooks_now(global_.forward, module_.hooks().forward)) {
      if (e->hook.always_call) called_.insert(e->id);
      e->hook.call(module_, args_, kwargs_, result_);
    }
  }

  /// The first time, keeps what hooks change; the second time, puts it in its place and calls none.
  /// Backward hooks have their nodes from the first time: the second graph is never run.
  Value run_checkpointed(const ForwardFn& forward, autograd::CheckpointRun& run) {
    const auto* const key = reinterpret_cast<const char*>(&module_);
    const bool again = run.again();
    again_ = again;
    CheckpointedHooks before(run, key, {args_, kwargs_, {}});
    if (!again || !before.take()) {
      const autograd::CheckpointRun::Pause pause;
      run_pre_hooks();
      if (!again) before.leave({args_, kwargs_, {}});
    } else {
      args_ = std::move(before.values.args);
      kwargs_ = std::move(before.values.kwargs);
    }
    std::optional<BackwardCall> backward;
    if (!again) backward.emplace(module_, args_, kwargs_);
    result_ = forward(args_, kwargs_);
    CheckpointedHooks after(run, key + 1, {{}, {}, result_});
    if (!again || !after.take()) {
      const autograd::CheckpointRun::Pause pause;
      run_hooks();
      if (!again) after.leave({{}, {}, result_});
    } else {
      result_ = std::move(after.values.result);
    }
    if (backward) backward->finish(result_);
    return std::move(result_);
  }

  void warn_about(const HookList<ForwardHook>::Entry& e, const char* what) const {
    base::warn(str("the ", e.describe(grapnel::name(HookKind::forward)), " of ", module_.name(),
                   " failed after another error had ended the call: ", what));
  }

  const ModuleHooks& global_ = global_module_hooks();
  Module& module_;
  Args args_;
  Kwargs kwargs_;
  Value result_;
  std::unordered_set<uint64_t> called_;
  bool again_ = false;  ///< for the recomputation of a checkpointed function
};

}  // namespace

Value call_with_hooks(Module& module, Args args, Kwargs kwargs, const ForwardFn& forward) {
  ForwardCall call(module, std::move(args), std::move(kwargs));
  try {
    return call.run(forward);
  } catch (...) {
    call.run_always_called();
    throw;
  }
}

void wrong_argument_count(const Module& module, size_t got, size_t expected) {
  fail("forward of ", module.name(), " takes ", expected,
       expected == 1 ? " argument" : " arguments", " but was given ", got,
       ".\nIf a forward pre-hook changed them, let it return as many as there were.");
}

void check_no_kwargs(const Module& module, const Kwargs& kwargs) {
  if (kwargs.empty()) return;
  fail("forward of ", module.name(), " takes no arguments by name but was given '",
       kwargs.begin()->first, "'.\nLet it take a const nn::Kwargs& as last parameter.");
}

KeepGenerator::KeepGenerator()
    : seed_(default_generator().state().seed), offset_(default_generator().state().offset) {}
KeepGenerator::~KeepGenerator() { default_generator().set_state(GeneratorState{seed_, offset_}); }

}  // namespace grapnel::nn::detail
