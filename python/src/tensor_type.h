/// The Python type of tensors.
///
/// Note [One object per tensor]
/// A tensor header has at most one Python object, which owns it; the header's `wrapper` points back, and is read and written with the
/// interpreter's lock only. Whoever hands the same header to Python again gets the same object: `x.add_(1) is x` and `p.grad is p.grad`.
#pragma once

#include <Python.h>

#include <optional>
#include <vector>

#include "grapnel/tensor/tensor.h"
#include "python/src/collector.h"

namespace grapnel::python {

struct PyTensor {
  PyObject_HEAD PyObject* dict;
  PyObject* weak_references;
  Enlisted enlisted;
  Tensor tensor;
  /// Further handles on the header, whose owners all keep this object.
  uint32_t co_owners;
};

extern PyTypeObject* tensor_type_object;  ///< null until the module is set up
inline PyTypeObject* tensor_type() { return tensor_type_object; }
inline bool is_tensor(PyObject* object) { return PyObject_TypeCheck(object, tensor_type()); }
/// The tensor behind an object for which is_tensor holds.
inline const Tensor& tensor_of(PyObject* object) {
  return reinterpret_cast<PyTensor*>(object)->tensor;
}
/// A new reference to the object of a tensor; None for an undefined one. Null if memory runs out.
PyObject* wrap(Tensor&& tensor);
inline PyObject* wrap(const Tensor& tensor) { return wrap(Tensor(tensor)); }
/// A new object of a Python subclass for a tensor that has none yet.
PyObject* wrap_as(PyTypeObject* type, const Tensor& tensor);

/// A number, or false for anything else. With `convert`, also numbers of NumPy and other classes.
bool to_scalar(PyObject* object, Scalar& out, bool convert);
PyObject* from_scalar(const Scalar& value);
/// A tensor over the memory of an object that has some, which it keeps. Not over memory that nobody may write to, if it is to be
/// `writable`.
Tensor from_buffer(PyObject* object, bool writable);
/// Lists and tuples, not other sequences.
inline bool is_list(PyObject* object) { return PyList_Check(object) || PyTuple_Check(object); }
/// tensor(data): nested sequences of numbers, arrays, tensors.
Tensor tensor_from(PyObject* data, std::optional<DType> dtype);
/// What stands between the brackets of x[...], read and written.
PyObject* get_item(PyObject* self, PyObject* key);
int set_item(PyObject* self, PyObject* key, PyObject* value);
/// What the type is made of besides.
std::vector<PyType_Slot> operator_slots();
PyGetSetDef* tensor_properties();
/// PEP 3118.
int get_buffer(PyObject* self, Py_buffer* view, int flags);
void release_buffer(PyObject* self, Py_buffer* view);

}  // namespace grapnel::python
