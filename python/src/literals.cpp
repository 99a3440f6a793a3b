// tensor(data): nested lists of numbers, arrays and tensors.
#include "python/src/bind.h"

namespace grapnel::python {

namespace {

/// The sizes that the first elements have, level by level.
void measure(PyObject* data, std::vector<int64_t>& sizes) {
  while (is_list(data)) {
    const Py_ssize_t size = PySequence_Fast_GET_SIZE(data);
    sizes.push_back(size);
    if (sizes.size() > kMaxRank)
      refuse(PyExc_ValueError, str("tensor: lists inside of lists, ", sizes.size(),
                                   " deep; tensors have up to ", kMaxRank, " dimensions"));
    if (size == 0) return;
    data = PySequence_Fast_GET_ITEM(data, 0);
  }
}

void collect(PyObject* data, const std::vector<int64_t>& sizes, size_t level,
             std::vector<Scalar>& out) {
  if (level == sizes.size()) {
    Scalar value;
    if (is_list(data))
      refuse(PyExc_ValueError, str("tensor: a list where a number is expected, ", level,
                                   " levels deep; all lists of a level must have one length"));
    if (is_tensor(data)) value = tensor_of(data).item();
    else if (!to_scalar(data, value, true))
      refuse(PyExc_TypeError,
             str("tensor: expected numbers, got an object of type '", Py_TYPE(data)->tp_name, "'"));
    out.push_back(value);
    return;
  }
  if (!is_list(data) || PySequence_Fast_GET_SIZE(data) != sizes[level])
    refuse(
        PyExc_ValueError,
        str("tensor: expected a list of length ", sizes[level], ", ", level, " levels deep, got ",
            is_list(data) ? str("one of length ", PySequence_Fast_GET_SIZE(data))
                          : std::string(Py_TYPE(data)->tp_name)));
  for (Py_ssize_t i = 0; i < sizes[level]; ++i) {
    // Numbers of other classes run code of their own, which may change the list.
    if (i >= PySequence_Fast_GET_SIZE(data))
      refuse(PyExc_ValueError, "tensor: a list changed its length meanwhile");
    const nb::object item = nb::borrow(PySequence_Fast_GET_ITEM(data, i));
    collect(item.ptr(), sizes, level + 1, out);
  }
}

/// Whether it is a list whose innermost first element is a tensor with dimensions or an array.
bool holds_arrays(PyObject* data) {
  if (!is_list(data)) return false;
  while (is_list(data) && PySequence_Fast_GET_SIZE(data) > 0)
    data = PySequence_Fast_GET_ITEM(data, 0);
  return (is_tensor(data) && tensor_of(data).dim() > 0) ||
         (PyObject_CheckBuffer(data) && PySequence_Check(data));
}

}  // namespace

Tensor tensor_from(PyObject* data, std::optional<DType> dtype) {
  if (is_tensor(data))
    return tensor_of(data).detach().to(dtype.value_or(tensor_of(data).dtype())).clone();
  if (PyObject_CheckBuffer(data) && !PyBytes_Check(data)) {
    const Tensor view = from_buffer(data, false);
    return dtype && *dtype != view.dtype() ? view.to(*dtype) : view.clone();
  }
  if (holds_arrays(data)) {
    std::vector<Tensor> rows;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(data); ++i)
      rows.push_back(tensor_from(nb::borrow(PySequence_Fast_GET_ITEM(data, i)).ptr(), dtype));
    return stack(rows);
  }
  std::vector<int64_t> sizes;
  measure(data, sizes);
  std::vector<Scalar> numbers;
  if (sizes.empty() || sizes.back() > 0) collect(data, sizes, 0, numbers);
  DType type = numbers.empty() ? get_default_dtype() : kBool;
  for (const Scalar& number : numbers) {
    if (number.is_floating()) type = get_default_dtype();
    else if (!number.is_bool() && type == kBool) type = kInt64;
    if (is_floating(type)) break;
  }
  type = dtype.value_or(type);
  const Tensor out = empty(sizes, type);
  visit_dtype(type, [&]<class T>() {
    T* to = out.data_ptr<T>();
    for (const Scalar& number : numbers) *to++ = number.to<T>();
  });
  return out;
}

}  // namespace grapnel::python
