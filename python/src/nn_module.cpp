#include "python/src/nn_module.h"

#include <unordered_map>

#include "grapnel/nn/call.h"
#include "python/src/nn_layers.h"
#include "python/src/nn_value.h"
#include "python/src/type_slots.h"

namespace grapnel::python {

namespace {

PyTypeObject* the_type = nullptr;
/// What the package brings: the forward that stands for C++'s, how names of arguments become places,
/// and the class of each layer.
PyObject *layer_forward = nullptr, *bind_inputs = nullptr, *layer_types = nullptr;
PyObject* forward_name = nullptr;

/// Which module has which object. Read and written with the interpreter's lock only.
std::unordered_map<const nn::Module*, PyModule*>& objects() {
  static auto* const table = new std::unordered_map<const nn::Module*, PyModule*>;
  return *table;
}

// --- life and death ---

PyObject* make_new(PyTypeObject* type, PyObject*, PyObject*) {
  PyObject* const out = type->tp_alloc(type, 0);  // zeroed
  if (!out) return nullptr;
  PyModule* const self = as_module(out);
  new (&self->shared) std::shared_ptr<nn::Module>();
  if (!(self->kept = PyDict_New())) {
    Py_DECREF(out);
    return nullptr;
  }
  return out;
}

void let_go_of_module(PyModule* self) {
  if (!self->module) return;
  drop_members(self);
  if (!self->shared) self->module->clear_hooks();
  Py_CLEAR(self->kept);
}

void dealloc(PyObject* object) {
  PyModule* const self = as_module(object);
  PyTypeObject* const type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  const auto found = objects().find(self->module);
  if (found != objects().end() && found->second == self) objects().erase(found);
  if (self->weak_references) PyObject_ClearWeakRefs(object);
  let_go_of_module(self);
  Py_CLEAR(self->kept);
  Py_CLEAR(self->dict);
  const std::unique_ptr<nn::Module> own(self->shared ? nullptr : self->module);
  self->shared.~shared_ptr();
  type->tp_free(object);
  Py_DECREF(type);
  const LetGo now;
}

int traverse(PyObject* object, visitproc visit, void* arg) {
  PyModule* const self = as_module(object);
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->dict);
  Py_VISIT(self->kept);
  if (!self->module || self->shared) return 0;  // what C++ made may have owners that nobody sees
  // All C++ owners are modules that keep this object: their one common reference is part of the ring.
  const auto owners = static_cast<size_t>(self->module->weak_from_this().use_count());
  if (owners > 0 && owners == self->parents) Py_VISIT(object);
  return visit_module_hooks(*self->module, visit, arg);
}

int clear(PyObject* object) {
  PyModule* const self = as_module(object);
  Py_CLEAR(self->dict);
  let_go_of_module(self);
  const LetGo now;
  return 0;
}

// --- attributes ---

std::string text_of(PyObject* name) {
  const char* const text = PyUnicode_AsUTF8(name);
  if (!text) throw nb::python_error();
  return text;
}

PyObject* get_attribute(PyObject* object, PyObject* name) {
  if (PyObject* const plain = _PyObject_GenericGetAttrWithDict(object, name, nullptr, 1))
    return plain;
  if (PyErr_Occurred()) return nullptr;
  PyModule* const self = as_module(object);
  if (self->module) {
    bool found = false;
    PyObject* const out = guarded([&]() -> PyObject* {
      const std::string text = text_of(name);
      const Member kind = find_member(self, text);
      found = kind != Member::none;
      return found ? member(self, kind, text).release().ptr() : nullptr;
    });
    if (found || PyErr_Occurred()) return out;
  }
  return PyObject_GenericGetAttr(object, name);  // says what is missing
}

/// A plain attribute of the name gives way to a member.
void forget_plain(PyObject* object, PyObject* name) {
  PyObject* const dict = as_module(object)->dict;
  if (dict && PyDict_Contains(dict, name) == 1) PyDict_DelItem(dict, name);
}

int set_attribute(PyObject* object, PyObject* name, PyObject* value) {
  PyModule* const self = as_module(object);
  return guarded([&] {
    const std::string text = text_of(name);
    const Member before = self->module ? find_member(self, text) : Member::none;
    if (!value) {
      if (before == Member::none) return PyObject_GenericSetAttr(object, name, nullptr);
      remove_member(self, before, text);
      return 0;
    }
    Member kind = Member::none;
    if (is_tensor(value))
      kind = is_parameter(value) ? Member::parameter
             : is_buffer(value)  ? Member::buffer
                                 : Member::none;
    else if (is_module(value)) kind = Member::module;
    if (kind != Member::none) {
      if (!self->module)
        refuse(PyExc_AttributeError,
               str("cannot assign ",
                   kind == Member::module      ? "module"
                   : kind == Member::parameter ? "parameters"
                                               : "buffers",
                   " before Module.__init__() call"));
      if (before != Member::none && before != kind) remove_member(self, before, text);
      bool persistent = true;
      if (kind == Member::buffer)
        persistent = nb::cast<bool>(nb::handle(value).attr("persistent"));
      set_member(self, kind, text, value, persistent);
      forget_plain(object, name);  // once nothing can fail any more
      return 0;
    }
    if (before == Member::none) return PyObject_GenericSetAttr(object, name, value);
    if (before == Member::module && value == Py_None) {
      remove_member(self, before, text);
      return PyObject_GenericSetAttr(object, name, value);
    }
    if (value == Py_None || (before == Member::buffer && is_tensor(value))) {
      set_member(self, before, text, value);
      return 0;
    }
    refuse(PyExc_TypeError,
           str("cannot assign '", Py_TYPE(value)->tp_name, "' as ",
               before == Member::parameter ? "parameter '"
               : before == Member::buffer  ? "buffer '"
                                           : "child module '",
               text, "' (",
               before == Member::parameter ? "grapnel.nn.Parameter"
               : before == Member::buffer  ? "grapnel.Tensor"
                                           : "grapnel.nn.Module",
               " or None expected)"));
  });
}

// --- calls ---

/// Whether forward is the layer's own, and no method of a subclass or attribute.
bool is_native(PyModule* self) {
  if (!self->layer) return false;
  if (self->dict && PyDict_Contains(self->dict, forward_name) != 0) return false;
  return _PyType_Lookup(Py_TYPE(self), forward_name) == layer_forward;
}

nn::Value call_native(PyModule* self, nn::Args& args, nn::Kwargs& kwargs) {
  if (!kwargs.empty()) {
    const nb::object places = nb::handle(bind_inputs)(self->layer->name, self->layer->inputs,
                                                      from_args(args), from_kwargs(kwargs));
    args = to_args(places.ptr());
    kwargs.clear();
  }
  bool long_work = false;
  for (const nn::Value& value : args)
    long_work |= value.is_tensor() && heavy(value.toTensor());
  if (!long_work) return self->layer->forward(*self->module, args, kwargs);
  const WithoutInterpreter others_run;
  return self->layer->forward(*self->module, args, kwargs);
}

nb::object call_forward(PyModule* self, PyObject* args, PyObject* kwargs) {
  const nb::object forward =
      nb::steal(PyObject_GetAttr(reinterpret_cast<PyObject*>(self), forward_name));
  if (!forward.is_valid()) throw_python();
  nb::object out = nb::steal(PyObject_Call(forward.ptr(), args, kwargs));
  if (!out.is_valid()) throw_python();
  return out;
}

PyObject* call(PyObject* object, PyObject* args, PyObject* kwargs) {
  PyModule* const self = as_module(object);
  return guarded([&]() -> PyObject* {
    nn::Module& m = module_of(object);
    const nn::detail::CallScope scope(m, nullptr, self->layer == nullptr);
    const bool native = is_native(self);
    const bool named = kwargs && PyDict_GET_SIZE(kwargs) > 0;
    if (!m.has_call_hooks()) {
      if (!native) return call_forward(self, args, kwargs).release().ptr();
      if (!named && PyTuple_GET_SIZE(args) == 1 && is_tensor(PyTuple_GET_ITEM(args, 0)) &&
          self->layer->forward_tensor) {
        const Tensor& x = tensor_of(PyTuple_GET_ITEM(args, 0));
        return run(heavy(x), [&] { return self->layer->forward_tensor(m, x); }).release().ptr();
      }
      nn::Args values = to_args(args);
      nn::Kwargs names = to_kwargs(kwargs);
      return from_value(call_native(self, values, names)).release().ptr();
    }
    const std::shared_ptr<nn::Module> owner = share(object);  // graphs keep it by this
    const nn::Value out = nn::detail::call_with_hooks(
        m, to_args(args), to_kwargs(kwargs), [&](nn::Args& a, nn::Kwargs& k) -> nn::Value {
          if (native) return call_native(self, a, k);
          const nb::object names = k.empty() ? nb::object() : from_kwargs(k);
          return to_value(call_forward(self, from_args(a).ptr(), names.ptr()).ptr());
        });
    return from_value(out).release().ptr();
  });
}

PyObject* get_training(PyObject* object, void*) {
  return guarded([&] { return PyBool_FromLong(module_of(object).is_training()); });
}
int set_training(PyObject* object, PyObject* value, void*) {
  const int on = value ? PyObject_IsTrue(value) : -1;
  if (on < 0) return -1;
  return guarded([&] {
    if (auto* const own = dynamic_cast<PythonModule*>(&module_of(object))) own->set_training(on);
    else module_of(object).train(on);
    return 0;
  });
}

PyGetSetDef properties[] = {
    {"training", get_training, set_training, "Whether it is in training.", nullptr},
    kDictProperty,
    kNoMoreProperties};
PyMemberDef members[] = {GRAPNEL_DICT_AND_WEAK_REFERENCES(PyModule), kNoMoreMembers};

}  // namespace

PyTypeObject* module_type() { return the_type; }

nn::Module& module_of(nb::handle object) {
  if (!is_module(object.ptr()))
    throw nb::type_error(
        str("expected a Module, got an object of type '", Py_TYPE(object.ptr())->tp_name, "'")
            .c_str());
  nn::Module* const module = as_module(object.ptr())->module;
  if (!module)
    refuse(PyExc_AttributeError, str(Py_TYPE(object.ptr())->tp_name,
                                     ": Module.__init__() was not called yet; call "
                                     "super().__init__() first"));
  return *module;
}

std::shared_ptr<nn::Module> share(nb::handle object) {
  nn::Module& m = module_of(object);
  if (const PyModule* const self = as_module(object.ptr()); self->shared) return self->shared;
  if (auto known = m.weak_from_this().lock()) return known;
  // The last C++ owner lets go of the object; the module itself ends with the object.
  return std::shared_ptr<nn::Module>(
      &m, [kept = Held::borrow(object.ptr())](nn::Module*) mutable { kept = Held(); });
}

void adopt(PyModule* self, std::unique_ptr<nn::Module> module, const Layer* layer) {
  self->module = module.release();
  self->layer = layer;
  objects()[self->module] = self;
  keep_members(self);
}

nb::object new_object(const char* class_name) {
  PyObject* const type = PyDict_GetItemString(layer_types, class_name);
  if (!type) refuse(PyExc_RuntimeError, str("there is no class ", class_name));
  nb::object out = nb::steal(make_new(reinterpret_cast<PyTypeObject*>(type), nullptr, nullptr));
  if (!out.is_valid()) throw nb::python_error();
  return out;
}

nb::object wrap_module(nn::Module& module) {
  const auto found = objects().find(&module);
  if (found != objects().end()) return nb::borrow(reinterpret_cast<PyObject*>(found->second));
  const Layer* const layer = layer_of(module);
  nb::object out = new_object(layer ? layer->name : "Module");
  PyModule* const self = as_module(out.ptr());
  self->shared = module.weak_from_this().lock();
  check(self->shared != nullptr, "the ", module.name(),
        " is not owned by a shared_ptr, so Python cannot have it. Make it with std::make_shared.");
  self->module = &module;
  self->layer = layer;
  objects()[&module] = self;
  return out;
}

void PythonModule::train(bool on) {
  Module::train(on);
  on_ = on;
}

void PythonModule::pretty_print(std::ostream& stream) const { stream << name(); }

nn::Value PythonModule::any_forward(nn::Args& args, nn::Kwargs& kwargs) {
  return in_python([&] {
    const nb::object names = kwargs.empty() ? nb::object() : from_kwargs(kwargs);
    return to_value(call_forward(self_, from_args(args).ptr(), names.ptr()).ptr());
  });
}

void bind_nn_module(nb::module_& m) {
  PyType_Slot slots[] = {{Py_tp_doc, const_cast<char*>("The C++ part of grapnel.nn.Module.")},
                         {Py_tp_new, slot(make_new)},
                         {Py_tp_dealloc, slot(dealloc)},
                         {Py_tp_traverse, slot(traverse)},
                         {Py_tp_clear, slot(clear)},
                         {Py_tp_call, slot(call)},
                         {Py_tp_getattro, slot(get_attribute)},
                         {Py_tp_setattro, slot(set_attribute)},
                         {Py_tp_getset, properties},
                         {Py_tp_members, members},
                         {0, nullptr}};
  PyType_Spec spec = {"grapnel._core.Module", sizeof(PyModule), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots};
  the_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  forward_name = PyUnicode_InternFromString("forward");
  if (!the_type || !forward_name) throw nb::python_error();
  m.attr("_Module") = nb::handle(reinterpret_cast<PyObject*>(the_type));

  m.def("_set_layer_tools", [](nb::object forward, nb::object bind, nb::dict types) {
    layer_forward = forward.release().ptr();
    bind_inputs = bind.release().ptr();
    layer_types = types.release().ptr();
  });
  m.def("_init_module", [](nb::handle object) {
    if (!is_module(object.ptr())) throw nb::type_error("expected a Module");
    PyModule* const self = as_module(object.ptr());
    if (!self->module)
      adopt(self, std::make_unique<PythonModule>(Py_TYPE(object.ptr())->tp_name, self), nullptr);
  });
  m.def("_call_layer", [](nb::handle object, nb::args args, nb::kwargs kwargs) {
    PyModule* const self = as_module(object.ptr());
    module_of(object);
    if (!self->layer)
      refuse(PyExc_NotImplementedError, "forward is not defined");
    nn::Args values = to_args(args.ptr());
    nn::Kwargs names = to_kwargs(kwargs.ptr());
    return from_value(call_native(self, values, names));
  });
}

}  // namespace grapnel::python
