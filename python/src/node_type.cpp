#include "python/src/node_type.h"

#include <structmember.h>

#include <unordered_map>

#include "grapnel/autograd/accumulate.h"
#include "python/src/bind.h"
#include "python/src/function.h"
#include "python/src/hooks.h"

namespace grapnel::python {

namespace {

struct PyNode {
  PyObject_HEAD PyObject* dict;
  PyObject* weak_references;
  NodePtr node;
};

PyTypeObject* the_type = nullptr;

std::unordered_map<const Node*, PyNode*>& nodes() {
  static auto* const table = new std::unordered_map<const Node*, PyNode*>;
  return *table;
}

PyNode* self_of(PyObject* object) { return reinterpret_cast<PyNode*>(object); }

void forget(PyNode* self) {
  const auto found = nodes().find(self->node.get());
  if (found != nodes().end() && found->second == self) nodes().erase(found);
}

void dealloc_node(PyObject* object) {
  PyNode* const self = self_of(object);
  PyTypeObject* const type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  forget(self);
  if (self->weak_references) PyObject_ClearWeakRefs(object);
  Py_CLEAR(self->dict);
  NodePtr last = std::move(self->node);
  self->node.~NodePtr();
  type->tp_free(object);
  Py_DECREF(type);
  last.reset();
  const LetGo now;
}

/// Whether a function's node, with the dictionary that lies in its state, lives only as long as
/// this object.
bool keeps_state(const PyNode* self) {
  if (!self->node || self->node->use_count() != 1) return false;
  const FunctionState* const state = FunctionState::of(*self->node);
  return state && self->dict && state->dict.get() == self->dict;
}

int traverse_node(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self_of(object)->dict);
  if (keeps_state(self_of(object))) Py_VISIT(self_of(object)->dict);  // the state's count of it
  return self_of(object)->node ? visit_hooks_of(*self_of(object)->node, visit, arg) : 0;
}

int clear_node(PyObject* object) {
  if (keeps_state(self_of(object))) PyDict_Clear(self_of(object)->dict);
  Py_CLEAR(self_of(object)->dict);
  if (self_of(object)->node) clear_hooks_of(*self_of(object)->node);
  const LetGo now;
  return 0;
}

PyObject* next_functions(PyObject* object, void*) {
  try {
    nb::list out;
    for (const Edge& edge : self_of(object)->node->next_edges())
      out.append(nb::make_tuple(nb::steal(wrap_node(edge.node)), edge.slot));
    return nb::tuple(out).release().ptr();
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

PyObject* metadata(PyObject* object, void*) {
  PyObject* const dict = PyObject_GenericGetDict(object, nullptr);
  if (!dict) return nullptr;
  PyObject* const key = PyUnicode_InternFromString("_metadata");
  PyObject* out = PyDict_GetItemWithError(dict, key);
  if (out) Py_INCREF(out);
  else if ((out = PyDict_New())) PyDict_SetItem(dict, key, out);
  Py_DECREF(key);
  Py_DECREF(dict);
  return out;
}

PyObject* node_repr(PyObject* object) {
  return PyUnicode_FromFormat("<%s node at %p>", self_of(object)->node->name().c_str(),
                              self_of(object)->node.get());
}

PyObject* variable(PyObject* object, void*) {
  const auto* const leaf = dynamic_cast<const AccumulateGrad*>(self_of(object)->node.get());
  if (leaf) return wrap(leaf->leaf());
  PyErr_SetString(PyExc_AttributeError, "only the accumulate_grad node of a leaf has a variable");
  return nullptr;
}

PyGetSetDef node_properties[] = {
    {"next_functions", next_functions, nullptr,
     "(node, slot) for each input: where the gradients flow.", nullptr},
    {"metadata", metadata, nullptr, "A dictionary for the user's own notes.", nullptr},
    {"variable", variable, nullptr, "The leaf that the node accumulates into.", nullptr},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyMemberDef node_members[] = {
    {"__dictoffset__", T_PYSSIZET, offsetof(PyNode, dict), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(PyNode, weak_references), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};

void make_node_type() {
  PyType_Slot slots[] = {
      {Py_tp_doc, const_cast<char*>("One recorded application of an op in the backward graph.")},
      {Py_tp_dealloc, reinterpret_cast<void*>(dealloc_node)},
      {Py_tp_traverse, reinterpret_cast<void*>(traverse_node)},
      {Py_tp_clear, reinterpret_cast<void*>(clear_node)},
      {Py_tp_repr, reinterpret_cast<void*>(node_repr)},
      {Py_tp_getset, node_properties},
      {Py_tp_members, node_members},
      {0, nullptr}};
  PyType_Spec spec = {"grapnel.autograd.graph.Node", sizeof(PyNode), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE |
                          Py_TPFLAGS_DISALLOW_INSTANTIATION,
                      slots};
  the_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  if (!the_type) throw nb::python_error();
}

}  // namespace

PyTypeObject* node_type() { return the_type; }

const NodePtr& node_of(nb::handle object) {
  if (!PyObject_TypeCheck(object.ptr(), the_type))
    throw nb::type_error("expected a node of the backward graph");
  return self_of(object.ptr())->node;
}

PyObject* wrap_node(const NodePtr& node) {
  if (!node) return Py_NewRef(Py_None);
  const auto found = nodes().find(node.get());
  if (found != nodes().end()) return Py_NewRef(reinterpret_cast<PyObject*>(found->second));
  const FunctionState* const state = FunctionState::of(*node);
  auto* const type = state ? reinterpret_cast<PyTypeObject*>(state->type.get()) : the_type;
  PyObject* const out = type->tp_alloc(type, 0);
  if (!out) return nullptr;
  new (&self_of(out)->node) NodePtr(node);
  if (state) self_of(out)->dict = Py_NewRef(state->dict.get());
  nodes()[node.get()] = self_of(out);
  return out;
}
void bind_nodes(nb::module_& m) {
  make_node_type();
  m.attr("Node") = nb::handle(reinterpret_cast<PyObject*>(the_type));
  on_node("name", [](nb::handle self) { return node_of(self)->name(); }, "The op's name.");
  on_node("_sequence_nr", [](nb::handle self) { return node_of(self)->sequence_nr(); });
}

}  // namespace grapnel::python
