// What is inside of a module: parameters, buffers and submodules, and their Python objects.
#include "python/src/nn_layers.h"
#include "python/src/nn_module.h"

namespace grapnel::python {

namespace {

PyObject *parameter_type = nullptr, *buffer_type = nullptr;

struct Access : nn::Module {
  static constexpr auto parameters = &Access::parameters_;
  static constexpr auto buffers = &Access::buffers_;
  static constexpr auto children = &Access::children_;
};

nn::Module::NamedTensors& tensors_in(nn::Module& module, Member kind) {
  return kind == Member::parameter ? parameters_in(module) : buffers_in(module);
}

/// How many C++ handles of the module stand beside a kept object.
uint32_t handles(PyModule* self, Member kind, const std::string& name) {
  if (self->shared) return 0;  // the module may have owners that nobody sees, and so its handles
  const bool second = kind == Member::module
                          ? module_member(self->layer, name) != nullptr
                          : tensor_member(self->layer, *self->module, name) != nullptr;
  return second ? 2 : 1;
}

void count(PyModule* self, Member kind, const std::string& name, PyObject* object, bool more) {
  const uint32_t n = handles(self, kind, name);
  if (kind == Member::module) {
    if (is_module(object)) as_module(object)->parents += more ? n : -size_t{n};
  } else if (is_tensor(object)) {
    reinterpret_cast<PyTensor*>(object)->co_owners += more ? n : -n;
  }
}

void unkeep(PyModule* self, Member kind, const std::string& name) {
  if (!self->kept) return;
  PyObject* const object = PyDict_GetItemString(self->kept, name.c_str());
  if (!object) return;
  count(self, kind, name, object, false);
  PyDict_DelItemString(self->kept, name.c_str());
}

void keep(PyModule* self, Member kind, const std::string& name, nb::handle object) {
  unkeep(self, kind, name);
  if (!self->kept) return;
  if (PyDict_SetItemString(self->kept, name.c_str(), object.ptr())) throw nb::python_error();
  count(self, kind, name, object.ptr(), true);
}

/// The object of a parameter is a Parameter, even if somebody had the tensor before.
nb::object object_of(const Tensor& t, Member kind) {
  nb::object out = result(t);
  if (kind == Member::parameter && Py_TYPE(out.ptr()) == tensor_type())
    out.attr("__class__") = nb::handle(parameter_type);
  return out;
}

void set_tensor(PyModule* self, Member kind, const std::string& name, nb::handle value,
                bool persistent) {
  nn::Module& m = *self->module;
  nn::Module::NamedTensors& list = tensors_in(m, kind);
  Tensor given = value.is_none() ? Tensor() : tensor_of(value.ptr());
  const auto& hooks = nn::registration_hooks();
  const bool seen = !(kind == Member::parameter ? hooks.parameter : hooks.buffer).empty();
  Tensor* const second = tensor_member(self->layer, m, name);
  if (list.contains(name) && !seen && given.defined() == list[name].defined()) {
    check(kind != Member::parameter || !given.defined() || given.is_leaf(),
          "cannot assign a tensor that an operation made as parameter '", name,
          "'; a parameter is a leaf.");
    unkeep(self, kind, name);
    list[name] = given;
  } else {
    const bool replaces = list.contains(name);
    const Tensor before = replaces ? list[name] : Tensor();
    const nb::object object = replaces ? member(self, kind, name) : nb::none();
    if (replaces) {
      unkeep(self, kind, name);
      if (second) *second = Tensor();
      if (given.defined() && !seen) list[name] = given;
      else list.erase(name);
    }
    try {
      if (!list.contains(name)) {
        if (kind == Member::parameter)
          m.register_parameter(name, given, given.defined() && given.requires_grad());
        else m.register_buffer(name, given, persistent);
      }
    } catch (...) {
      if (replaces) {
        list.insert(name, before);
        if (second) *second = before;
        if (before.defined()) keep(self, kind, name, object);
      }
      throw;
    }
  }
  const Tensor& now = list[name];
  if (second) *second = now;
  if (now.defined())
    keep(self, kind, name, now.is_same(given) ? nb::borrow(value) : object_of(now, kind));
}

void set_module(PyModule* self, const std::string& name, nb::handle value) {
  nn::Module& m = *self->module;
  nn::Module::NamedModules& list = children_in(m);
  const auto fresh = share(value);
  const bool replaces = list.contains(name);
  const std::shared_ptr<nn::Module> before = replaces ? list[name] : nullptr;
  const Layer::ModuleMember* const second = module_member(self->layer, name);
  if (replaces) m.replace_module(name, fresh);
  else m.register_module(name, fresh);
  // Only now it is known: hooks on registration may have put another module in its place.
  const std::shared_ptr<nn::Module> now = list[name];
  if (second && !second->set(m, now)) {
    if (replaces) list[name] = before;
    else list.erase(name);
    refuse(PyExc_TypeError, str("'", name, "' of ", self->layer->name,
                                " has to be a module of the type that it was made with, and not ",
                                now->name()));
  }
  keep(self, Member::module, name, wrap_module(*now));
}

}  // namespace

nn::Module::NamedTensors& parameters_in(nn::Module& module) { return module.*Access::parameters; }
nn::Module::NamedTensors& buffers_in(nn::Module& module) { return module.*Access::buffers; }
nn::Module::NamedModules& children_in(nn::Module& module) { return module.*Access::children; }

bool is_parameter(nb::handle object) {
  return parameter_type && PyObject_TypeCheck(object.ptr(), reinterpret_cast<PyTypeObject*>(parameter_type));
}
bool is_buffer(nb::handle object) {
  return buffer_type && PyObject_TypeCheck(object.ptr(), reinterpret_cast<PyTypeObject*>(buffer_type));
}

Member find_member(const PyModule* self, const std::string& name) {
  if (parameters_in(*self->module).contains(name)) return Member::parameter;
  if (buffers_in(*self->module).contains(name)) return Member::buffer;
  return children_in(*self->module).contains(name) ? Member::module : Member::none;
}

nb::object member(PyModule* self, Member kind, const std::string& name) {
  PyObject* const kept = self->kept ? PyDict_GetItemString(self->kept, name.c_str()) : nullptr;
  if (kind == Member::module) {
    nn::Module& child = *children_in(*self->module)[name];
    if (kept && is_module(kept) && as_module(kept)->module == &child) return nb::borrow(kept);
    const nb::object out = wrap_module(child);
    keep(self, kind, name, out);
    return out;
  }
  const Tensor& t = tensors_in(*self->module, kind)[name];
  if (!t.defined()) return nb::none();
  if (kept && is_tensor(kept) && tensor_of(kept).is_same(t)) return nb::borrow(kept);
  const nb::object out = object_of(t, kind);
  keep(self, kind, name, out);
  return out;
}

void set_member(PyModule* self, Member kind, const std::string& name, nb::handle value,
                bool persistent) {
  if (kind == Member::module) set_module(self, name, value);
  else set_tensor(self, kind, name, value, persistent);
}

void remove_member(PyModule* self, Member kind, const std::string& name) {
  unkeep(self, kind, name);
  if (kind == Member::module) {
    children_in(*self->module).erase(name);
  } else {
    if (Tensor* const second = tensor_member(self->layer, *self->module, name)) *second = Tensor();
    tensors_in(*self->module, kind).erase(name);
  }
}

void keep_members(PyModule* self) {
  nn::Module& m = *self->module;
  for (const Member kind : {Member::parameter, Member::buffer})
    for (const std::string& name : tensors_in(m, kind).keys()) member(self, kind, name);
  // Submodules that a layer made become Python's own, so that all modules of a tree have one kind of
  // owner.
  for (const std::string& name : children_in(m).keys()) {
    std::shared_ptr<nn::Module>& child = children_in(m)[name];
    const Layer* const layer = layer_of(*child);
    if (!layer) continue;
    const nb::object object = new_object(layer->name);
    adopt(as_module(object.ptr()), layer->copy(*child), layer);
    if (layer->describe) {
      nb::dict arguments;
      layer->describe(*child, arguments);
      object.attr("_made_with")(arguments);
    }
    child = share(object);
    if (const auto* const second = module_member(self->layer, name)) second->set(m, child);
    keep(self, Member::module, name, object);
  }
}

void drop_members(PyModule* self) {
  nn::Module& m = *self->module;
  if (self->kept) {
    for (const Member kind : {Member::parameter, Member::buffer})
      for (const std::string& name : tensors_in(m, kind).keys()) unkeep(self, kind, name);
    for (const std::string& name : children_in(m).keys()) unkeep(self, Member::module, name);
  }
  if (self->shared) return;
  if (self->layer)
    for (const auto& second : self->layer->tensors) second.of(m) = Tensor();
  if (self->layer)
    for (const auto& second : self->layer->modules) second.set(m, nullptr);
  parameters_in(m).clear();
  buffers_in(m).clear();
  children_in(m).clear();
}

void bind_nn_members(nb::module_& m) {
  m.def("_set_member_types", [](nb::object parameter, nb::object buffer) {
    parameter_type = parameter.release().ptr();
    buffer_type = buffer.release().ptr();
  });
}

}  // namespace grapnel::python
