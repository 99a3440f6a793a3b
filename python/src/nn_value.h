/// Python objects as arguments and results of modules, and back.
#pragma once

#include "grapnel/nn/value.h"
#include "python/src/bind.h"

namespace grapnel::python {

/// A Python object that is none of the types that C++ has: a list, a dict, an object of the user's.
struct PyValue {
  Held object;
  /// Those in tuples, lists, dicts and dataclasses, in order, once somebody has asked for them. Ones
  /// that were replaced make new containers when the value becomes an object again.
  std::vector<Tensor> tensors = {};
  bool opened = false;
};
void visit_tensors(PyValue& value, const nn::TensorVisitor& fn);

/// Tensors, numbers, strings and tuples become C++'s; all else stays the object it is. Needs the
/// interpreter's lock, as all here.
nn::Value to_value(PyObject* object);
nb::object from_value(const nn::Value& value);

/// The arguments of a call.
nn::Args to_args(PyObject* tuple);
nn::Kwargs to_kwargs(PyObject* dict);
nb::object from_args(const nn::Args& args);
nb::object from_kwargs(const nn::Kwargs& kwargs);

}  // namespace grapnel::python
