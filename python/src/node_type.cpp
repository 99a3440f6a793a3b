#include "python/src/node_type.h"

#include "grapnel/autograd/accumulate.h"
#include "python/src/bind.h"
#include "python/src/function.h"
#include "python/src/type_slots.h"

namespace grapnel::python {

namespace {

PyTypeObject* the_type = nullptr;

PyNode* self_of(PyObject* object) { return reinterpret_cast<PyNode*>(object); }

/// The object is no longer the one of its node.
void forget(PyNode* self) {
  if (self->node && self->node->wrapper == self) self->node->wrapper = nullptr;
}

void dealloc_node(PyObject* object) {
  PyNode* const self = self_of(object);
  PyTypeObject* const type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  forget(self);
  strike_off(self->enlisted);
  if (self->weak_references) PyObject_ClearWeakRefs(object);
  Py_CLEAR(self->dict);
  NodePtr last = std::move(self->node);
  self->node.~NodePtr();
  type->tp_free(object);
  Py_DECREF(type);
  last.reset();
  const LetGo now;
}

int traverse_node(PyObject* object, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self_of(object)->dict);
  return visit_behind(self_of(object), visit, arg);
}

int clear_node(PyObject* object) {
  PyNode* const self = self_of(object);
  Py_CLEAR(self->dict);
  forget(self);
  NodePtr last = std::move(self->node);
  last.reset();
  const LetGo now;
  return 0;
}

PyObject* next_functions(PyObject* object, void*) {
  return guarded([&] {
    nb::list out;
    for (const Edge& edge : node_of(object)->next_edges())
      out.append(nb::make_tuple(nb::steal(wrap_node(edge.node)), edge.slot));
    return nb::tuple(out).release().ptr();
  });
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
  return guarded([&] {
    const NodePtr& node = node_of(object);
    return PyUnicode_FromFormat("<%s node at %p>", node->name().c_str(), node.get());
  });
}

PyObject* variable(PyObject* object, void*) {
  return guarded([&] {
    const auto* const leaf = dynamic_cast<const AccumulateGrad*>(node_of(object).get());
    if (!leaf)
      refuse(PyExc_AttributeError, "only the accumulate_grad node of a leaf has a variable");
    return wrap(leaf->leaf());
  });
}

PyGetSetDef node_properties[] = {
    {"next_functions", next_functions, nullptr,
     "(node, slot) for each input: where the gradients flow.", nullptr},
    {"metadata", metadata, nullptr, "A dictionary for the user's own notes.", nullptr},
    {"variable", variable, nullptr, "The leaf that the node accumulates into.", nullptr},
    kDictProperty,
    kNoMoreProperties};

PyMemberDef node_members[] = {GRAPNEL_DICT_AND_WEAK_REFERENCES(PyNode), kNoMoreMembers};

void make_node_type() {
  PyType_Slot slots[] = {
      {Py_tp_doc, const_cast<char*>("One recorded application of an op in the backward graph.")},
      {Py_tp_dealloc, slot(dealloc_node)},
      {Py_tp_traverse, slot(traverse_node)},
      {Py_tp_clear, slot(clear_node)},
      {Py_tp_repr, slot(node_repr)},
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
  if (!self_of(object.ptr())->node)
    refuse(PyExc_RuntimeError,
           "this node is gone: it was part of a cycle that Python has collected.");
  return self_of(object.ptr())->node;
}

PyObject* wrap_node(const NodePtr& node) {
  if (!node) return Py_NewRef(Py_None);
  if (node->wrapper) return Py_NewRef(static_cast<PyObject*>(node->wrapper));
  const FunctionState* const state = FunctionState::of(*node);
  auto* const type = state ? reinterpret_cast<PyTypeObject*>(state->type.get()) : the_type;
  PyObject* const out = type->tp_alloc(type, 0);
  if (!out) return nullptr;
  new (&self_of(out)->node) NodePtr(node);
  if (state) self_of(out)->dict = Py_NewRef(state->dict.get());
  node->wrapper = out;
  enlist_node(self_of(out));
  return out;
}

void bind_nodes(nb::module_& m) {
  make_node_type();
  m.attr("Node") = nb::handle(reinterpret_cast<PyObject*>(the_type));
  on_node("name", [](nb::handle self) { return node_of(self)->name(); }, "The op's name.");
  on_node("_sequence_nr", [](nb::handle self) { return node_of(self)->sequence_nr(); });
}

}  // namespace grapnel::python
