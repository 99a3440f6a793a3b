// x[...], read and written.
#include "grapnel/tensor/tensor_index.h"
#include "python/src/bind.h"
#include "python/src/type_slots.h"

namespace grapnel::python {

namespace {

void add_index(std::vector<TensorIndex>& out, PyObject* key) {
  const auto bound = [](PyObject* value) -> std::optional<int64_t> {
    if (value == Py_None) return std::nullopt;
    const nb::object number = nb::steal(PyNumber_Index(value));
    if (!number.is_valid()) throw nb::python_error();
    Py_ssize_t limited = PyNumber_AsSsize_t(number.ptr(), nullptr);  // what is too large is cut off
    return limited;
  };
  if (key == Py_None) out.emplace_back(std::nullopt);
  else if (key == Py_Ellipsis) out.emplace_back(indexing::Ellipsis);
  else if (PyBool_Check(key)) out.emplace_back(key == Py_True);
  else if (is_tensor(key)) out.emplace_back(tensor_of(key));
  else if (PySlice_Check(key)) {
    const auto* const slice = reinterpret_cast<PySliceObject*>(key);
    out.emplace_back(indexing::Slice(bound(slice->start), bound(slice->stop), bound(slice->step)));
  } else if (PyIndex_Check(key) && !PySequence_Check(key)) {
    const int64_t position = PyNumber_AsSsize_t(key, PyExc_IndexError);
    if (position == -1 && PyErr_Occurred()) throw nb::python_error();
    out.emplace_back(position);
  } else if (is_list(key) || PyObject_CheckBuffer(key)) {
    Tensor t = tensor_from(key, std::nullopt);
    if (t.numel() == 0) t = t.to(kInt64);
    out.emplace_back(std::move(t));
  } else {
    refuse(PyExc_TypeError,
           str("a tensor's index is an integer, a slice, ..., None, a tensor or a list, not '",
               Py_TYPE(key)->tp_name, "'"));
  }
}

std::vector<TensorIndex> indices_of(PyObject* key) {
  std::vector<TensorIndex> out;
  if (!PyTuple_Check(key)) add_index(out, key);
  else
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); ++i) add_index(out, PyTuple_GET_ITEM(key, i));
  return out;
}

/// Python's loops and unpacking want an IndexError behind the end.
void check_position(const Tensor& t, PyObject* key) {
  if (!PyLong_Check(key) || PyBool_Check(key) || t.dim() == 0) return;
  const int64_t position = PyLong_AsLongLong(key);
  if (position == -1 && PyErr_Occurred()) throw nb::python_error();
  if (position < -t.size(0) || position >= t.size(0))
    refuse(PyExc_IndexError,
           str("index ", position, " is out of range for dimension 0 with size ", t.size(0)));
}

}  // namespace

PyObject* get_item(PyObject* self, PyObject* key) {
  return guarded([&] {
    const Tensor& t = tensor_of(self);
    check_position(t, key);
    if (PyLong_CheckExact(key) && t.dim() > 0) {
      const LineScope here;
      return wrap(t.select(0, PyLong_AsLongLong(key)));
    }
    const std::vector<TensorIndex> indices = indices_of(key);
    return run(work(t), [&] { return t.index(indices); }).release().ptr();
  });
}

int set_item(PyObject* self, PyObject* key, PyObject* value) {
  if (!value) {
    PyErr_SetString(PyExc_TypeError, "elements of a tensor cannot be deleted");
    return -1;
  }
  return guarded([&] {
    const Tensor& t = tensor_of(self);
    check_position(t, key);
    const std::vector<TensorIndex> indices = indices_of(key);
    const LineScope here;
    Scalar number;
    if (is_tensor(value)) t.index_put_(indices, tensor_of(value));
    else if (to_scalar(value, number, true)) t.index_put_(indices, number);
    else t.index_put_(indices, tensor_from(value, t.dtype()));
    return 0;
  });
}

}  // namespace grapnel::python
