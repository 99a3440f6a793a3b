#include "python/src/tensor_type.h"

#include "python/src/bind.h"
#include "python/src/type_slots.h"

namespace grapnel::python {

PyTypeObject* tensor_type_object = nullptr;

namespace {

PyTensor* self_of(PyObject* object) { return reinterpret_cast<PyTensor*>(object); }

// --- life and death ---

/// Objects that wait to be tensors again: most live for one operation. Guarded by the interpreter's lock.
struct Spares {
  static constexpr size_t kMost = 64;
  size_t count = 0;
  PyObject* objects[kMost];
} spares;

/// An object of the type without a tensor. All else of it is zero.
PyObject* allocate(PyTypeObject* type) {
  if (type != tensor_type_object || spares.count == 0) return type->tp_alloc(type, 0);
  PyObject* const out = PyObject_Init(spares.objects[--spares.count], type);
  self_of(out)->co_owners = 0;
  PyObject_GC_Track(out);
  return out;
}

void deallocate(PyObject* object, PyTypeObject* type) {
  if (type == tensor_type_object && spares.count < Spares::kMost)
    spares.objects[spares.count++] = object;
  else type->tp_free(object);
  Py_DECREF(type);
}

PyObject* make(PyTypeObject* type, Tensor tensor) {
  PyObject* const out = allocate(type);
  if (!out) return nullptr;
  if (tensor.defined()) tensor.impl().wrapper = out;
  new (&self_of(out)->tensor) Tensor(std::move(tensor));
  enlist_tensor(self_of(out));
  return out;
}

/// The object is no longer the one of its header.
void forget(PyTensor* self) {
  if (!self->tensor.defined()) return;
  if (void*& wrapper = self->tensor.impl().wrapper; wrapper == self) wrapper = nullptr;
}

void dealloc(PyObject* object) {
  PyTensor* const self = self_of(object);
  PyObject_GC_UnTrack(object);
  // First of all: what runs below must not be given an object that is about to go.
  forget(self);
  strike_off(self->enlisted);
  if (self->weak_references) PyObject_ClearWeakRefs(object);
  Py_CLEAR(self->dict);
  Tensor last = std::move(self->tensor);
  self->tensor.~Tensor();
  deallocate(object, Py_TYPE(object));
  last.reset();
  const LetGo now;
}

int traverse(PyObject* object, visitproc visit, void* arg) {
  PyTensor* const self = self_of(object);
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->dict);
  return visit_behind(self, visit, arg);
}

int clear(PyObject* object) {
  PyTensor* const self = self_of(object);
  Py_CLEAR(self->dict);
  forget(self);
  Tensor last = std::move(self->tensor);
  last.reset();
  const LetGo now;
  return 0;
}

PyObject* make_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"data", "requires_grad", nullptr};
  PyObject* data = nullptr;
  int requires_grad = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O$p:Tensor", const_cast<char**>(names), &data,
                                   &requires_grad))
    return nullptr;
  return guarded([&]() -> PyObject* {
    Tensor t;
    if (!data) t = empty({0});
    else if (is_tensor(data)) t = tensor_of(data).detach();
    else t = tensor_from(data, get_default_dtype());
    if (requires_grad) t.set_requires_grad(true);
    return make(type, t);
  });
}

PyMemberDef members[] = {GRAPNEL_DICT_AND_WEAK_REFERENCES(PyTensor), kNoMoreMembers};

PyTypeObject* make_type() {
  std::vector<PyType_Slot> slots = operator_slots();
  slots.insert(
      slots.end(),
      {{Py_tp_doc,
        const_cast<char*>("A view (shape, strides, dtype) of shared memory, maybe with a place in "
                          "the graph.")},
       {Py_tp_new, slot(make_new)},
       {Py_tp_dealloc, slot(dealloc)},
       {Py_tp_traverse, slot(traverse)},
       {Py_tp_clear, slot(clear)},
       {Py_tp_getset, tensor_properties()},
       {Py_tp_members, members},
       {Py_mp_subscript, slot(get_item)},
       {Py_mp_ass_subscript, slot(set_item)},
       {Py_bf_getbuffer, slot(get_buffer)},
       {Py_bf_releasebuffer, slot(release_buffer)},
       {0, nullptr}});
  PyType_Spec spec = {"grapnel.Tensor", sizeof(PyTensor), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots.data()};
  return reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
}

}  // namespace

PyObject* wrap(Tensor&& tensor) {
  if (!tensor.defined()) return Py_NewRef(Py_None);
  if (void* const known = tensor.impl().wrapper) return Py_NewRef(static_cast<PyObject*>(known));
  return make(tensor_type_object, std::move(tensor));
}

PyObject* wrap_as(PyTypeObject* type, const Tensor& tensor) { return make(type, tensor); }

void bind_tensor(nb::module_& m) {
  tensor_type_object = make_type();
  if (!tensor_type_object) throw nb::python_error();
  m.attr("Tensor") = nb::handle(reinterpret_cast<PyObject*>(tensor_type_object));
}

}  // namespace grapnel::python
