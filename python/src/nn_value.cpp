#include "python/src/nn_value.h"

namespace grapnel::python {

namespace {
/// _tree.map_tensors(value, function) of the package.
PyObject* map_tensors = nullptr;
}  // namespace

namespace {
/// The object with what `each` gives for its tensors, in order; itself if that is what there was.
template <class Each>
nb::object with_tensors(PyObject* object, Each each) {
  const nb::object function = nb::cpp_function([&each](const Tensor& t) -> Tensor { return each(t); });
  PyObject* const list[] = {object, function.ptr()};
  nb::object out = nb::steal(PyObject_Vectorcall(map_tensors, list, 2, nullptr));
  if (!out.is_valid()) throw_python();
  return out;
}
}  // namespace

void visit_tensors(PyValue& value, const nn::TensorVisitor& fn) {
  if (!value.opened) {
    in_python([&] {
      with_tensors(value.object.get(), [&](const Tensor& t) {
        value.tensors.push_back(t);
        return t;
      });
    });
    value.opened = true;
  }
  for (Tensor& t : value.tensors) fn(t);
}

nn::Value to_value(PyObject* object) {
  if (is_tensor(object)) return tensor_of(object);
  if (object == Py_None) return {};
  if (PyTuple_CheckExact(object)) return to_args(object);
  if (PyBool_Check(object)) return object == Py_True;
  if (PyFloat_CheckExact(object)) return PyFloat_AS_DOUBLE(object);
  if (PyLong_CheckExact(object)) {
    int overflow = 0;
    const int64_t value = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (!overflow) return value;
  }
  if (PyUnicode_CheckExact(object)) {
    if (const char* const text = PyUnicode_AsUTF8(object)) return std::string(text);
    PyErr_Clear();
  }
  return PyValue{Held::borrow(object)};
}

nb::object from_value(const nn::Value& value) {
  if (value.is_tensor()) return result(value.toTensor());
  if (value.is_none()) return nb::none();
  if (value.is_tuple()) return from_args(value.tuple());
  if (value.is<bool>()) return nb::bool_(value.to<bool>());
  if (value.is<int64_t>()) return nb::int_(value.to<int64_t>());
  if (value.is<double>()) return nb::float_(value.to<double>());
  if (value.is<std::string>()) return nb::str(value.to<std::string>().c_str());
  if (value.is<nn::Value::List>()) return nb::list(result(value.to<nn::Value::List>()));
  if (value.is<nn::Value::Map>()) {
    nb::dict out;
    for (const auto& [name, tensor] : value.to<nn::Value::Map>())
      out[name.c_str()] = result(tensor);
    return out;
  }
  const auto box = value.to<PyValue>();  // throws for boxes of C++ code
  if (box.tensors.empty()) return nb::borrow(box.object.get());
  size_t i = 0;
  return with_tensors(box.object.get(), [&](const Tensor& t) {
    return i < box.tensors.size() ? box.tensors[i++] : t;
  });
}

nn::Args to_args(PyObject* tuple) {
  nn::Args out;
  const Py_ssize_t size = PyTuple_GET_SIZE(tuple);
  out.reserve(static_cast<size_t>(size));
  for (Py_ssize_t i = 0; i < size; ++i) out.push_back(to_value(PyTuple_GET_ITEM(tuple, i)));
  return out;
}

nn::Kwargs to_kwargs(PyObject* dict) {
  nn::Kwargs out;
  if (!dict) return out;
  PyObject *key, *value;
  Py_ssize_t place = 0;
  while (PyDict_Next(dict, &place, &key, &value))
    out.emplace(nb::cast<std::string>(nb::handle(key)), to_value(value));
  return out;
}

nb::object from_args(const nn::Args& args) {
  const nb::object out = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(args.size())));
  if (!out.is_valid()) throw nb::python_error();
  for (size_t i = 0; i < args.size(); ++i)
    PyTuple_SET_ITEM(out.ptr(), static_cast<Py_ssize_t>(i), from_value(args[i]).release().ptr());
  return out;
}

nb::object from_kwargs(const nn::Kwargs& kwargs) {
  nb::dict out;
  for (const auto& [name, value] : kwargs) out[name.c_str()] = from_value(value);
  return out;
}

void bind_nn_values(nb::module_& m) {
  m.def("_set_map_tensors", [](nb::object f) { map_tensors = f.release().ptr(); });
}

}  // namespace grapnel::python
