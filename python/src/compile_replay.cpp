// Arguments and results of replayed functions: nested lists, tuples, dictionaries and dataclasses of
// tensors and plain values.
#include "python/src/compile.h"

namespace grapnel::python {

using compiler::Replays;
using compiler::ReplayValues;

namespace {

/// Stands for a tensor in what is kept of a result.
PyObject* place_of_tensor() {
  static PyObject* const place =
      PyObject_CallNoArgs(reinterpret_cast<PyObject*>(&PyBaseObject_Type));
  return place;
}

[[noreturn]] void refuse(PyObject* object) {
  PyErr_SetString(
      PyExc_TypeError,
      str("replay: arguments and results are tensors, numbers, strings, None, and tuples, "
          "lists, dictionaries and dataclasses of these, got an object of type '",
          Py_TYPE(object)->tp_name, "'.\nCompile the function without replay.")
          .c_str());
  throw_python();
}

/// The names of a dataclass's fields; null for other objects.
nb::object fields_of(PyObject* object) {
  if (PyType_Check(object)) return {};
  PyObject* const fields =
      PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(object)), "__dataclass_fields__");
  if (!fields) PyErr_Clear();
  return nb::steal(fields);
}

/// A type is told apart by its address, and lives as long as the process.
void add_type(ReplayValues& out, PyObject* object) {
  PyTypeObject* const type = Py_TYPE(object);
  if (type->tp_flags & Py_TPFLAGS_HEAPTYPE) {
    static auto* const kept = new std::unordered_set<PyTypeObject*>;
    if (kept->insert(type).second) Py_INCREF(type);
  }
  out.add(std::string_view(reinterpret_cast<const char*>(&type), sizeof(type)));
}

template <class T>
void add_bytes(ReplayValues& out, char kind, const T& value) {
  char bytes[1 + sizeof(T)] = {kind};
  std::memcpy(bytes + 1, &value, sizeof(T));
  out.add(std::string_view(bytes, sizeof(bytes)));
}

/// Lists what is in a value, so that values of one form with equal plain parts give equal words.
void flatten(ReplayValues& out, PyObject* object) {
  if (is_tensor(object)) {
    out.add("T");
    return out.add(tensor_of(object));
  }
  if (object == Py_None) return out.add("N");
  if (PyBool_Check(object)) return out.add(object == Py_True ? "t" : "f");
  if (PyFloat_CheckExact(object)) return add_bytes(out, 'd', PyFloat_AS_DOUBLE(object));
  if (PyLong_CheckExact(object)) {
    int overflow = 0;
    const int64_t value = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (overflow) refuse(object);
    return add_bytes(out, 'i', value);
  }
  if (PyUnicode_CheckExact(object)) {
    Py_ssize_t size = 0;
    const char* const text = PyUnicode_AsUTF8AndSize(object, &size);
    if (!text) throw_python();
    out.add("s");
    return out.add(std::string_view(text, static_cast<size_t>(size)));
  }
  if (dtype_of(object) && !PyType_Check(object))
    return add_bytes(out, 'y', static_cast<int>(*dtype_of(object)));
  if (PyList_Check(object) || PyTuple_Check(object)) {
    if (PyList_CheckExact(object)) out.add("[");
    else if (PyTuple_CheckExact(object)) out.add("(");
    else out.add("c"), add_type(out, object);
    add_bytes(out, 'n', PySequence_Fast_GET_SIZE(object));
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i)
      flatten(out, PySequence_Fast_GET_ITEM(object, i));
    return;
  }
  if (PyDict_CheckExact(object)) {
    // In its own order, which the function can see.
    add_bytes(out, '{', PyDict_GET_SIZE(object));
    PyObject *key, *value;
    for (Py_ssize_t at = 0; PyDict_Next(object, &at, &key, &value);)
      flatten(out, key), flatten(out, value);
    return;
  }
  const nb::object fields = fields_of(object);
  if (!fields.is_valid()) refuse(object);
  out.add("c");
  add_type(out, object);
  for (const nb::handle name : fields)
    flatten(out, nb::object(nb::handle(object).attr(name)).ptr());
}

/// A copy of a value in which `of` says what stands in a tensor's, or its place's, stead.
template <class Of>
nb::object rebuild(PyObject* object, Of& of) {
  if (is_tensor(object) || object == place_of_tensor()) return of(object);
  if (PyList_Check(object) || PyTuple_Check(object)) {
    nb::object out = nb::steal(PyList_New(0));
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i) {
      const nb::object item = rebuild(PySequence_Fast_GET_ITEM(object, i), of);
      if (PyList_Append(out.ptr(), item.ptr())) throw_python();
    }
    if (PyList_CheckExact(object)) return out;
    if (PyTuple_CheckExact(object)) return nb::steal(PyList_AsTuple(out.ptr()));
    const nb::handle type = reinterpret_cast<PyObject*>(Py_TYPE(object));
    return nb::hasattr(type, "_make") ? nb::object(type.attr("_make")(out)) : nb::object(type(out));
  }
  if (PyDict_CheckExact(object)) {
    nb::dict out;
    PyObject *key, *value;
    for (Py_ssize_t at = 0; PyDict_Next(object, &at, &key, &value);)
      out[nb::handle(key)] = rebuild(value, of);
    return out;
  }
  const nb::object fields = fields_of(object);
  if (!fields.is_valid()) return nb::borrow(object);
  const nb::object out = nb::module_::import_("copy").attr("copy")(nb::handle(object));
  for (const nb::handle name : fields) {
    const nb::object value = rebuild(nb::object(nb::handle(object).attr(name)).ptr(), of);
    // Frozen ones can be set like this, too.
    if (PyObject_GenericSetAttr(out.ptr(), name.ptr(), value.ptr())) throw_python();
  }
  return out;
}

nb::object with_tensors(PyObject* form, const std::vector<Tensor>& tensors) {
  size_t next = 0;
  const auto of = [&](PyObject*) { return result(tensors[next++]); };
  return rebuild(form, of);
}

}  // namespace

nb::object replay(Replays& replays, const nb::object& function, PyObject* const* arguments,
                  size_t count, PyObject* names) {
  const auto positional = PyVectorcall_NARGS(count);
  const size_t all = static_cast<size_t>(positional + (names ? PyTuple_GET_SIZE(names) : 0));
  ReplayValues given;
  add_bytes(given, '(', positional);
  for (Py_ssize_t i = 0; names && i < PyTuple_GET_SIZE(names); ++i)
    flatten(given, PyTuple_GET_ITEM(names, i));
  for (size_t i = 0; i < all; ++i) flatten(given, arguments[i]);

  nb::object returned;
  const Replays::Body body = [&](const std::vector<Tensor>& stand_ins) {
    return in_python([&] {
      size_t next = 0;
      const auto stand_in = [&](PyObject*) { return result(stand_ins[next++]); };
      std::vector<nb::object> owned;
      std::vector<PyObject*> pointers;
      for (size_t i = 0; i < all; ++i) {
        owned.push_back(rebuild(arguments[i], stand_in));
        pointers.push_back(owned.back().ptr());
      }
      const base::UserCodeScope user;
      returned = nb::steal(PyObject_Vectorcall(function.ptr(), pointers.data(),
                                               static_cast<size_t>(positional), names));
      if (!returned.is_valid()) throw_python();
      ReplayValues values;
      flatten(values, returned.ptr());
      const auto empty = [](PyObject*) { return nb::borrow(place_of_tensor()); };
      values.form = std::make_shared<Held>(Held::borrow(rebuild(returned.ptr(), empty).ptr()));
      return values;
    });
  };
  std::vector<Tensor> tensors;
  std::shared_ptr<const Replays::Entry> entry;
  {
    const WithoutInterpreter others_run;
    entry = replays.find(given, body);
    tensors = entry ? replays.run(*entry, given) : replays.record(given, body);
  }
  if (!entry) return with_tensors(returned.ptr(), tensors);
  return with_tensors(static_cast<const Held*>(Replays::form_of(*entry))->get(), tensors);
}

}  // namespace grapnel::python
