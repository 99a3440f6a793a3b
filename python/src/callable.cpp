#include "python/src/callable.h"

namespace grapnel::python {

namespace {
PyObject *opaque_type = nullptr, *declared_type = nullptr;

/// Whether an object is of the given type of Python's; before the package is set up, nothing is.
bool is_a(nb::handle object, PyObject* type) {
  return type && Py_TYPE(object.ptr()) == reinterpret_cast<PyTypeObject*>(type);
}
}  // namespace

std::string name_of(PyObject* callable) {
  if (PyFunction_Check(callable)) {
    Py_ssize_t size = 0;
    const char* const text = PyUnicode_AsUTF8AndSize(
        reinterpret_cast<PyFunctionObject*>(callable)->func_qualname, &size);
    if (text) return {text, static_cast<size_t>(size)};
    PyErr_Clear();  // a name that has no UTF-8: the slow way says so
  }
  nb::object inner = nb::borrow(callable);
  while (nb::hasattr(inner, "func") && !nb::hasattr(inner, "__qualname__"))
    inner = inner.attr("func");  // functools.partial, opaque, declared
  const nb::object name = nb::hasattr(inner, "__qualname__")
                              ? nb::object(inner.attr("__qualname__"))
                              : nb::object(inner.type().attr("__qualname__"));
  return nb::isinstance<nb::str>(name) ? nb::cast<std::string>(name) : std::string("?");
}

PyObject* as_tuple(const variable_list& list) {
  PyObject* const out = PyTuple_New(static_cast<Py_ssize_t>(list.size()));
  if (!out) return nullptr;
  for (size_t i = 0; i < list.size(); ++i) {
    PyObject* const item = wrap(list[i]);
    if (!item) {
      Py_DECREF(out);
      return nullptr;
    }
    PyTuple_SET_ITEM(out, static_cast<Py_ssize_t>(i), item);
  }
  return out;
}

variable_list list_from(PyObject* object, const std::string& kind, const std::string& name,
                        const char* wanted) {
  if (is_tensor(object)) return {tensor_of(object)};
  if (!PyTuple_Check(object) && !PyList_Check(object)) refuse_result(kind, name, object, wanted);
  variable_list out;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i) {
    PyObject* const item = PySequence_Fast_GET_ITEM(object, i);
    if (item != Py_None && !is_tensor(item)) refuse_result(kind, name, item, wanted);
    out.push_back(item == Py_None ? Tensor() : tensor_of(item));
  }
  return out;
}

Callable::Callable(nb::handle f, std::string called) : name(std::move(called)) {
  nb::object inner = nb::borrow(f);
  if (is_a(f, declared_type)) {
    auto said = std::make_shared<Declaration>();
    said->name = nb::cast<std::string>(f.attr("identity"));
    said->constants = nb::cast<std::string>(f.attr("constants"));
    const nb::object lifted = f.attr("lifted");
    for (const nb::handle value : lifted) {
      if (is_tensor(value.ptr())) said->tensors.push_back(tensor_of(value.ptr()));
      else said->numbers.push_back(&nb::cast<const Lifted&>(value));
    }
    said->owners = Held::borrow(lifted.ptr());
    declaration = std::move(said);
    inner = inner.attr("func");
  } else if (is_a(f, opaque_type)) {
    is_opaque = true;
    inner = inner.attr("func");
  }
  function = Held::borrow(inner.ptr());
}

void Callable::declare(CompiledNodeArgs& args) const {
  if (!declaration) return;
  args.declare(declaration->name, declaration->constants);
  for (const Tensor& t : declaration->tensors) args.lift(t);
  for (const Lifted* const number : declaration->numbers) args.lift(*number);
}

void refuse_result(const std::string& kind, const std::string& name, PyObject* got,
                   const char* wanted) {
  PyErr_SetString(PyExc_TypeError, str("the ", kind, " '", name, "' returned an object of type '",
                                       Py_TYPE(got)->tp_name, "'; ", wanted)
                                       .c_str());
  throw_python();
}

HookOptions options_for(nb::handle f, const std::optional<std::string>& name) {
  if (!PyCallable_Check(f.ptr()))
    throw nb::type_error(
        str("a hook is a callable, got an object of type '", Py_TYPE(f.ptr())->tp_name, "'")
            .c_str());
  return {.name = name ? *name : name_of(f.ptr()), .site = line_now()};
}

void bind_callables(nb::module_& m) {
  m.def("_set_marks", [](nb::object opaque, nb::object declared) {
    opaque_type = opaque.release().ptr();
    declared_type = declared.release().ptr();
  });
  nb::class_<Lifted>(m, "Lifted",
                     "A number that a declared hook reads anew in every pass. In arithmetic it is "
                     "a plain number.")
      .def(nb::init<double>(), "value"_a = 0.0)
      .def_prop_rw(
          "value", [](const Lifted& l) { return l.value(); },
          [](Lifted& l, double value) { l = value; },
          "The number. A declared hook cannot look at it, for it is not called in every pass.")
      .def("tensor", [](const Lifted& l) { return Tensor(l); }, "The number, as operand of ops.");
}

}  // namespace grapnel::python
