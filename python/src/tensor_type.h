/// The Python type of tensors.
///
/// Note [One object per tensor]
/// A tensor header has at most one Python object, which owns it. Whoever hands the same header to
/// Python again gets the same object: `x.add_(1) is x` and `p.grad is p.grad`.
#pragma once

#include <Python.h>

#include "grapnel/tensor/tensor.h"

namespace grapnel::python {

struct PyTensor {
  PyObject_HEAD PyObject* dict;
  PyObject* weak_references;
  Tensor tensor;
  /// Further handles on the header, whose owners all keep this object.
  uint32_t co_owners;
};

PyTypeObject* tensor_type();
inline bool is_tensor(PyObject* object) { return PyObject_TypeCheck(object, tensor_type()); }
/// The tensor behind an object for which is_tensor holds.
inline const Tensor& tensor_of(PyObject* object) {
  return reinterpret_cast<PyTensor*>(object)->tensor;
}
/// A new reference to the object of a tensor; None for an undefined one. Null if memory runs out.
PyObject* wrap(const Tensor& tensor);
/// A new object of a Python subclass for a tensor that has none yet.
PyObject* wrap_as(PyTypeObject* type, const Tensor& tensor);

/// A number, or false for anything else. With `convert`, also numbers of NumPy and other classes.
bool to_scalar(PyObject* object, Scalar& out, bool convert);
PyObject* from_scalar(const Scalar& value);
/// tensor(data): nested sequences of numbers, arrays, tensors.
Tensor tensor_from(PyObject* data, std::optional<DType> dtype);
/// What stands between the brackets of x[...], read and written.
PyObject* get_item(PyObject* self, PyObject* key);
int set_item(PyObject* self, PyObject* key, PyObject* value);
/// PEP 3118.
int get_buffer(PyObject* self, Py_buffer* view, int flags);
void release_buffer(PyObject* self, Py_buffer* view);

}  // namespace grapnel::python
