// What operators and built-in functions do with tensors: x + 2, -x, x < y, float(x), len(x), for row in x.
#include "python/src/bind.h"
#include "python/src/type_slots.h"

namespace grapnel::python {

namespace {

template <class F>
PyObject* compute(bool release, F&& f) {
  return guarded([&]() -> PyObject* {
    const LineScope here;
    if (!release) return wrap(Tensor(f()));
    return wrap([&] {
      const WithoutInterpreter others_run;
      return Tensor(f());
    }());
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

}  // namespace

std::vector<PyType_Slot> operator_slots() {
  return {
      {Py_tp_hash, slot(hash)},
      {Py_tp_richcompare, slot(compare)},
      {Py_tp_iter, slot(iterate)},
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
      {Py_sq_contains, slot(contains)},
  };
}

}  // namespace grapnel::python
