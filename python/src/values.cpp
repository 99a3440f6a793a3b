// Functions and methods of tensors that Python says in another way than C++.
#include "grapnel/ops/record.h"
#include "python/src/bind.h"

namespace grapnel::python {

namespace {

/// `reader` stands in messages about values that are read while something is recorded.
nb::object list_of_values(const Tensor& t, const char* reader) {
  const Tensor values = t.detach().contiguous();
  const char* at;
  {
    const record::Reading reading(reader);
    const WithoutInterpreter others_run;
    at = static_cast<const char*>(values.data_ptr());
  }
  return visit_dtype(t.dtype(), [&]<class T>() -> nb::object {
    const T* next = reinterpret_cast<const T*>(at);
    const auto level = [&](auto&& self, int dim) -> nb::object {
      if (dim == t.dim()) return nb::steal(from_scalar(Scalar(*next++)));
      nb::list out;
      for (int64_t i = 0; i < t.size(dim); ++i) out.append(self(self, dim + 1));
      return out;
    };
    return level(level, 0);
  });
}

}  // namespace

void bind_values(nb::module_& m) {
  m.def(
      "tensor",
      [](nb::handle data, const std::optional<DTypeArg>& dtype, const std::optional<DeviceArg>&,
         bool requires_grad) {
        const Tensor t = tensor_from(data.ptr(), given(dtype));
        if (requires_grad) t.set_requires_grad(true);
        return t;
      },
      "data"_a, nb::kw_only(), "dtype"_a = nb::none(), "device"_a = nb::none(),
      "requires_grad"_a = false,
      "A tensor with a copy of numbers, nested lists of them, or an array.");
  m.def(
      "from_numpy",
      [](nb::handle array, bool stable) {
        Tensor t = from_buffer(array.ptr(), true);
        if (stable) declare_stable(t);
        return t;
      },
      "array"_a, nb::kw_only(), "stable"_a = false,
      "A tensor that shares the memory of an array. With `stable` you promise that nobody writes "
      "to the array while a compiled "
      "function that got the tensor runs: it then reads the memory where it lies, instead of a "
      "copy that it makes at every call.");
  m.def(
      "as_tensor",
      [](nb::handle data, const std::optional<DTypeArg>& dtype, const std::optional<DeviceArg>&) {
        Tensor t;
        if (is_tensor(data.ptr())) t = tensor_of(data.ptr());
        else if (PyObject_CheckBuffer(data.ptr()) && !PyBytes_Check(data.ptr())) {
          const nb::object view = nb::steal(PyMemoryView_FromObject(data.ptr()));
          if (!view.is_valid()) throw nb::python_error();
          t = PyMemoryView_GET_BUFFER(view.ptr())->readonly ? tensor_from(data.ptr(), std::nullopt)
                                                            : from_buffer(data.ptr(), true);
        } else return tensor_from(data.ptr(), given(dtype));
        return dtype && dtype->value != t.dtype() ? t.to(dtype->value) : t;
      },
      "data"_a, "dtype"_a = nb::none(), "device"_a = nb::none(),
      "The same as tensor(), without a copy where none is needed.");
  m.def("is_tensor", [](nb::handle object) { return is_tensor(object.ptr()); }, "obj"_a);
  m.def(
      "equal",
      [](const Tensor& a, const Tensor& b) {
        return run(work(a, b), [&] { return grapnel::equal(a, b); });
      },
      "input"_a, "other"_a, "Whether shapes and all elements are equal.");
  m.def("_subclass", [](nb::handle type, const Tensor& data, bool requires_grad) {
    if (!PyType_Check(type.ptr()) ||
        !PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(type.ptr()), tensor_type()))
      throw nb::type_error("the first argument is a subclass of Tensor");
    const Tensor t = data.detach();
    if (requires_grad) t.set_requires_grad(true);
    return nb::steal(wrap_as(reinterpret_cast<PyTypeObject*>(type.ptr()), t));
  });

  on_tensor("dim", [](const Tensor& t) { return t.dim(); }, "How many dimensions there are.");
  on_tensor("numel", [](const Tensor& t) { return t.numel(); }, "How many elements there are.");
  on_tensor("nelement", [](const Tensor& t) { return t.numel(); });
  on_tensor(
      "size", [](const Tensor& t) { return nb::steal(size_object(t.shape())); },
      "All sizes, or that of one dimension.");
  on_tensor("size", [](const Tensor& t, int64_t dim) { return t.size(dim); }, "dim"_a);
  on_tensor(
      "stride", [](const Tensor& t) { return nb::steal(size_object(t.strides())); },
      "All strides in elements, or that of one dimension.");
  on_tensor("stride", [](const Tensor& t, int64_t dim) { return t.stride(dim); }, "dim"_a);
  on_tensor("storage_offset", [](const Tensor& t) { return t.storage_offset(); });
  on_tensor("element_size", [](const Tensor& t) { return t.element_size(); });
  on_tensor(
      "data_ptr",
      [](const Tensor& t) {
        const WithoutInterpreter others_run;
        return reinterpret_cast<uintptr_t>(t.data_ptr());
      },
      "The address of the first element.");
  on_tensor("is_floating_point", [](const Tensor& t) { return t.is_floating_point(); });
  on_tensor(
      "item",
      [](const Tensor& t) {
        const Scalar value = [&] {
          const WithoutInterpreter others_run;
          return t.item();
        }();
        return nb::steal(from_scalar(value));
      },
      "The one element of a one-element tensor, as a number.");
  on_tensor(
      "tolist", [](const Tensor& t) { return list_of_values(t, "tolist"); },
      "The values as nested lists.");
  on_tensor("_tolist", list_of_values);
  on_tensor(
      "equal",
      [](const Tensor& a, const Tensor& b) { return run(work(a, b), [&] { return a.equal(b); }); },
      "other"_a);
  on_tensor(
      "is_set_to",
      [](const Tensor& a, const Tensor& b) {
        return a.is_alias_of(b) && a.shape() == b.shape() && a.strides() == b.strides() &&
               a.storage_offset() == b.storage_offset();
      },
      "tensor"_a);

  const auto to = [](const Tensor& t, DType type, bool copy) {
    if (type == t.dtype()) return copy ? result(t.clone()) : result(t);
    return run(work(t), [&] { return t.to(type); });
  };
  on_tensor(
      "to",
      [to](const Tensor& t, DTypeArg type, bool, bool copy) { return to(t, type.value, copy); },
      "dtype"_a, "non_blocking"_a = false, "copy"_a = false,
      "The same values in another type or on another device.");
  on_tensor(
      "to",
      [to](const Tensor& t, const DeviceArg&, const std::optional<DTypeArg>& type, bool,
           bool copy) { return to(t, type ? type->value : t.dtype(), copy); },
      "device"_a, "dtype"_a = nb::none(), "non_blocking"_a = false, "copy"_a = false);
  on_tensor(
      "to",
      [to](const Tensor& t, const Tensor& other, bool, bool copy) {
        return to(t, other.dtype(), copy);
      },
      "other"_a, "non_blocking"_a = false, "copy"_a = false);
  on_tensor(
      "type", [to](const Tensor& t, DTypeArg type) { return to(t, type.value, false); }, "dtype"_a);
  on_tensor("cpu", [](const Tensor& t) { return t; });
  const auto conversion = [&](const char* name, DType type) {
    on_tensor(name, [to, type](const Tensor& t) { return to(t, type, false); });
  };
  conversion("float", kFloat32);
  conversion("double", kFloat64);
  conversion("half", kFloat16);
  conversion("bfloat16", kBFloat16);
  conversion("long", kInt64);
  conversion("int", kInt32);
  conversion("bool", kBool);
  conversion("byte", kUInt8);
}

}  // namespace grapnel::python
