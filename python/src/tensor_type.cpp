#include "python/src/tensor_type.h"

#include <structmember.h>

#include <unordered_map>

#include "grapnel/autograd/meta.h"
#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"
#include "python/src/bind.h"
#include "python/src/hooks.h"
#include "python/src/node_type.h"

namespace grapnel::python {

namespace {

PyTypeObject* the_type = nullptr;

/// Which header has which object. Read and written with the interpreter's lock only.
std::unordered_map<const TensorImpl*, PyTensor*>& objects() {
  static auto* const table = new std::unordered_map<const TensorImpl*, PyTensor*>;
  return *table;
}

PyTensor* self_of(PyObject* object) { return reinterpret_cast<PyTensor*>(object); }

// --- life and death ---

PyObject* make(PyTypeObject* type, const Tensor& tensor) {
  PyObject* const out = type->tp_alloc(type, 0);  // zeroed
  if (!out) return nullptr;
  new (&self_of(out)->tensor) Tensor(tensor);
  try {
    objects()[tensor.impl_ptr()] = self_of(out);
  } catch (...) {
    Py_DECREF(out);
    PyErr_NoMemory();
    return nullptr;
  }
  return out;
}

/// The object is no longer the one of its header.
void forget(PyTensor* self) {
  const auto found = objects().find(self->tensor.impl_ptr());
  if (found != objects().end() && found->second == self) objects().erase(found);
}

void dealloc(PyObject* object) {
  PyTensor* const self = self_of(object);
  PyTypeObject* const type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  // First of all: what runs below must not be given an object that is about to go.
  if (self->tensor.defined()) forget(self);
  if (self->weak_references) PyObject_ClearWeakRefs(object);
  Py_CLEAR(self->dict);
  Tensor last = std::move(self->tensor);
  self->tensor.~Tensor();
  type->tp_free(object);
  Py_DECREF(type);
  last.reset();
  const LetGo now;
}

/// Objects that this one keeps alive. What is behind the header counts only while nobody else owns
/// the header but those who keep this object: otherwise the collector would take another owner's things for garbage.
int traverse(PyObject* object, visitproc visit, void* arg) {
  PyTensor* const self = self_of(object);
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->dict);
  if (self->tensor.use_count() == 1 + self->co_owners)
    return visit_hooks_of(self->tensor, visit, arg);
  return 0;
}

int clear(PyObject* object) {
  PyTensor* const self = self_of(object);
  Py_CLEAR(self->dict);
  if (self->tensor.defined()) forget(self);
  Tensor last = std::move(self->tensor);
  last.reset();
  const LetGo now;
  return 0;
}

template <class F>
auto guarded(F&& f) -> decltype(f()) {
  try {
    const LetGo afterwards;
    return f();
  } catch (...) {
    set_python_error();
    if constexpr (std::is_pointer_v<decltype(f())>) return nullptr;
    else return -1;
  }
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

// --- arithmetic ---

template <class F>
PyObject* compute(bool release, F&& f) {
  return guarded([&]() -> PyObject* {
    const LineScope here;
    if (!release) return wrap(f());
    const Tensor out = [&] {
      const WithoutInterpreter others_run;
      return Tensor(f());
    }();
    return wrap(out);
  });
}

using TensorTensor = Tensor (*)(const Tensor&, const Tensor&);
using TensorScalar = Tensor (*)(const Tensor&, const Scalar&);
using ScalarTensor = Tensor (*)(const Scalar&, const Tensor&);

template <TensorTensor tt, TensorScalar ts, ScalarTensor st>
PyObject* binary(PyObject* a, PyObject* b) {
  Scalar number;
  if (is_tensor(a)) {
    const Tensor& x = tensor_of(a);
    if (is_tensor(b)) {
      const Tensor& y = tensor_of(b);
      return compute(work(x, y), [&] { return tt(x, y); });
    }
    if (to_scalar(b, number, true)) return compute(work(x), [&] { return ts(x, number); });
  } else if (to_scalar(a, number, true)) {
    const Tensor& y = tensor_of(b);
    return compute(work(y), [&] { return st(number, y); });
  }
  Py_RETURN_NOTIMPLEMENTED;
}

// `2 * x` is the node of `x * 2`: what comes first in its edges is the tensor.
Tensor plus_number(const Scalar& a, const Tensor& b) { return b + a; }
Tensor times_number(const Scalar& a, const Tensor& b) { return b * a; }

template <class InTensor, class InScalar>
PyObject* in_place(PyObject* a, PyObject* b, InTensor with_tensor, InScalar with_number) {
  const Tensor& x = tensor_of(a);
  Scalar number;
  if (is_tensor(b)) {
    const Tensor& y = tensor_of(b);
    return compute(work(x, y), [&] { return Tensor(with_tensor(x, y)); });
  }
  if (to_scalar(b, number, true))
    return compute(work(x), [&] { return Tensor(with_number(x, number)); });
  Py_RETURN_NOTIMPLEMENTED;
}

#define GRAPNEL_IN_PLACE(function, method)                                  \
  PyObject* function(PyObject* a, PyObject* b) {                            \
    return in_place(                                                        \
        a, b, [](const Tensor& x, const Tensor& y) { return x.method(y); }, \
        [](const Tensor& x, const Scalar& y) { return x.method(y); });      \
  }
GRAPNEL_IN_PLACE(in_place_add, add_)
GRAPNEL_IN_PLACE(in_place_sub, sub_)
GRAPNEL_IN_PLACE(in_place_mul, mul_)
GRAPNEL_IN_PLACE(in_place_div, div_)
GRAPNEL_IN_PLACE(in_place_floor_div, floor_divide_)
GRAPNEL_IN_PLACE(in_place_remainder, remainder_)
#undef GRAPNEL_IN_PLACE

PyObject* power(PyObject* a, PyObject* b, PyObject* modulus) {
  if (modulus != Py_None) Py_RETURN_NOTIMPLEMENTED;
  return binary<grapnel::pow, grapnel::pow, grapnel::pow>(a, b);
}
PyObject* in_place_power(PyObject* a, PyObject* b, PyObject*) {
  return in_place(
      a, b, [](const Tensor& x, const Tensor& y) { return x.pow_(y); },
      [](const Tensor& x, const Scalar& y) { return x.pow_(y); });
}

PyObject* matrix_product(PyObject* a, PyObject* b) {
  if (!is_tensor(a) || !is_tensor(b)) Py_RETURN_NOTIMPLEMENTED;
  const Tensor &x = tensor_of(a), &y = tensor_of(b);
  return compute(heavy(x, y), [&] { return grapnel::matmul(x, y); });
}

template <TensorTensor f>
PyObject* logical(PyObject* a, PyObject* b) {
  if (is_tensor(a) && is_tensor(b)) {
    const Tensor &x = tensor_of(a), &y = tensor_of(b);
    return compute(work(x, y), [&] { return f(x, y); });
  }
  // A number takes the type of the tensor beside it.
  PyObject* const number = is_tensor(a) ? b : a;
  const Tensor& t = tensor_of(is_tensor(a) ? a : b);
  Scalar value;
  if (!to_scalar(number, value, true) || !value.is_integral()) Py_RETURN_NOTIMPLEMENTED;
  return compute(work(t), [&] { return f(t, grapnel::scalar_tensor(value, t.dtype())); });
}

template <Tensor (*f)(const Tensor&)>
PyObject* unary(PyObject* a) {
  const Tensor& x = tensor_of(a);
  return compute(work(x), [&] { return f(x); });
}
PyObject* positive(PyObject* a) { return Py_NewRef(a); }
PyObject* invert(PyObject* a) {
  const Tensor& x = tensor_of(a);
  return compute(work(x), [&] {
    if (x.dtype() == kBool) return grapnel::logical_not(x);
    check(!x.is_floating_point(), "~x: only for booleans and integers, x is ", x.dtype(), ".");
    return grapnel::bitwise_xor(x, grapnel::scalar_tensor(-1, x.dtype()));
  });
}

PyObject* compare(PyObject* a, PyObject* b, int operation) {
  switch (operation) {
    case Py_LT: return binary<grapnel::lt, grapnel::lt, grapnel::lt>(a, b);
    case Py_LE: return binary<grapnel::le, grapnel::le, grapnel::le>(a, b);
    case Py_EQ: return binary<grapnel::eq, grapnel::eq, grapnel::eq>(a, b);
    case Py_NE: return binary<grapnel::ne, grapnel::ne, grapnel::ne>(a, b);
    case Py_GT: return binary<grapnel::gt, grapnel::gt, grapnel::gt>(a, b);
    default: return binary<grapnel::ge, grapnel::ge, grapnel::ge>(a, b);
  }
}

/// The address: equal to nothing but itself, as dictionaries of parameters want it.
Py_hash_t hash(PyObject* a) {
  const auto address = reinterpret_cast<uintptr_t>(a);
  return static_cast<Py_hash_t>(address >> 4 | address << (8 * sizeof(address) - 4)) &
         ~Py_hash_t{1};
}

Scalar item_of(PyObject* a) {
  const Tensor& x = tensor_of(a);
  const WithoutInterpreter others_run;  // it may have to wait for recorded work
  return x.item();
}
int truth(PyObject* a) {
  return guarded([&] {
    check(tensor_of(a).numel() == 1, "bool(x): the truth of ", tensor_of(a).numel(),
          " values is not clear, x is ", tensor_of(a).shape(), ".\nUse x.any() or x.all().");
    return item_of(a).to_bool() ? 1 : 0;
  });
}
PyObject* as_float(PyObject* a) {
  return guarded([&] { return PyFloat_FromDouble(item_of(a).to_double()); });
}
PyObject* as_int(PyObject* a) {
  return guarded([&]() -> PyObject* {
    const Scalar value = item_of(a);
    if (value.is_floating()) return PyLong_FromDouble(value.to_double());
    return PyLong_FromLongLong(value.to_int());
  });
}
PyObject* as_index(PyObject* a) {
  if (tensor_of(a).is_floating_point() || tensor_of(a).numel() != 1) {
    PyErr_SetString(PyExc_TypeError, "only a tensor of one integer can be an index");
    return nullptr;
  }
  return as_int(a);
}

Py_ssize_t length(PyObject* a) {
  const Tensor& x = tensor_of(a);
  if (x.dim() == 0) {
    PyErr_SetString(PyExc_TypeError, "len() of a 0-d tensor");
    return -1;
  }
  return x.size(0);
}
PyObject* iterate(PyObject* a) {
  return guarded([&]() -> PyObject* {
    if (tensor_of(a).dim() == 0) {
      PyErr_SetString(PyExc_TypeError, "iteration over a 0-d tensor");
      return nullptr;
    }
    const nb::object rows = result(tensor_of(a).unbind(0));
    return PyObject_GetIter(rows.ptr());
  });
}
int contains(PyObject* a, PyObject* value) {
  return guarded([&] {
    Scalar number;
    if (is_tensor(value)) return tensor_of(a).eq(tensor_of(value)).any().item().to_bool() ? 1 : 0;
    if (to_scalar(value, number, true))
      return tensor_of(a).eq(number).any().item().to_bool() ? 1 : 0;
    PyErr_SetString(PyExc_TypeError, "x in tensor: x must be a number or a tensor");
    return -1;
  });
}

// --- properties ---

template <class F>
PyObject* get(PyObject* self, F f) {
  return guarded([&] { return f(tensor_of(self)); });
}
#define GRAPNEL_GET(name, ...)                                                  \
  PyObject* get_##name(PyObject* self, void*) {                                 \
    return get(self, [](const Tensor& t) -> PyObject* { return __VA_ARGS__; }); \
  }
GRAPNEL_GET(shape, size_object(t.shape()))
GRAPNEL_GET(ndim, PyLong_FromLongLong(t.dim()))
GRAPNEL_GET(itemsize, PyLong_FromSize_t(t.itemsize()))
GRAPNEL_GET(nbytes, PyLong_FromLongLong(t.nbytes()))
GRAPNEL_GET(dtype, dtype_object(t.dtype()).release().ptr())
GRAPNEL_GET(device, nb::cast(t.device()).release().ptr())
GRAPNEL_GET(requires_grad, PyBool_FromLong(t.requires_grad()))
GRAPNEL_GET(is_leaf, PyBool_FromLong(t.is_leaf()))
GRAPNEL_GET(retains_grad, PyBool_FromLong(t.retains_grad()))
GRAPNEL_GET(grad, wrap(t.grad()))
GRAPNEL_GET(grad_fn, wrap_node(t.grad_fn()))
GRAPNEL_GET(data, wrap(t.detach()))
GRAPNEL_GET(base, t.is_view() ? wrap(t._base()) : Py_NewRef(Py_None))
GRAPNEL_GET(version, PyLong_FromUnsignedLong(t._version()))
GRAPNEL_GET(output_nr, PyLong_FromLong(t.output_nr()))
GRAPNEL_GET(transposed, wrap(t.t()))
GRAPNEL_GET(matrix_transposed, wrap(t.mT()))
GRAPNEL_GET(name, t.name().empty() ? Py_NewRef(Py_None) : PyUnicode_FromString(t.name().c_str()))
#undef GRAPNEL_GET

int refuse_delete(PyObject* value, const char* what) {
  if (value) return 0;
  PyErr_Format(PyExc_AttributeError, "%s cannot be deleted", what);
  return -1;
}
int set_requires_grad(PyObject* self, PyObject* value, void*) {
  if (refuse_delete(value, "requires_grad")) return -1;
  const int on = PyObject_IsTrue(value);
  if (on < 0) return -1;
  return guarded([&] {
    tensor_of(self).set_requires_grad(on);
    return 0;
  });
}
int set_grad(PyObject* self, PyObject* value, void*) {
  return guarded([&] {
    if (!value || value == Py_None) {
      tensor_of(self).reset_grad();
      return 0;
    }
    if (!is_tensor(value)) {
      PyErr_Format(PyExc_TypeError, "grad must be a Tensor or None, got %s",
                   Py_TYPE(value)->tp_name);
      return -1;
    }
    tensor_of(self).set_grad(tensor_of(value));
    return 0;
  });
}
int set_data(PyObject* self, PyObject* value, void*) {
  if (refuse_delete(value, "data")) return -1;
  return guarded([&] {
    if (!is_tensor(value)) {
      PyErr_Format(PyExc_TypeError, "data must be a Tensor, got %s", Py_TYPE(value)->tp_name);
      return -1;
    }
    tensor_of(self).set_data(tensor_of(value));
    return 0;
  });
}
int set_name(PyObject* self, PyObject* value, void*) {
  if (refuse_delete(value, "name")) return -1;
  const char* const text = PyUnicode_Check(value) ? PyUnicode_AsUTF8(value) : nullptr;
  if (!text) {
    PyErr_SetString(PyExc_TypeError, "a tensor's name is a str");
    return -1;
  }
  return guarded([&] {
    tensor_of(self).set_name(text);
    return 0;
  });
}

PyGetSetDef properties[] = {
    {"shape", get_shape, nullptr, "The sizes, as a tuple.", nullptr},
    {"ndim", get_ndim, nullptr, "How many dimensions there are.", nullptr},
    {"itemsize", get_itemsize, nullptr, "Bytes of one element.", nullptr},
    {"nbytes", get_nbytes, nullptr, "Bytes of all elements.", nullptr},
    {"dtype", get_dtype, nullptr, "The type of the elements.", nullptr},
    {"device", get_device, nullptr, "Where the memory is.", nullptr},
    {"requires_grad", get_requires_grad, set_requires_grad, "Whether a gradient is wanted.",
     nullptr},
    {"is_leaf", get_is_leaf, nullptr, "Whether no recorded op made it.", nullptr},
    {"retains_grad", get_retains_grad, nullptr, "Whether retain_grad() was called.", nullptr},
    {"grad", get_grad, set_grad, "The accumulated gradient, or None.", nullptr},
    {"grad_fn", get_grad_fn, nullptr, "The node that made it; None for leaves.", nullptr},
    {"data", get_data, set_data, "The same values without history.", nullptr},
    {"_base", get_base, nullptr, "What this is a view of, or None.", nullptr},
    {"_version", get_version, nullptr, "How often the memory was written in place.", nullptr},
    {"output_nr", get_output_nr, nullptr, "Which output of grad_fn this is.", nullptr},
    {"T", get_transposed, nullptr, "The transpose of a matrix.", nullptr},
    {"mT", get_matrix_transposed, nullptr, "The last two dimensions exchanged.", nullptr},
    {"name", get_name, set_name, "A name for messages, or None.", nullptr},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyMemberDef members[] = {
    {"__dictoffset__", T_PYSSIZET, offsetof(PyTensor, dict), READONLY, nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(PyTensor, weak_references), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};

template <class F>
void* slot(F* function) {
  return reinterpret_cast<void*>(function);
}

PyTypeObject* make_type() {
  PyType_Slot slots[] = {
      {Py_tp_doc,
       const_cast<char*>(
           "A view (shape, strides, dtype) of shared memory, maybe with a place in the graph.")},
      {Py_tp_new, slot(make_new)},
      {Py_tp_dealloc, slot(dealloc)},
      {Py_tp_traverse, slot(traverse)},
      {Py_tp_clear, slot(clear)},
      {Py_tp_hash, slot(hash)},
      {Py_tp_richcompare, slot(compare)},
      {Py_tp_iter, slot(iterate)},
      {Py_tp_getset, properties},
      {Py_tp_members, members},
      {Py_nb_add, slot(binary<grapnel::operator+, grapnel::operator+, plus_number>)},
      {Py_nb_subtract, slot(binary<grapnel::operator-, grapnel::operator-, grapnel::operator- >)},
      {Py_nb_multiply, slot(binary<grapnel::operator*, grapnel::operator*, times_number>)},
      {Py_nb_true_divide,
       slot(binary<grapnel::operator/, grapnel::operator/, grapnel::operator/ >)},
      {Py_nb_floor_divide,
       slot(binary<grapnel::floor_divide, grapnel::floor_divide, grapnel::floor_divide>)},
      {Py_nb_remainder, slot(binary<grapnel::remainder, grapnel::remainder, grapnel::remainder>)},
      {Py_nb_power, slot(power)},
      {Py_nb_matrix_multiply, slot(matrix_product)},
      {Py_nb_and, slot(logical<grapnel::operator&>)},
      {Py_nb_or, slot(logical<grapnel::operator| >)},
      {Py_nb_xor, slot(logical<grapnel::operator^ >)},
      {Py_nb_negative, slot(unary<grapnel::neg>)},
      {Py_nb_positive, slot(positive)},
      {Py_nb_absolute, slot(unary<grapnel::abs>)},
      {Py_nb_invert, slot(invert)},
      {Py_nb_inplace_add, slot(in_place_add)},
      {Py_nb_inplace_subtract, slot(in_place_sub)},
      {Py_nb_inplace_multiply, slot(in_place_mul)},
      {Py_nb_inplace_true_divide, slot(in_place_div)},
      {Py_nb_inplace_floor_divide, slot(in_place_floor_div)},
      {Py_nb_inplace_remainder, slot(in_place_remainder)},
      {Py_nb_inplace_power, slot(in_place_power)},
      {Py_nb_bool, slot(truth)},
      {Py_nb_float, slot(as_float)},
      {Py_nb_int, slot(as_int)},
      {Py_nb_index, slot(as_index)},
      {Py_mp_length, slot(length)},
      {Py_mp_subscript, slot(get_item)},
      {Py_mp_ass_subscript, slot(set_item)},
      {Py_sq_contains, slot(contains)},
      {Py_bf_getbuffer, slot(get_buffer)},
      {Py_bf_releasebuffer, slot(release_buffer)},
      {0, nullptr}};
  PyType_Spec spec = {"grapnel.Tensor", sizeof(PyTensor), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots};
  return reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
}

}  // namespace

PyTypeObject* tensor_type() { return the_type; }

PyObject* wrap(const Tensor& tensor) {
  if (!tensor.defined()) return Py_NewRef(Py_None);
  const auto found = objects().find(tensor.impl_ptr());
  if (found != objects().end()) return Py_NewRef(reinterpret_cast<PyObject*>(found->second));
  return make(the_type, tensor);
}

PyObject* wrap_as(PyTypeObject* type, const Tensor& tensor) { return make(type, tensor); }

void bind_tensor(nb::module_& m) {
  the_type = make_type();
  if (!the_type) throw nb::python_error();
  m.attr("Tensor") = nb::handle(reinterpret_cast<PyObject*>(the_type));
}

}  // namespace grapnel::python
