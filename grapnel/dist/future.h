/// Future: a value that is still on its way, and what to do when it has arrived.
///
///   Future<Tensor> sum = group.all_reduce(t).single();
///   Future<Tensor> mean = sum.then([n](const Tensor& s) { return s / n; });
///   mean.wait();
///
/// A Future is a counted handle. Callbacks of one Future run in the order they were attached,
/// exactly once, on the rank's executor: see Note [Callbacks run one at a time] in executor.h.
/// Attached to a Future that is complete, a callback runs at once.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>

#include "grapnel/base/error.h"

namespace grapnel::dist {

/// Something between the ranks went wrong. The group refuses work from then on; ProcessGroup::renew
/// makes another.
class CommError : public Error {
 public:
  using Error::Error;
};
/// A collective was not completed in time: a rank is dead, stuck or slow.
class CommTimeout : public CommError {
 public:
  using CommError::CommError;
};
/// Another rank, or this one, gave the group up.
class CommAborted : public CommError {
 public:
  using CommError::CommError;
};
/// The ranks did not call the same collective.
class CommMismatch : public CommError {
 public:
  using CommError::CommError;
};
/// A communication hook, or something after it, threw. The original exception is nested:
/// std::rethrow_if_nested.
class CommHookError : public Error {
 public:
  using Error::Error;
};

class Executor;
/// The executor for futures made on this thread: that of the rank the thread belongs to, else one
/// of the process.
std::shared_ptr<Executor> current_executor();

/// The value of a Future that only says "done".
struct Done {};

template <class T>
class Future;

namespace detail {

template <class T>
struct IsFuture : std::false_type {};
template <class T>
struct IsFuture<Future<T>> : std::true_type {
  using Value = T;
};

/// What all Futures share, whatever their value.
class FutureState : public std::enable_shared_from_this<FutureState> {
 public:
  explicit FutureState(std::shared_ptr<Executor> executor) : executor_(std::move(executor)) {}
  virtual ~FutureState() = default;
  // It is handed its own state, so that an unfinished Future with callbacks does not keep itself
  // alive.
  using Callback = std::function<void(const std::shared_ptr<FutureState>&)>;

  bool done() const;
  void wait() const;
  bool wait_for(std::chrono::milliseconds time) const;
  void attach(Callback callback);
  std::exception_ptr error() const;
  const std::shared_ptr<Executor>& executor() const { return executor_; }

 protected:
  enum class By : uint8_t { caller, promise };
  /// Runs `store` and marks the Future complete; an error if it was, or if somebody else is to.
  void complete(By by, const std::function<void()>& store);
  /// From now on only whoever promised it completes the Future; an error if it is too late.
  void promise();
  std::exception_ptr error_;

 private:
  template <class>
  friend class dist::Future;
  void run_callbacks();

  mutable std::mutex mutex_;
  mutable std::condition_variable arrived_;
  bool done_ = false;
  bool promised_ = false;
  bool running_ = false;  ///< callbacks are being run, so new ones queue up behind them
  std::deque<Callback> callbacks_;
  std::shared_ptr<Executor> executor_;
};

template <class T>
struct TypedState final : FutureState {
  using FutureState::FutureState;
  std::optional<T> value;
};

/// Whoever drives the communication. A thread that is about to wait may do so in its stead, which
/// saves waking two threads.
class Driver {
 public:
  /// Works until the Future is complete, or for a moment; returns at once if somebody else is at
  /// it.
  virtual void drive(const FutureState& until) = 0;
  /// A thread would have waited, but the Future was complete.
  virtual void came_to_wait() = 0;

 protected:
  ~Driver() = default;
};
extern std::atomic<Driver*> driver;
/// How many threads wait for a Future: as many cores are free for whoever drives the communication.
extern std::atomic<int> waiting_threads;
/// Called again and again while a thread waits; set where nobody else drives the communication.
extern thread_local std::function<void()>* progress_while_waiting;

}  // namespace detail

/// A value that is not there yet. Copies share it.
template <class T>
class Future {
 public:
  /// Empty: it will never have a value. See make().
  Future() = default;
  /// Complete.
  Future(T value) : Future(make()) { set_result(std::move(value)); }
  /// Not complete yet; set_result or set_error completes it, from any thread.
  static Future make(std::shared_ptr<Executor> executor = current_executor()) {
    Future f;
    f.state_ = std::make_shared<detail::TypedState<T>>(std::move(executor));
    return f;
  }
  static Future failed(std::exception_ptr error) {
    Future f = make();
    f.set_error(std::move(error));
    return f;
  }

  /// Whether it is not empty.
  bool valid() const { return state_ != nullptr; }
  bool done() const { return state().done(); }
  bool has_error() const { return done() && state().error(); }

  /// The value, once it has arrived; throws what was set instead of one.
  T wait() const {
    state().wait();
    return value();
  }
  /// Waits no longer than that; whether it is complete then.
  bool wait_for(std::chrono::milliseconds time) const { return state().wait_for(time); }
  /// The value, which must have arrived.
  T value() const {
    check(done(),
          "Future::value: the value has not arrived yet.\nUse wait(), or then() to go on when it "
          "has.");
    if (const std::exception_ptr e = state().error()) std::rethrow_exception(e);
    return *state_->value;
  }

  /// Once, and not on a Future that then() returned or that forward_to() was given: an Error.
  void set_result(T value) const { set_result(By::caller, std::move(value)); }
  void set_error(std::exception_ptr error) const {
    check(error != nullptr, "Future::set_error: there is no exception.");
    set_error(By::caller, std::move(error));
  }

  /// A Future for what `f` will return: f(Future<T>) is told about errors, too; f(T) runs only when
  /// there is a value, and an error passes it by. What `f` throws becomes the error. If `f` returns
  /// a Future, that one is followed.
  template <class F>
  auto then(F&& f) const {
    using D = std::decay_t<F>;
    constexpr bool takes_future = std::is_invocable_v<D&, Future<T>>;
    static_assert(takes_future || std::is_invocable_v<D&, T>,
                  "a callback of then() is called as f(Future<T>) or f(T)");
    using R = typename std::conditional_t<takes_future, std::invoke_result<D&, Future<T>>,
                                          std::invoke_result<D&, T>>::type;
    using Value = std::conditional_t<std::is_void_v<R>, Done, std::decay_t<R>>;
    auto next = [&] {
      if constexpr (detail::IsFuture<Value>::value) return Value::make(state().executor());
      else return Future<Value>::make(state().executor());
    }();
    next.state().promise();
    state().attach([next, fn = std::make_shared<D>(std::forward<F>(f))](
                       const std::shared_ptr<detail::FutureState>& self) {
      try {
        const Future done(std::static_pointer_cast<detail::TypedState<T>>(self));
        const auto call = [&]() -> R {
          if constexpr (takes_future) return std::invoke(*fn, done);
          else return std::invoke(*fn, done.value());
        };
        if constexpr (std::is_void_v<R>) {
          call();
          next.set_result(By::promise, Done());
        } else if constexpr (detail::IsFuture<Value>::value) {
          call().complete_later(next);
        } else {
          next.set_result(By::promise, call());
        }
      } catch (...) {
        next.set_error(By::promise, std::current_exception());
      }
    });
    return next;
  }

  /// Completes `other` with whatever this one is completed with.
  void forward_to(const Future& other) const {
    state();
    other.state().promise();
    complete_later(other);
  }

 private:
  using By = detail::FutureState::By;
  void set_result(By by, T value) const {
    state().complete(by, [&] { state_->value.emplace(std::move(value)); });
  }
  void set_error(By by, std::exception_ptr error) const {
    state().complete(by, [&] { state_->error_ = std::move(error); });
  }
  void complete_later(const Future& other) const {
    state().attach([other](const std::shared_ptr<detail::FutureState>& self) {
      const auto& from = static_cast<const detail::TypedState<T>&>(*self);
      if (const std::exception_ptr e = from.error()) other.set_error(By::promise, e);
      else other.set_result(By::promise, *from.value);
    });
  }
  template <class>
  friend class Future;
  explicit Future(std::shared_ptr<detail::TypedState<T>> state) : state_(std::move(state)) {}
  detail::TypedState<T>& state() const {
    check(state_ != nullptr,
          "the Future is empty: nothing will ever complete it.\nMake one with Future<T>::make().");
    return *state_;
  }
  std::shared_ptr<detail::TypedState<T>> state_;
};

}  // namespace grapnel::dist
