// Numbers and lists of them between Python and C++, and lists of tensors.
#include <cmath>

#include "python/src/bind.h"

namespace grapnel::python {

bool to_scalar(PyObject* object, Scalar& out, bool convert) {
  if (PyFloat_Check(object)) {
    out = PyFloat_AS_DOUBLE(object);
    return true;
  }
  if (PyBool_Check(object)) {
    out = object == Py_True;
    return true;
  }
  if (PyLong_Check(object)) {
    int overflow = 0;
    const int64_t value = PyLong_AsLongLongAndOverflow(object, &overflow);
    // As with every number that is too large for its place, the nearest one that fits a double.
    out = overflow ? Scalar(PyLong_AsDouble(object)) : Scalar(value);
    if (overflow && PyErr_Occurred()) PyErr_Clear(), out = Scalar(HUGE_VAL * overflow);
    return true;
  }
  // NumPy's numbers are none of Python's, but behave like them; its arrays do so only by accident.
  if (!convert || is_tensor(object) || PySequence_Check(object) || PyUnicode_Check(object))
    return false;
  const PyNumberMethods* const number = Py_TYPE(object)->tp_as_number;
  if (!number) return false;
  PyObject* plain = nullptr;
  if (number->nb_index) plain = PyNumber_Index(object);
  if (!plain && number->nb_float) PyErr_Clear(), plain = PyNumber_Float(object);
  if (!plain) {
    PyErr_Clear();
    return false;
  }
  const bool done = to_scalar(plain, out, false);
  Py_DECREF(plain);
  return done;
}

PyObject* from_scalar(const Scalar& value) {
  if (value.is_bool()) return PyBool_FromLong(value.to_bool());
  if (value.is_integral()) return PyLong_FromLongLong(value.to_int());
  return PyFloat_FromDouble(value.to_double());
}

nb::object result(const std::vector<Tensor>& list) {
  nb::object out = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(list.size())));
  if (!out.is_valid()) throw nb::python_error();
  for (size_t i = 0; i < list.size(); ++i)
    PyTuple_SET_ITEM(out.ptr(), static_cast<Py_ssize_t>(i), result(list[i]).release().ptr());
  return out;
}

Spread::Spread(const nb::args& sizes) {
  for (const nb::handle size : sizes) {
    if (!PyIndex_Check(size.ptr()) || PyBool_Check(size.ptr()))
      throw nb::type_error("sizes are integers");
    values_.push_back(nb::cast<int64_t>(size));
  }
}

}  // namespace grapnel::python

NAMESPACE_BEGIN(NB_NAMESPACE)
NAMESPACE_BEGIN(detail)

bool ints_from(PyObject* src, grapnel::python::Ints& out) noexcept {
  const auto add = [&](PyObject* item) {
    if (PyBool_Check(item) || !PyIndex_Check(item)) return false;
    PyObject* const number = PyNumber_Index(item);
    const long long value = number ? PyLong_AsLongLong(number) : -1;
    Py_XDECREF(number);
    if (value == -1 && PyErr_Occurred()) {
      PyErr_Clear();
      return false;
    }
    out.push_back(value);
    return true;
  };
  try {
    out.clear();
    if (!PyList_Check(src) && !PyTuple_Check(src)) return !PySequence_Check(src) && add(src);
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(src); ++i)
      if (!add(PySequence_Fast_GET_ITEM(src, i))) return false;
    return true;
  } catch (...) {
    return false;
  }
}

bool tensors_from(PyObject* src, std::vector<grapnel::Tensor>& out) noexcept {
  try {
    out.clear();
    if (!PyList_Check(src) && !PyTuple_Check(src)) return false;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(src); ++i) {
      PyObject* const item = PySequence_Fast_GET_ITEM(src, i);
      if (!grapnel::python::is_tensor(item)) return false;
      out.push_back(grapnel::python::tensor_of(item));
    }
    return true;
  } catch (...) {
    return false;
  }
}

NAMESPACE_END(detail)
NAMESPACE_END(NB_NAMESPACE)
