#include "grapnel/nn/call.h"

#include <unordered_set>

#include "grapnel/base/log.h"
#include "grapnel/nn/backward_call.h"
#include "grapnel/ops/generator.h"

namespace grapnel::nn::detail {

namespace {

/// One call under way.
class ForwardCall {
 public:
  ForwardCall(Module& module, Args args, Kwargs kwargs)
      : module_(module), args_(std::move(args)), kwargs_(std::move(kwargs)) {}

  Value run(const ForwardFn& forward) {
    for (const auto& e : hooks_now(global_.forward_pre, module_.hooks().forward_pre))
      e->hook.call(module_, args_, kwargs_);
    BackwardCall backward(module_, args_, kwargs_);
    result_ = forward(args_, kwargs_);
    for (const auto& e : hooks_now(global_.forward, module_.hooks().forward)) {
      if (e->hook.always_call) called_.insert(e->id);
      e->hook.call(module_, args_, kwargs_, result_);
    }
    backward.finish(result_);
    return std::move(result_);
  }

  /// After a failure: hooks that run always and have not run yet. The failure stays the caller's
  /// news, so theirs are warnings.
  void run_always_called() {
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
