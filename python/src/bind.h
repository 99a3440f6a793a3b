/// What the bindings of functions are made of: how arguments and results cross the border, and when
/// other threads of Python may run meanwhile.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <optional>
#include <vector>

#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"
#include "python/src/held.h"
#include "python/src/module.h"
#include "python/src/tensor_type.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace grapnel::python {

/// A tensor, or None for an undefined one.
struct MaybeTensor {
  Tensor tensor;
};
/// A list of integers, or a single one. As many as a tensor may have dimensions need no memory of their own.
class Ints {
 public:
  size_t size() const { return size_; }
  operator IntArrayRef() const { return {more_.empty() ? few_ : more_.data(), size_}; }
  void clear() {
    size_ = 0;
    more_.clear();
  }
  void push_back(int64_t value) {
    if (more_.empty() && size_ < kMaxRank) few_[size_] = value;
    else if (more_.empty()) more_.assign(few_, few_ + size_);
    if (!more_.empty()) more_.push_back(value);
    ++size_;
  }

 private:
  size_t size_ = 0;
  int64_t few_[kMaxRank];
  std::vector<int64_t> more_;  ///< all of them, if they are more
};
/// The same, where None means all dimensions.
class Dims : public Ints {};
/// A list or tuple of tensors.
struct Tensors {
  std::vector<Tensor> values;
  operator TensorList() const { return values; }
};
/// A dtype, or one of Python's types bool, int and float.
struct DTypeArg {
  DType value = DType::Float32;
};
/// A device, or its name.
struct DeviceArg {
  Device value;
};
/// "none", "mean" or "sum".
struct Reduction {
  Reduce value = Reduce::mean;
};

[[noreturn]] inline void refuse(PyObject* type, const std::string& message) {
  PyErr_SetString(type, message.c_str());
  throw nb::python_error();
}

/// What the library takes for what Python gave.
inline const Tensor& given(const Tensor& t) { return t; }
inline const Tensor& given(const MaybeTensor& t) { return t.tensor; }
inline const Scalar& given(const Scalar& s) { return s; }
inline IntArrayRef given(const Ints& i) { return i; }
inline TensorList given(const Tensors& t) { return t; }
inline DType given(DTypeArg t) { return t.value; }
inline Reduce given(Reduction r) { return r.value; }
inline std::optional<DType> given(const std::optional<DTypeArg>& t) {
  return t ? std::optional(t->value) : std::nullopt;
}
template <class T>
  requires(std::is_arithmetic_v<T> || std::is_same_v<T, std::string_view>)
T given(T value) {
  return value;
}
template <class T>
const std::optional<T>& given(const std::optional<T>& value) {
  return value;
}

inline TensorOptions options_of(const std::optional<DTypeArg>& dtype,
                                const std::optional<DeviceArg>& device, bool requires_grad) {
  TensorOptions out;
  if (dtype) out = out.dtype(dtype->value);
  if (device) out = out.device(device->value);
  return out.requires_grad(requires_grad);
}

/// The sizes in x.view(2, 3).
class Spread {
 public:
  explicit Spread(const nb::args& sizes);
  IntArrayRef ints() const { return IntArrayRef(values_); }

 private:
  std::vector<int64_t> values_;
};

// --- when other threads of Python may run ---

inline int64_t elements(const Tensor& t) { return t.defined() ? t.numel() : 0; }
inline int64_t elements(const Tensors& list) {
  int64_t sum = 0;
  for (const Tensor& t : list.values) sum += elements(t);
  return sum;
}
/// Whether a call on these tensors takes longer than giving the interpreter's lock away and back.
template <class... T>
bool work(const T&... tensors) {
  return std::max({int64_t{0}, elements(tensors)...}) >= 32768;
}
template <class... T>
bool heavy(const T&... tensors) {
  return std::max({int64_t{0}, elements(tensors)...}) >= 1024;
}

inline nb::object result(Tensor&& t) {
  PyObject* const out = wrap(std::move(t));
  if (!out) throw nb::python_error();
  return nb::steal(out);
}
inline nb::object result(const Tensor& t) { return result(Tensor(t)); }
nb::object result(const std::vector<Tensor>& list);
/// A named tuple (values, indices).
nb::object result(const std::tuple<Tensor, Tensor>& pair);
inline nb::object result(bool value) { return nb::bool_(value); }
inline nb::object result(int64_t value) { return nb::int_(value); }

template <class F>
nb::object run(bool release, F&& f) {
  const LineScope here;
  if (!release) return result(f());
  std::decay_t<decltype(f())> out = [&] {
    const WithoutInterpreter others_run;
    return f();
  }();
  return result(out);
}

/// Adds a method to the type of tensors.
template <class F, class... Extra>
void on_tensor(const char* name, F&& f, const Extra&... extra) {
  nb::cpp_function_def(std::forward<F>(f), nb::scope(reinterpret_cast<PyObject*>(tensor_type())),
                       nb::name(name), nb::is_method(), extra...);
}

std::optional<DType> dtype_of(PyObject* object);
nb::object dtype_object(DType t);
std::optional<Device> device_of(PyObject* object);
/// A tuple subclass with numel().
PyObject* size_object(IntArrayRef sizes);

}  // namespace grapnel::python

NAMESPACE_BEGIN(NB_NAMESPACE)
NAMESPACE_BEGIN(detail)

/// Functions get the tensor of the object itself, which their caller keeps.
template <>
struct type_caster<grapnel::Tensor> {
  using Value = grapnel::Tensor;
  static constexpr auto Name = const_name("Tensor");
  template <class T>
  using Cast = const Value&;
  template <class T>
  static constexpr bool can_cast() {
    return true;
  }
  operator const Value&() { return *of_object; }
  const Value* of_object = nullptr;

  bool from_python(handle src, uint32_t, cleanup_list*) noexcept {
    if (!grapnel::python::is_tensor(src.ptr())) return false;
    of_object = &grapnel::python::tensor_of(src.ptr());
    return true;
  }
  static handle from_cpp(const grapnel::Tensor& t, rv_policy, cleanup_list*) noexcept {
    return grapnel::python::wrap(t);
  }
  static handle from_cpp(grapnel::Tensor&& t, rv_policy, cleanup_list*) noexcept {
    return grapnel::python::wrap(std::move(t));
  }
};

template <>
struct type_caster<grapnel::python::MaybeTensor> {
  NB_TYPE_CASTER(grapnel::python::MaybeTensor, const_name("Tensor | None"))
  bool from_python(handle src, uint32_t, cleanup_list*) noexcept {
    if (src.is_none()) return true;
    if (!grapnel::python::is_tensor(src.ptr())) return false;
    value.tensor = grapnel::python::tensor_of(src.ptr());
    return true;
  }
  static handle from_cpp(const grapnel::python::MaybeTensor& t, rv_policy, cleanup_list*) noexcept {
    return grapnel::python::wrap(t.tensor);
  }
};
template <>
struct has_arg_defaults<grapnel::python::MaybeTensor> : std::true_type {};

template <>
struct type_caster<grapnel::Scalar> {
  NB_TYPE_CASTER(grapnel::Scalar, const_name("float"))
  bool from_python(handle src, uint32_t flags, cleanup_list*) noexcept {
    return grapnel::python::to_scalar(src.ptr(), value, flags & (uint32_t)cast_flags::convert);
  }
  static handle from_cpp(const grapnel::Scalar& s, rv_policy, cleanup_list*) noexcept {
    return grapnel::python::from_scalar(s);
  }
};

bool ints_from(PyObject* src, grapnel::python::Ints& out) noexcept;

template <>
struct type_caster<grapnel::python::Ints> {
  NB_TYPE_CASTER(grapnel::python::Ints, const_name("int | Sequence[int]"))
  bool from_python(handle src, uint32_t, cleanup_list*) noexcept {
    return ints_from(src.ptr(), value);
  }
};
template <>
struct type_caster<grapnel::python::Dims> {
  NB_TYPE_CASTER(grapnel::python::Dims, const_name("int | Sequence[int] | None"))
  bool from_python(handle src, uint32_t, cleanup_list*) noexcept {
    return src.is_none() || ints_from(src.ptr(), value);
  }
};
template <>
struct has_arg_defaults<grapnel::python::Dims> : std::true_type {};

bool tensors_from(PyObject* src, std::vector<grapnel::Tensor>& out) noexcept;

template <>
struct type_caster<grapnel::python::Tensors> {
  NB_TYPE_CASTER(grapnel::python::Tensors, const_name("Sequence[Tensor]"))
  bool from_python(handle src, uint32_t, cleanup_list*) noexcept {
    return tensors_from(src.ptr(), value.values);
  }
};

template <>
struct type_caster<grapnel::python::DTypeArg> {
  NB_TYPE_CASTER(grapnel::python::DTypeArg, const_name("dtype"))
  bool from_python(handle src, uint32_t, cleanup_list*) noexcept {
    const auto found = grapnel::python::dtype_of(src.ptr());
    if (found) value.value = *found;
    return found.has_value();
  }
};
template <>
struct type_caster<grapnel::python::DeviceArg> {
  NB_TYPE_CASTER(grapnel::python::DeviceArg, const_name("device | str"))
  bool from_python(handle src, uint32_t, cleanup_list*) noexcept {
    const auto found = grapnel::python::device_of(src.ptr());
    if (found) value.value = *found;
    return found.has_value();
  }
};
template <>
struct type_caster<grapnel::python::Reduction> {
  NB_TYPE_CASTER(grapnel::python::Reduction, const_name("str"))
  bool from_python(handle src, uint32_t, cleanup_list*) noexcept {
    const char* const text = PyUnicode_Check(src.ptr()) ? PyUnicode_AsUTF8(src.ptr()) : nullptr;
    const std::string_view name = text ? text : "";
    using grapnel::Reduce;
    if (name == "none") value.value = Reduce::none;
    else if (name == "mean") value.value = Reduce::mean;
    else if (name == "sum") value.value = Reduce::sum;
    else return false;
    return true;
  }
};

NAMESPACE_END(detail)
NAMESPACE_END(NB_NAMESPACE)
