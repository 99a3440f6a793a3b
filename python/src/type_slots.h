/// What the Python types that are made by hand have in common: a dictionary, weak references, and slots whose C++
/// exceptions become Python's.
#pragma once

#include <Python.h>
#include <structmember.h>

#include <type_traits>

#include "python/src/held.h"

namespace grapnel::python {

/// Runs the body of a slot. A C++ exception becomes Python's, and the slot returns what says so.
template <class F>
auto guarded(F&& f) -> decltype(f()) {
  try {
    const LetGo afterwards;
    return f();
  } catch (...) {
    set_python_error();
    if constexpr (std::is_pointer_v<decltype(f())>) return nullptr;
    else return -1;
  }
}

template <class F>
void* slot(F* function) {
  return reinterpret_cast<void*>(function);
}

/// Where an object of a struct with `dict` and `weak_references` has them; for the first entries of Py_tp_members.
#define GRAPNEL_DICT_AND_WEAK_REFERENCES(Struct)                                           \
  {"__dictoffset__", T_PYSSIZET, offsetof(Struct, dict), READONLY, nullptr}, {             \
    "__weaklistoffset__", T_PYSSIZET, offsetof(Struct, weak_references), READONLY, nullptr \
  }

/// For Py_tp_getset.
inline constexpr PyGetSetDef kDictProperty = {"__dict__", PyObject_GenericGetDict,
                                              PyObject_GenericSetDict, nullptr, nullptr};

/// The entry that ends a table of members or properties.
inline constexpr PyMemberDef kNoMoreMembers = {nullptr, 0, 0, 0, nullptr};
inline constexpr PyGetSetDef kNoMoreProperties = {nullptr, nullptr, nullptr, nullptr, nullptr};

}  // namespace grapnel::python
