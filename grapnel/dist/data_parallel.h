/// DistributedDataParallel: a module whose gradients are averaged over all ranks during the
/// backward pass.
///
///   dist::ProcessGroup group = dist::init();
///   dist::DistributedDataParallel model(Net(), group);
///   model.register_comm_hook(dist::hooks::fp16_compress);     // optional: changes what is sent
///   loss(model(x), y).backward();                             // grad() is the mean over all ranks
///   optimizer.step();
///
/// A comm hook is any callable `Future<Tensor>(GradBucket&)` or, with a state,
/// `Future<Tensor>(State&, GradBucket&)`; see hooks.h for those that exist. Start reading at
/// DataParallelModule::before_forward.
#pragma once

#include <concepts>
#include <memory>
#include <optional>

#include "grapnel/dist/data_parallel_options.h"
#include "grapnel/dist/grad_bucket.h"
#include "grapnel/nn/nn.h"
#include "grapnel/optim/optim.h"

namespace grapnel::dist {

using CommHookOptions = HookOptions;

namespace detail {
template <class F>
concept NamesItself = requires { std::string(std::decay_t<F>::name); };
template <class F>
std::string hook_name(HookOptions& options) {
  check_options(HookKind::comm, options);
  if (!options.name.empty()) return std::move(options.name);
  if constexpr (NamesItself<F>) return std::string(std::decay_t<F>::name);
  else return "of the user";
}
template <class T>
struct StateOf {
  static_assert(
      !std::is_lvalue_reference_v<T>,
      "pass the state of a comm hook as std::shared_ptr, std::ref or a value to be moved in");
  using Type = std::decay_t<T>;
  static std::shared_ptr<Type> hold(T&& state) {
    return std::make_shared<Type>(std::forward<T>(state));
  }
};
template <class S>
struct StateOf<std::shared_ptr<S>> {
  using Type = S;
  static std::shared_ptr<S> hold(const std::shared_ptr<S>& state) {
    check(state != nullptr, "register_comm_hook: the state is null.");
    return state;
  }
};
template <class S>
struct StateOf<std::shared_ptr<S>&> : StateOf<std::shared_ptr<S>> {};
template <class S>
struct StateOf<const std::shared_ptr<S>&> : StateOf<std::shared_ptr<S>> {};
template <class S>
struct StateOf<std::reference_wrapper<S>> {
  using Type = S;
  static std::shared_ptr<S> hold(std::reference_wrapper<S> state) {
    return {std::shared_ptr<void>(), &state.get()};
  }
};
template <class S>
struct StateOf<std::reference_wrapper<S>&> : StateOf<std::reference_wrapper<S>> {};
/// A group is a handle, so it may be passed as it is.
template <>
struct StateOf<ProcessGroup&> {
  using Type = ProcessGroup;
  static std::shared_ptr<ProcessGroup> hold(const ProcessGroup& group);
};
template <>
struct StateOf<const ProcessGroup&> : StateOf<ProcessGroup&> {};
}  // namespace detail

class DataParallelModule;
class Reducer;

/// While it lives, backward passes whose forward ran inside stay local and only accumulate.
class [[nodiscard]] NoSync {
 public:
  explicit NoSync(DataParallelModule& model);
  ~NoSync();
  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;

 private:
  DataParallelModule& model_;
  bool before_;
};

/// Everything about the wrapper that does not depend on the module's type.
///
/// Note [A rank that fails]
/// The others must not wait for a rank that has failed, so its failure gives the group up:
/// - A backward pass that would have reached the wrapped module's parameters and throws, wherever
///   (a hook of any kind, the engine, a bucket): Reducer::pass_failed.
/// - A recorded step that does not run, or fails while it runs: the same, through the recording.
/// - Anything else: an exception that ends the scope of the wrapper, or leaves the function that
///   run_threads called. Over MPI also one that nobody catches (see MpiEngine::last_words).
/// An exception that is caught while the wrapper lives, outside of backward, is the program's own
/// business; ProcessGroup::abort tells the others.
class DataParallelModule : public nn::Module {
 public:
  DataParallelModule(std::shared_ptr<nn::Module> module, ProcessGroup group,
                     DataParallelOptions options);
  /// Gives the group up if an exception ends its scope.
  ~DataParallelModule() override;
  DataParallelModule(const DataParallelModule&) = delete;
  DataParallelModule& operator=(const DataParallelModule&) = delete;

  /// The hook decides what is sent for a bucket and what becomes of it. Once, before the first
  /// backward pass, alike on all ranks.
  template <class F>
  void register_comm_hook(F&& hook, HookOptions options = {}) {
    using D = std::decay_t<F>;
    static_assert(std::is_invocable_v<D&, GradBucket&>,
                  "a comm hook is called as hook(dist::GradBucket&), or with a state as "
                  "hook(State&, dist::GradBucket&)");
    static_assert(std::is_same_v<std::invoke_result_t<D&, GradBucket&>, Future<Tensor>>,
                  "a comm hook returns dist::Future<Tensor>");
    if constexpr (requires { static_cast<bool>(hook); })
      check(static_cast<bool>(hook), "register_comm_hook: the hook is empty.");
    std::string name = detail::hook_name<F>(options);
    set_hook({std::move(name), [f = std::make_shared<D>(std::forward<F>(hook))](
                                   GradBucket& bucket) { return std::invoke(*f, bucket); }});
  }
  /// As PyTorch spells it: no state.
  template <class F>
  void register_comm_hook(std::nullptr_t, F&& hook, HookOptions options = {}) {
    register_comm_hook(std::forward<F>(hook), std::move(options));
  }
  /// The state is a std::shared_ptr, a std::ref or a value to be moved in. It belongs to this rank.
  template <class S, class F>
    requires(!std::same_as<std::decay_t<F>, HookOptions> &&
             !std::same_as<std::decay_t<S>, std::nullptr_t>)
  void register_comm_hook(S&& state, F&& hook, HookOptions options = {}) {
    using D = std::decay_t<F>;
    using State = typename detail::StateOf<S>::Type;
    static_assert(std::is_invocable_v<D&, State&, GradBucket&>,
                  "a comm hook is called as hook(dist::GradBucket&), or with a state as "
                  "hook(State&, dist::GradBucket&)");
    static_assert(std::is_same_v<std::invoke_result_t<D&, State&, GradBucket&>, Future<Tensor>>,
                  "a comm hook returns dist::Future<Tensor>");
    std::string name = detail::hook_name<F>(options);
    set_hook({std::move(name), [s = detail::StateOf<S>::hold(std::forward<S>(state)),
                                f = std::make_shared<D>(std::forward<F>(hook))](
                                   GradBucket& bucket) { return std::invoke(*f, *s, bucket); }});
  }
  /// A hook of the library by its name; hooks::builtin_names() has them all.
  void register_builtin_comm_hook(std::string_view name);
  /// Steps every parameter during backward, as soon as its averaged gradient has arrived; grad() is
  /// undefined afterwards. Takes the place of a comm hook, and excludes no_sync and accumulation.
  void register_optimizer_in_backward(std::shared_ptr<optim::Optimizer> optimizer);
  /// Calls `hook(parameter)` at the end of backward, when grad() is the average. Post-accumulate
  /// hooks see the local gradient.
  template <class F>
  HookHandle register_after_reduction_hook(const Tensor& parameter, F&& hook,
                                           HookOptions options = {}) {
    static_assert(std::is_invocable_v<std::decay_t<F>&, const Tensor&>,
                  "an after-reduction hook is called as hook(const Tensor& parameter)");
    return add_after_reduction_hook(parameter, std::forward<F>(hook), std::move(options));
  }

  NoSync no_sync() { return NoSync(*this); }
  /// Says before the first iteration that the graph will always be the same.
  void set_static_graph();
  /// Starts over with another group, after a failure for instance: the hook stays, buckets are laid
  /// out anew.
  void reset(const ProcessGroup& group);

  /// The ranks this wrapper averages over.
  const ProcessGroup& group() const;
  ReducerStats stats() const;
  /// Which parameters are in which bucket, in the order of launch.
  std::vector<std::vector<size_t>> bucket_layout() const;
  /// Iterations so far, layout and what is known about a static graph; the module's own state is
  /// saved by state_dict().
  nn::StateDict wrapper_state() const;
  void load_wrapper_state(const nn::StateDict& state);

 protected:
  /// Before the module runs: buckets and buffers.
  void before_forward();
  /// Afterwards: gets the next backward pass ready. May replace tensors of the result by aliases.
  void after_forward(nn::Value& result);
  bool marks_outputs() const;
  bool syncing() const { return syncing_; }

 private:
  friend class NoSync;
  friend struct JoinAccess;
  void set_hook(CommHook hook);
  HookHandle add_after_reduction_hook(const Tensor& parameter,
                                      std::function<void(const Tensor&)> hook, HookOptions options);
  std::vector<Tensor> buffers_to_sync() const;

  std::shared_ptr<nn::Module> inner_;
  DataParallelOptions options_;
  std::shared_ptr<Reducer> reducer_;
  ProcessGroup given_, buffer_channel_;
  bool sync_ = true;      ///< not inside no_sync
  bool syncing_ = false;  ///< the forward under way will be followed by a synchronised backward
  bool optimizer_inside_ = false;
  const int exceptions_;  ///< that were in flight when it was made
  std::function<void(DataParallelModule&)>
      on_forward_;  ///< set while inputs may be uneven: see join
  int buffers_from_ = 0;
};

/// Wraps a module of type M; made from a holder or a shared_ptr, with M found out by itself.
template <class M>
class DistributedDataParallel final : public DataParallelModule {
 public:
  DistributedDataParallel(std::shared_ptr<M> module, ProcessGroup group,
                          DataParallelOptions options = {})
      : DataParallelModule(module, std::move(group), std::move(options)),
        module_(std::move(module)) {}

  /// The wrapped module.
  M& module() const { return *module_; }

  template <class... A>
  auto forward(A&&... args) -> decltype(nn::call(std::declval<M&>(), std::forward<A>(args)...)) {
    before_forward();
    if constexpr (std::is_void_v<decltype(nn::call(*module_, std::forward<A>(args)...))>) {
      nn::call(*module_, std::forward<A>(args)...);
      nn::Value nothing;
      after_forward(nothing);
    } else {
      auto result = nn::call(*module_, std::forward<A>(args)...);
      if (!syncing()) return result;
      nn::Value value(result);
      after_forward(value);
      return marks_outputs() ? value.template to<decltype(result)>() : result;
    }
  }
  /// Calls forward, with hooks of the wrapper itself if there are any.
  template <class... A>
  auto operator()(A&&... args) -> decltype(nn::call(std::declval<M&>(), std::forward<A>(args)...)) {
    return nn::call(*this, std::forward<A>(args)...);
  }

 private:
  std::shared_ptr<M> module_;
};
template <class M>
DistributedDataParallel(std::shared_ptr<M>, ProcessGroup) -> DistributedDataParallel<M>;
template <class M>
DistributedDataParallel(std::shared_ptr<M>, ProcessGroup, DataParallelOptions)
    -> DistributedDataParallel<M>;
template <class H>
DistributedDataParallel(H, ProcessGroup) -> DistributedDataParallel<typename H::ContainedType>;
template <class H>
DistributedDataParallel(H, ProcessGroup, DataParallelOptions)
    -> DistributedDataParallel<typename H::ContainedType>;

}  // namespace grapnel::dist
