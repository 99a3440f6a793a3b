// The attributes of tensors that are no methods: x.shape, x.grad, x.requires_grad.
#include "grapnel/autograd/meta.h"
#include "python/src/bind.h"
#include "python/src/node_type.h"
#include "python/src/type_slots.h"

namespace grapnel::python {

namespace {

template <class F>
PyObject* get(PyObject* self, F f) {
  return guarded([&] { return f(tensor_of(self)); });
}
#define GRAPNEL_GET(name, ...)                                                  \
  PyObject* get_##name(PyObject* self, void*) {                                 \
    return get(self, [](const Tensor& t) -> PyObject* { return __VA_ARGS__; }); \
  }
GRAPNEL_GET(shape, size_object(t.shape()))
GRAPNEL_GET(ndim, PyLong_FromLongLong(t.dim()))
GRAPNEL_GET(itemsize, PyLong_FromSize_t(t.itemsize()))
GRAPNEL_GET(nbytes, PyLong_FromLongLong(t.nbytes()))
GRAPNEL_GET(dtype, dtype_object(t.dtype()).release().ptr())
GRAPNEL_GET(device, nb::cast(t.device()).release().ptr())
GRAPNEL_GET(requires_grad, PyBool_FromLong(t.requires_grad()))
GRAPNEL_GET(is_leaf, PyBool_FromLong(t.is_leaf()))
GRAPNEL_GET(retains_grad, PyBool_FromLong(t.retains_grad()))
GRAPNEL_GET(grad, wrap(t.grad()))
GRAPNEL_GET(grad_fn, wrap_node(t.grad_fn()))
GRAPNEL_GET(data, wrap(t.detach()))
GRAPNEL_GET(base, t.is_view() ? wrap(t._base()) : Py_NewRef(Py_None))
GRAPNEL_GET(version, PyLong_FromUnsignedLong(t._version()))
GRAPNEL_GET(output_nr, PyLong_FromLong(t.output_nr()))
GRAPNEL_GET(transposed, wrap(t.t()))
GRAPNEL_GET(matrix_transposed, wrap(t.mT()))
GRAPNEL_GET(name, t.name().empty() ? Py_NewRef(Py_None) : PyUnicode_FromString(t.name().c_str()))
#undef GRAPNEL_GET

int refuse_delete(PyObject* value, const char* what) {
  if (value) return 0;
  PyErr_Format(PyExc_AttributeError, "%s cannot be deleted", what);
  return -1;
}
int set_requires_grad(PyObject* self, PyObject* value, void*) {
  if (refuse_delete(value, "requires_grad")) return -1;
  const int on = PyObject_IsTrue(value);
  if (on < 0) return -1;
  return guarded([&] {
    tensor_of(self).set_requires_grad(on);
    return 0;
  });
}
int set_grad(PyObject* self, PyObject* value, void*) {
  return guarded([&] {
    if (!value || value == Py_None) {
      tensor_of(self).reset_grad();
      return 0;
    }
    if (!is_tensor(value)) {
      PyErr_Format(PyExc_TypeError, "grad must be a Tensor or None, got %s",
                   Py_TYPE(value)->tp_name);
      return -1;
    }
    tensor_of(self).set_grad(tensor_of(value));
    return 0;
  });
}
int set_data(PyObject* self, PyObject* value, void*) {
  if (refuse_delete(value, "data")) return -1;
  return guarded([&] {
    if (!is_tensor(value)) {
      PyErr_Format(PyExc_TypeError, "data must be a Tensor, got %s", Py_TYPE(value)->tp_name);
      return -1;
    }
    tensor_of(self).set_data(tensor_of(value));
    return 0;
  });
}
int set_name(PyObject* self, PyObject* value, void*) {
  if (refuse_delete(value, "name")) return -1;
  const char* const text = PyUnicode_Check(value) ? PyUnicode_AsUTF8(value) : nullptr;
  if (!text) {
    PyErr_SetString(PyExc_TypeError, "a tensor's name is a str");
    return -1;
  }
  return guarded([&] {
    tensor_of(self).set_name(text);
    return 0;
  });
}

PyGetSetDef properties[] = {
    {"shape", get_shape, nullptr, "The sizes, as a tuple.", nullptr},
    {"ndim", get_ndim, nullptr, "How many dimensions there are.", nullptr},
    {"itemsize", get_itemsize, nullptr, "Bytes of one element.", nullptr},
    {"nbytes", get_nbytes, nullptr, "Bytes of all elements.", nullptr},
    {"dtype", get_dtype, nullptr, "The type of the elements.", nullptr},
    {"device", get_device, nullptr, "Where the memory is.", nullptr},
    {"requires_grad", get_requires_grad, set_requires_grad, "Whether a gradient is wanted.",
     nullptr},
    {"is_leaf", get_is_leaf, nullptr, "Whether no recorded op made it.", nullptr},
    {"retains_grad", get_retains_grad, nullptr, "Whether retain_grad() was called.", nullptr},
    {"grad", get_grad, set_grad, "The accumulated gradient, or None.", nullptr},
    {"grad_fn", get_grad_fn, nullptr, "The node that made it; None for leaves.", nullptr},
    {"data", get_data, set_data, "The same values without history.", nullptr},
    {"_base", get_base, nullptr, "What this is a view of, or None.", nullptr},
    {"_version", get_version, nullptr, "How often the memory was written in place.", nullptr},
    {"output_nr", get_output_nr, nullptr, "Which output of grad_fn this is.", nullptr},
    {"T", get_transposed, nullptr, "The transpose of a matrix.", nullptr},
    {"mT", get_matrix_transposed, nullptr, "The last two dimensions exchanged.", nullptr},
    {"name", get_name, set_name, "A name for messages, or None.", nullptr},
    kDictProperty,
    kNoMoreProperties};

}  // namespace

PyGetSetDef* tensor_properties() { return properties; }

}  // namespace grapnel::python
