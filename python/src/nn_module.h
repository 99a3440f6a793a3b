/// The Python type of modules.
///
/// Note [Modules and their objects]
/// A module that is made in Python belongs to its Python object: the object owns the C++ module, and
/// a shared_ptr that C++ code holds is one more reference to the object. So attributes and methods
/// of Python's are there as long as anybody, a graph or another module, has the module. Modules that
/// C++ code made belong to C++; their objects hold a shared_ptr.
///
/// Note [Who holds tensors and modules]
/// Parameters, buffers and submodules are in the module's C++ lists and nowhere else. Beside them
/// the object keeps their Python objects, so that these stay the same ones. The collector sees the
/// latter. Each kept object counts the C++ handles that stand beside it (PyTensor::co_owners,
/// PyModule::parents): when there are no more handles than that, then whoever holds the tensor or
/// module also keeps its object, and the object may show the collector what is behind it.
#pragma once

#include <memory>

#include "grapnel/nn/module.h"
#include "python/src/bind.h"

namespace grapnel::python {

struct Layer;

struct PyModule {
  PyObject_HEAD PyObject* dict;
  PyObject* weak_references;
  nn::Module* module;                  ///< null until __init__
  std::shared_ptr<nn::Module> shared;  ///< of a module that C++ made; others belong to this object
  PyObject* kept;                      ///< dict: name -> object of a parameter, buffer, submodule
  size_t parents;                      ///< handles in the modules that keep this object
  const Layer* layer;                  ///< null for modules whose forward is Python's
};

PyTypeObject* module_type();
inline bool is_module(PyObject* object) { return PyObject_TypeCheck(object, module_type()); }
inline PyModule* as_module(PyObject* object) { return reinterpret_cast<PyModule*>(object); }
/// The module behind an object; throws if its __init__ was never called.
nn::Module& module_of(nb::handle object);
/// One more owner of it for C++ code.
std::shared_ptr<nn::Module> share(nb::handle object);
/// The object of a module.
nb::object wrap_module(nn::Module& module);

/// A new object of a class of grapnel.nn, without a module yet.
nb::object new_object(const char* class_name);

/// A module whose forward is written in Python.
class PythonModule final : public nn::Module {
 public:
  PythonModule(std::string name, PyModule* self) : Module(std::move(name)), self_(self) {}
  bool is_training() const noexcept override { return on_; }
  void train(bool on) override;
  void set_training(bool on) { on_ = on; }
  void pretty_print(std::ostream& stream) const override;
  /// For C++ code that calls it with values.
  nn::Value any_forward(nn::Args& args, nn::Kwargs& kwargs);

 private:
  PyModule* self_;
  bool on_ = true;
};

/// Makes a fresh module the object's own.
void adopt(PyModule* self, std::unique_ptr<nn::Module> module, const Layer* layer);

// --- what is inside: nn_members.cpp ---

enum class Member : uint8_t { none, parameter, buffer, module };
Member find_member(const PyModule* self, const std::string& name);
/// The object of a member, the same one every time; None for one that is undefined.
nb::object member(PyModule* self, Member kind, const std::string& name);
void set_member(PyModule* self, Member kind, const std::string& name, nb::handle value,
                bool persistent = true);
void remove_member(PyModule* self, Member kind, const std::string& name);
/// Keeps the objects of all members, for a module that is new to Python.
void keep_members(PyModule* self);
void drop_members(PyModule* self);
nn::Module::NamedTensors& parameters_in(nn::Module& module);
nn::Module::NamedTensors& buffers_in(nn::Module& module);
nn::Module::NamedModules& children_in(nn::Module& module);
/// The types that are given to what modules hold: Parameter and Buffer.
bool is_parameter(nb::handle object);
bool is_buffer(nb::handle object);

// --- hooks: nn_hooks.cpp ---

/// For tp_traverse: callables of hooks that nobody else has.
int visit_module_hooks(const nn::Module& module, visitproc visit, void* arg);
int visit_state_hooks(const nn::ModuleHooks& hooks, visitproc visit, void* arg);

}  // namespace grapnel::python
