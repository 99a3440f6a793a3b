#include "grapnel/nn/call.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <unordered_set>

#include "grapnel/base/at_fork.h"
#include "grapnel/base/short_name.h"
#include "grapnel/base/source_site.h"
#include "grapnel/base/warn.h"
#include "grapnel/functions/generator.h"
#include "grapnel/nn/backward_call.h"
#include "grapnel/nn/checkpointed_call.h"

namespace grapnel::nn::detail {

// --- where a call is, for messages ---

/// How modules were called: "blocks.3.fc of Net". There is one object for every path that was ever
/// asked for, and none is deleted, since a graph that is run later may ask for its text.
class ModulePath final : public base::Remembered {
 public:
  ModulePath(const ModulePath* outer, std::string name) : outer_(outer), name_(std::move(name)) {}

  static const ModulePath* of(const CallScope& call) {
    if (call.path_ == nullptr) call.path_ = find(call);
    return call.path_;
  }
  bool is_module() const override { return true; }
  std::string text() const override {
    std::string path;
    const ModulePath* p = this;
    for (; p->outer_ != nullptr; p = p->outer_)
      path = path.empty() ? p->name_ : p->name_ + "." + path;
    return path.empty() ? "in " + p->name_ : "in " + path + " of " + p->name_;
  }

 private:
  static const CallScope* call_around(const base::Place& c) {
    for (const base::Place* outer = c.outer(); outer; outer = outer->outer())
      if (outer->kind() == base::Place::Kind::module) return static_cast<const CallScope*>(outer);
    return nullptr;
  }

  static const ModulePath* find(const CallScope& call) {
    const CallScope* const around = call_around(call);
    const ModulePath* const last = call.module_.path_.load(std::memory_order_relaxed);
    if (last && last->outer_ == (around ? of(*around) : nullptr)) {
      // Modules of other names may have paths of the same text.
      if (!around) return last;
      const auto* child = around->module_.children_.find(last->name_);
      if (child && child->get() == &call.module_) return last;
    }
    const ModulePath* path = nullptr;
    std::string name;
    for (const CallScope* c = around; c && !path; c = call_around(*c))
      if (name_in(c->module_, call.module_, name)) path = only(of(*c), std::move(name));
    if (!path) path = only(nullptr, name_of(call.module_));
    call.module_.path_.store(path, std::memory_order_relaxed);
    return path;
  }

  /// Whether `inner` is registered below `outer`, and how: "fc" or "blocks.3.fc".
  static bool name_in(const Module& outer, const Module& inner, std::string& name) {
    for (const auto& child : outer.children_)
      if (child.value().get() == &inner) return name = child.key(), true;
    for (const auto& child : outer.children_)
      if (name_in(*child.value(), inner, name)) return name = child.key() + "." + name, true;
    return false;
  }

  static std::string name_of(const Module& module) {
    std::string name = base::short_type_name(typeid(module));
    if (name.size() > 4 && name.ends_with("Impl")) name.resize(name.size() - 4);
    return name;
  }

  static const ModulePath* only(const ModulePath* outer, std::string name) {
    using Paths = std::map<std::pair<const ModulePath*, std::string>, ModulePath>;
    static constinit base::ProcessMutex mutex{base::ForkOrder::settings};
    static Paths& all = *new Paths;
    const std::lock_guard lock(mutex);
    return &all.try_emplace({outer, name}, outer, name).first->second;
  }

  const ModulePath* const outer_;
  const std::string name_;
};

std::shared_ptr<const base::Remembered> CallScope::remember() const {
  return {std::shared_ptr<const void>(), ModulePath::of(*this)};
}

namespace {

/// Runs a hook of the module. What goes wrong in it is told with the hook's name.
template <class Entry, class Run>
decltype(auto) as_hook(const Entry& e, HookKind kind, const Module& module, Run&& run) {
  const base::HookCodeScope user;
  try {
    return run();
  } catch (...) {
    base::note(str("in the ", e.describe(grapnel::name(kind)), ", of ",
                   base::short_type_name(typeid(module))));
    throw;
  }
}

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
      as_hook(*e, HookKind::forward_pre, module_, [&] { e->hook.call(module_, args_, kwargs_); });
  }
  void run_hooks() {
    for (const auto& e : hooks_now(global_.forward, module_.hooks().forward)) {
      if (e->hook.always_call) called_.insert(e->id);
      as_hook(*e, HookKind::forward, module_,
              [&] { e->hook.call(module_, args_, kwargs_, result_); });
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

}  // namespace grapnel::nn::detail

namespace grapnel::nn {

namespace {
/// Leaves the default generator as it was: a copy draws no random numbers.
class KeepGenerator {
 public:
  KeepGenerator() = default;
  ~KeepGenerator() { default_generator().set_state(before_); }
  KeepGenerator(const KeepGenerator&) = delete;
  KeepGenerator& operator=(const KeepGenerator&) = delete;

 private:
  const GeneratorState before_ = default_generator().state();
};
}  // namespace

std::shared_ptr<Module> Module::finish_clone_(Module* copy, const Module& from,
                                              void (*reset)(Module& copy)) {
  std::shared_ptr<Module> out(copy);
  copy->parameters_.clear();
  copy->buffers_.clear();
  copy->children_.clear();
  copy->transient_buffers_.clear();
  {
    const KeepGenerator keep;
    reset(*copy);
  }
  copy->Module::clone_(from);
  return out;
}

bool Module::has_twice_(const std::vector<size_t>& before) const {
  return std::ranges::equal(owners_(), before, [](size_t now, size_t n) { return now == 2 * n; });
}

}  // namespace grapnel::nn
