/// Python objects that C++ code owns, and Python exceptions on their way through it.
///
/// Note [Where Python objects die]
/// The library lets go of hooks and packed values anywhere: under locks of its own, on threads that
/// Python does not know, in the middle of a pass. A Python object may run any code when it dies, so
/// it must not die there, and nothing there may wait for the interpreter's lock. What the library
/// lets go of goes onto a list that takes no lock. The list is worked off where the binding is
/// entered or left with the interpreter's lock in hand, or when the interpreter next looks for
/// pending calls. Once the interpreter ends, what is left stays where it is.
#pragma once

#include <Python.h>
#include <nanobind/nanobind.h>

#include <atomic>
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "grapnel/tensor/tensor.h"
#include "python/src/lines.h"

namespace grapnel::python {

/// One more owner of a Python object. Copies and ends without the interpreter's lock.
class Held {
 public:
  Held() = default;
  /// Needs the interpreter's lock, like whatever reads it.
  static Held borrow(PyObject* object) {
    Py_XINCREF(object);
    return steal(object);
  }
  static Held steal(PyObject* object);
  Held(const Held& other) noexcept;
  Held(Held&& other) noexcept : box_(std::exchange(other.box_, nullptr)) {}
  Held& operator=(Held other) noexcept {
    std::swap(box_, other.box_);
    return *this;
  }
  ~Held();

  PyObject* get() const { return box_ ? box_->object : nullptr; }
  explicit operator bool() const { return box_ != nullptr; }
  /// How many copies there are: one Python reference stands for all of them.
  uint32_t copies() const { return box_ ? box_->owners.load(std::memory_order_relaxed) : 0; }
  /// Whether C++ code owns anything of Python's. Needs the interpreter's lock.
  static bool any_alive() { return alive_ > 0; }
  static bool any_dying() { return dying_.load(std::memory_order_relaxed) != nullptr; }

 private:
  friend void let_go_of_dying();
  struct Box {
    PyObject* object;
    Box* next = nullptr;
    std::atomic<uint32_t> owners{1};
  };
  static std::atomic<Box*> dying_;
  static inline size_t alive_ = 0;  ///< guarded by the interpreter's lock
  static void ask_for_let_go() noexcept;
  Box* box_ = nullptr;
};

/// Ends the objects on the list. Needs the interpreter's lock, and no lock of the library's.
void let_go_of_dying();
/// Works off the list when a call of the binding ends.
struct LetGo {
  ~LetGo() {
    if (Held::any_dying()) [[unlikely]]
      let_go_of_dying();
  }
};
/// From now on nothing of Python's is touched any more.
void interpreter_ends();

/// Lets other threads of Python run while it lives.
class WithoutInterpreter {
 public:
  WithoutInterpreter() : outer_(waiting_) {
    inside_.fetch_add(1, std::memory_order_relaxed);
    waiting_ = PyEval_SaveThread();
  }
  ~WithoutInterpreter() {
    PyEval_RestoreThread(waiting_);
    waiting_ = outer_;
    inside_.fetch_sub(1, std::memory_order_relaxed);
  }
  WithoutInterpreter(const WithoutInterpreter&) = delete;
  WithoutInterpreter& operator=(const WithoutInterpreter&) = delete;
  /// Whether any thread is inside, this one included. It stays so, or not, while the caller has the interpreter's lock.
  static bool anywhere() { return inside_.load(std::memory_order_relaxed) > 0; }

 private:
  friend class WithInterpreter;
  /// This thread's state while it runs without the lock; null while it has it, and where Python did not make the thread.
  static inline constinit thread_local PyThreadState* waiting_ [[gnu::tls_model("initial-exec")]] =
      nullptr;
  static inline std::atomic<int> inside_{0};
  const LineScope here_{LineScope::For::all};  // while there is still a lock to look with
  PyThreadState* const outer_;
};

/// The interpreter's lock, for code that the library calls. A thread that gave it away knows its state, which takes less time than
/// asking Python for it.
class WithInterpreter {
 public:
  WithInterpreter() : own_(std::exchange(WithoutInterpreter::waiting_, nullptr)) {
    if (own_) PyEval_RestoreThread(own_);
    else asked_ = PyGILState_Ensure();
  }
  ~WithInterpreter() {
    if (own_) WithoutInterpreter::waiting_ = PyEval_SaveThread();
    else PyGILState_Release(asked_);
  }
  WithInterpreter(const WithInterpreter&) = delete;
  WithInterpreter& operator=(const WithInterpreter&) = delete;

 private:
  PyThreadState* const own_;
  PyGILState_STATE asked_{};
};

/// A Python exception, with type, value and traceback, while C++ code is between the Python code
/// that raised it and the Python code that will see it. The library passes it on as it is.
class PythonError : public std::exception {
 public:
  /// Takes the exception that is set.
  PythonError();
  /// Sets it again. Only once: what C++ code remembers of exceptions must not keep the frames alive
  /// that a traceback refers to.
  void restore() const;
  const char* what() const noexcept override { return what_->c_str(); }

 private:
  std::shared_ptr<Held> value_;
  std::shared_ptr<const std::string> what_;
};

/// Runs what the library calls of Python's: with the interpreter's lock, and with what died meanwhile
/// let go at the end; the library holds no lock of its own then. Results are no Python objects.
template <class F>
auto in_python(F&& f) {
  const WithInterpreter interpreter;
  const LetGo afterwards;
  try {
    return f();
  } catch (nanobind::python_error& error) {
    error.restore();
    throw PythonError();
  }
}

/// Throws the exception that is set.
[[noreturn]] void throw_python();
/// Sets a Python exception for the C++ one that is being handled.
void set_python_error() noexcept;

}  // namespace grapnel::python
