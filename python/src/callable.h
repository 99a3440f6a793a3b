/// Python callables that the library calls: as hooks, and as functions that graphs call.
#pragma once

#include <optional>
#include <string>

#include "grapnel/ops/compiled_args.h"
#include "grapnel/ops/invoke.h"
#include "python/src/bind.h"

namespace grapnel::python {

/// What a user sees of a callable in messages: its qualified name.
std::string name_of(PyObject* callable);

/// A new tuple of the objects of tensors. Null, with the exception set, if that fails.
PyObject* as_tuple(const variable_list& list);
/// The tensors in what a function returned: a tensor, or a tuple or list of tensors and None.
/// Anything else is refused.
variable_list list_from(PyObject* object, const std::string& kind, const std::string& name,
                        const char* wanted);

/// A Python callable that the library owns, and what opaque(f) or declared(f, ...) say about it.
struct Callable {
  /// What declared(f, ...) says.
  struct Declaration {
    std::string name, constants;
    std::vector<Tensor> tensors;
    std::vector<const Lifted*> numbers;
    Held owners;  ///< of the numbers
  };

  Held function;
  std::string name;
  bool is_opaque = false;
  std::shared_ptr<const Declaration> declaration;

  /// Sees through what opaque() and declared() returned.
  explicit Callable(nb::handle f) : Callable(f, name_of(f.ptr())) {}
  Callable(nb::handle f, std::string called);
  void declare(CompiledNodeArgs& args) const;
  /// What hooks made of it tell the collector.
  const void* foreign() const { return this; }

  /// Calls it with new references, which are given up. Throws what it raises.
  template <class... Args>
  nb::object operator()(Args... args) const {
    PyObject* const list[] = {args...};
    PyObject* const out = (... && args)
                              ? PyObject_Vectorcall(function.get(), list, sizeof...(args), nullptr)
                              : nullptr;
    (Py_XDECREF(args), ...);
    if (!out) throw_python();
    return nb::steal(out);
  }
};

[[noreturn]] void refuse_result(const std::string& kind, const std::string& name, PyObject* got,
                                const char* wanted);

/// How a hook is registered: with its name, and the line that runs now.
HookOptions options_for(nb::handle f, const std::optional<std::string>& name);

}  // namespace grapnel::python
