// Numbers, sizes, types and lists between Python and C++; tensor(data), x[...] and the buffer protocol.
#include <cstring>

#include "grapnel/ops/record.h"
#include "grapnel/tensor/tensor_index.h"
#include "python/src/bind.h"

namespace grapnel::python {

namespace {

/// The members of grapnel.dtype, in the order of DType.
PyObject* dtypes[kDTypeCount];
PyObject* size_type = nullptr;
PyObject* pair_type = nullptr;

[[noreturn]] void raise(PyObject* type, const std::string& message) {
  PyErr_SetString(type, message.c_str());
  throw nb::python_error();
}

}  // namespace

// --- numbers ---

bool to_scalar(PyObject* object, Scalar& out, bool convert) {
  if (PyFloat_Check(object)) {
    out = PyFloat_AS_DOUBLE(object);
    return true;
  }
  if (PyBool_Check(object)) {
    out = object == Py_True;
    return true;
  }
  if (PyLong_Check(object)) {
    int overflow = 0;
    const int64_t value = PyLong_AsLongLongAndOverflow(object, &overflow);
    // As with every number that is too large for its place, the nearest one that fits a double.
    out = overflow ? Scalar(PyLong_AsDouble(object)) : Scalar(value);
    if (overflow && PyErr_Occurred()) PyErr_Clear(), out = Scalar(HUGE_VAL * overflow);
    return true;
  }
  // NumPy's numbers are none of Python's, but behave like them; its arrays do so only by accident.
  if (!convert || is_tensor(object) || PySequence_Check(object) || PyUnicode_Check(object))
    return false;
  const PyNumberMethods* const number = Py_TYPE(object)->tp_as_number;
  if (!number) return false;
  PyObject* plain = nullptr;
  if (number->nb_index) plain = PyNumber_Index(object);
  if (!plain && number->nb_float) PyErr_Clear(), plain = PyNumber_Float(object);
  if (!plain) {
    PyErr_Clear();
    return false;
  }
  const bool done = to_scalar(plain, out, false);
  Py_DECREF(plain);
  return done;
}

PyObject* from_scalar(const Scalar& value) {
  if (value.is_bool()) return PyBool_FromLong(value.to_bool());
  if (value.is_integral()) return PyLong_FromLongLong(value.to_int());
  return PyFloat_FromDouble(value.to_double());
}

// --- results ---

nb::object result(const std::vector<Tensor>& list) {
  nb::object out = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(list.size())));
  if (!out.is_valid()) throw nb::python_error();
  for (size_t i = 0; i < list.size(); ++i)
    PyTuple_SET_ITEM(out.ptr(), static_cast<Py_ssize_t>(i), result(list[i]).release().ptr());
  return out;
}

nb::object result(const std::tuple<Tensor, Tensor>& pair) {
  return nb::handle(pair_type)(result(std::get<0>(pair)), result(std::get<1>(pair)));
}

PyObject* size_object(IntArrayRef sizes) {
  PyObject* const list = PyTuple_New(static_cast<Py_ssize_t>(sizes.size()));
  if (!list) return nullptr;
  for (size_t i = 0; i < sizes.size(); ++i)
    PyTuple_SET_ITEM(list, static_cast<Py_ssize_t>(i), PyLong_FromLongLong(sizes[i]));
  PyObject* const out = PyObject_CallOneArg(size_type, list);
  Py_DECREF(list);
  return out;
}

// --- types and devices ---

std::optional<DType> dtype_of(PyObject* object) {
  for (int i = 0; i < kDTypeCount; ++i)
    if (dtypes[i] == object) return static_cast<DType>(i);
  if (object == reinterpret_cast<PyObject*>(&PyBool_Type)) return kBool;
  if (object == reinterpret_cast<PyObject*>(&PyLong_Type)) return kInt64;
  if (object == reinterpret_cast<PyObject*>(&PyFloat_Type)) return kFloat64;
  return std::nullopt;
}

nb::object dtype_object(DType t) { return nb::borrow(dtypes[static_cast<int>(t)]); }

std::optional<Device> device_of(PyObject* object) {
  Device out;
  if (nb::try_cast<Device>(nb::handle(object), out)) return out;
  const char* const text = PyUnicode_Check(object) ? PyUnicode_AsUTF8(object) : nullptr;
  if (text && (!std::strcmp(text, "cpu") || !std::strcmp(text, "cpu:0"))) return Device();
  return std::nullopt;
}

void bind_dtypes(nb::module_& m) {
  nb::enum_<DType>(m, "dtype", "The types of elements.")
      .value("bool", DType::Bool)
      .value("uint8", DType::UInt8)
      .value("int32", DType::Int32)
      .value("int64", DType::Int64)
      .value("float16", DType::Float16)
      .value("bfloat16", DType::BFloat16)
      .value("float32", DType::Float32)
      .value("float64", DType::Float64);
  for (int i = 0; i < kDTypeCount; ++i) dtypes[i] = nb::cast(static_cast<DType>(i)).release().ptr();

  nb::class_<Device>(m, "device", "Where memory lies.")
      .def("__init__",
           [](Device* self, std::string_view name) {
             check(name == "cpu" || name == "cpu:0", "device: there is no device '", name,
                   "' here; there is 'cpu'.");
             new (self) Device();
           })
      .def_prop_ro("type", [](const Device&) { return "cpu"; })
      .def_prop_ro("index", [](const Device&) { return nb::none(); })
      .def(
          "__eq__", [](const Device& a, const Device& b) { return a == b; }, nb::is_operator())
      .def("__hash__", [](const Device& d) { return static_cast<int>(d.type()) * 256 + d.index(); })
      .def("__str__", [](const Device&) { return "cpu"; })
      .def("__repr__", [](const Device&) { return "device(type='cpu')"; });

  m.def("_set_types", [](nb::object size, nb::object pair) {
    size_type = size.release().ptr();
    pair_type = pair.release().ptr();
  });
  m.def(
      "get_default_dtype", [] { return dtype_object(get_default_dtype()); },
      "The type of tensor([0.5]) and of factories.");
  m.def(
      "set_default_dtype", [](DTypeArg t) { set_default_dtype(t.value); }, "d"_a,
      "The type that factories take unless told otherwise.");
  m.def(
      "promote_types",
      [](DTypeArg a, DTypeArg b) { return dtype_object(promote_types(a.value, b.value)); },
      "type1"_a, "type2"_a, "The type that holds both.");
}

void bind_generator(nb::module_& m) {
  nb::class_<Generator>(m, "Generator", "A source of random numbers of its own.")
      .def(
          "__init__",
          [](Generator* self, const std::optional<DeviceArg>&) { new (self) Generator(); },
          "device"_a = nb::none())
      .def(
          "manual_seed",
          [](nb::handle self, uint64_t seed) {
            nb::cast<Generator&>(self).set_current_seed(seed);
            return nb::borrow(self);
          },
          "seed"_a, "Starts the sequence of a seed from its beginning.")
      .def("seed", &Generator::seed, "Takes a seed that nobody can foresee, and returns it.")
      .def("initial_seed", &Generator::current_seed, "The seed.")
      .def(
          "get_state", [](const Generator& g) { return g.get_state(); }, "The state, as a tensor.")
      .def(
          "set_state", [](Generator& g, const Tensor& state) { g.set_state(state); },
          "new_state"_a);
  m.def(
      "manual_seed",
      [](uint64_t seed) {
        manual_seed(seed);
        return default_generator();
      },
      "seed"_a,
      "Seeds this thread's default generator, so that what follows draws the same numbers in every "
      "run.");
  m.def(
      "initial_seed", [] { return default_generator().current_seed(); },
      "The seed of the default generator.");
  m.def(
      "get_rng_state", [] { return default_generator().get_state(); },
      "The state of the default generator.");
  m.def(
      "set_rng_state", [](const Tensor& state) { default_generator().set_state(state); },
      "new_state"_a);
}

Spread::Spread(const nb::args& sizes) {
  for (const nb::handle size : sizes) {
    if (!PyIndex_Check(size.ptr()) || PyBool_Check(size.ptr()))
      throw nb::type_error("sizes are integers");
    values_.push_back(nb::cast<int64_t>(size));
  }
}

// --- buffers ---

namespace {

/// The type of a format of PEP 3118 for elements of `bytes` bytes, in this machine's byte order.
std::optional<DType> type_of_format(const char* format, Py_ssize_t bytes) {
  std::string_view f = format ? format : "B";
  if (!f.empty() && (f[0] == '@' || f[0] == '=' || f[0] == '<')) f.remove_prefix(1);
  if (f.size() != 1) return std::nullopt;
  switch (f[0]) {
    case '?': return kBool;
    case 'B': return kUInt8;
    case 'e': return kFloat16;
    case 'f': return kFloat32;
    case 'd': return kFloat64;
    case 'i':
    case 'l':
    case 'q':
      return bytes == 8 ? std::optional(kInt64) : bytes == 4 ? std::optional(kInt32) : std::nullopt;
    default: return std::nullopt;
  }
}

const char* format_of(DType t) {
  switch (t) {
    case DType::Bool: return "?";
    case DType::UInt8: return "B";
    case DType::Int32: return "i";
    case DType::Int64: return "q";
    case DType::Float16: return "e";
    case DType::Float32: return "f";
    case DType::Float64: return "d";
    case DType::BFloat16: return nullptr;
  }
  return nullptr;
}

/// A tensor over the memory of an object that has some; the tensor keeps the object.
Tensor from_buffer(PyObject* object, bool writable) {
  const nb::object memory = nb::steal(PyMemoryView_FromObject(object));
  if (!memory.is_valid()) throw nb::python_error();
  const Py_buffer& view = *PyMemoryView_GET_BUFFER(memory.ptr());
  const auto type = type_of_format(view.format, view.itemsize);
  if (!type)
    raise(PyExc_TypeError,
          str("no dtype for memory of the format '", view.format ? view.format : "B",
              "'; there are bool, uint8, int32, int64, float16, float32 and float64"));
  if (writable && view.readonly)
    raise(PyExc_ValueError,
          "from_numpy: the array is read-only, and a tensor over it could be written to. Use "
          "tensor(array), which copies.");
  std::vector<int64_t> sizes(view.shape, view.shape + view.ndim), strides;
  for (int i = 0; i < view.ndim; ++i) {
    if (view.strides[i] < 0 || view.strides[i] % view.itemsize != 0)
      raise(PyExc_ValueError,
            "the array has negative strides, or such that are no multiple of an element; copy it "
            "first: array.copy()");
    strides.push_back(view.strides[i] / view.itemsize);
  }
  if (view.ndim > kMaxRank)
    raise(PyExc_ValueError,
          str("an array of ", view.ndim, " dimensions; tensors have up to ", kMaxRank));
  return from_blob(view.buf, sizes, strides, [keep = Held::borrow(memory.ptr())](void*) {}, *type);
}

struct Exported {
  Py_ssize_t shape[kMaxRank], strides[kMaxRank];
};

}  // namespace

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  view->obj = nullptr;
  const Tensor& t = tensor_of(self);
  const char* const format = format_of(t.dtype());
  const char* problem = nullptr;
  if (!format)
    problem = "bfloat16 has no format that other libraries know; convert it first: x.float()";
  else if (t.requires_grad())
    problem =
        "the tensor requires grad, and nobody would see what is written to its memory; use "
        "x.detach()";
  else if (!(flags & PyBUF_STRIDES) && !t.is_contiguous())
    problem = "the tensor is not contiguous; use x.contiguous()";
  if (problem) {
    PyErr_SetString(PyExc_BufferError, problem);
    return -1;
  }
  try {
    auto exported = std::make_unique<Exported>();
    for (int i = 0; i < t.dim(); ++i) {
      exported->shape[i] = t.shape()[i];
      exported->strides[i] = t.stride(i) * static_cast<Py_ssize_t>(t.itemsize());
    }
    {
      const WithoutInterpreter others_run;  // recorded work may have to be done first
      view->buf = t.data_ptr();
    }
    view->len = t.nbytes();
    view->itemsize = static_cast<Py_ssize_t>(t.itemsize());
    view->readonly = 0;
    view->ndim = static_cast<int>(t.dim());
    view->format = flags & PyBUF_FORMAT ? const_cast<char*>(format) : nullptr;
    view->shape = exported->shape;
    view->strides = exported->strides;
    view->suboffsets = nullptr;
    view->internal = exported.release();
    view->obj = Py_NewRef(self);
    return 0;
  } catch (...) {
    set_python_error();
    return -1;
  }
}

void release_buffer(PyObject*, Py_buffer* view) { delete static_cast<Exported*>(view->internal); }

// --- tensor(data) ---

namespace {

bool is_list(PyObject* object) { return PyList_Check(object) || PyTuple_Check(object); }

/// The sizes that the first elements have, level by level.
void measure(PyObject* data, std::vector<int64_t>& sizes) {
  while (is_list(data)) {
    const Py_ssize_t size = PySequence_Fast_GET_SIZE(data);
    sizes.push_back(size);
    if (sizes.size() > kMaxRank)
      raise(PyExc_ValueError, str("tensor: lists inside of lists, ", sizes.size(),
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
      raise(PyExc_ValueError, str("tensor: a list where a number is expected, ", level,
                                  " levels deep; all lists of a level must have one length"));
    if (is_tensor(data)) value = tensor_of(data).item();
    else if (!to_scalar(data, value, true))
      raise(PyExc_TypeError,
            str("tensor: expected numbers, got an object of type '", Py_TYPE(data)->tp_name, "'"));
    out.push_back(value);
    return;
  }
  if (!is_list(data) || PySequence_Fast_GET_SIZE(data) != sizes[level])
    raise(PyExc_ValueError,
          str("tensor: expected a list of length ", sizes[level], ", ", level, " levels deep, got ",
              is_list(data) ? str("one of length ", PySequence_Fast_GET_SIZE(data))
                            : std::string(Py_TYPE(data)->tp_name)));
  for (Py_ssize_t i = 0; i < sizes[level]; ++i) {
    // Numbers of other classes run code of their own, which may change the list.
    if (i >= PySequence_Fast_GET_SIZE(data))
      raise(PyExc_ValueError, "tensor: a list changed its length meanwhile");
    const nb::object item = nb::borrow(PySequence_Fast_GET_ITEM(data, i));
    collect(item.ptr(), sizes, level + 1, out);
  }
}

/// Whether the innermost first element of a list is a tensor with dimensions or an array.
bool holds_arrays(PyObject* data) {
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
      rows.push_back(tensor_from(PySequence_Fast_GET_ITEM(data, i), dtype));
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

// --- x[...] ---

namespace {

void add_index(std::vector<TensorIndex>& out, PyObject* key) {
  const auto bound = [](PyObject* value) -> std::optional<int64_t> {
    if (value == Py_None) return std::nullopt;
    const nb::object number = nb::steal(PyNumber_Index(value));
    if (!number.is_valid()) throw nb::python_error();
    Py_ssize_t limited = PyNumber_AsSsize_t(number.ptr(), nullptr);  // what is too large is cut off
    return limited;
  };
  if (key == Py_None) out.emplace_back(std::nullopt);
  else if (key == Py_Ellipsis) out.emplace_back(indexing::Ellipsis);
  else if (PyBool_Check(key)) out.emplace_back(key == Py_True);
  else if (is_tensor(key)) out.emplace_back(tensor_of(key));
  else if (PySlice_Check(key)) {
    const auto* const slice = reinterpret_cast<PySliceObject*>(key);
    out.emplace_back(indexing::Slice(bound(slice->start), bound(slice->stop), bound(slice->step)));
  } else if (PyIndex_Check(key) && !PySequence_Check(key)) {
    const int64_t position = PyNumber_AsSsize_t(key, PyExc_IndexError);
    if (position == -1 && PyErr_Occurred()) throw nb::python_error();
    out.emplace_back(position);
  } else if (is_list(key) || PyObject_CheckBuffer(key)) {
    Tensor t = tensor_from(key, std::nullopt);
    if (t.numel() == 0) t = t.to(kInt64);
    out.emplace_back(std::move(t));
  } else {
    raise(PyExc_TypeError,
          str("a tensor's index is an integer, a slice, ..., None, a tensor or a list, not '",
              Py_TYPE(key)->tp_name, "'"));
  }
}

std::vector<TensorIndex> indices_of(PyObject* key) {
  std::vector<TensorIndex> out;
  if (!PyTuple_Check(key)) add_index(out, key);
  else
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); ++i) add_index(out, PyTuple_GET_ITEM(key, i));
  return out;
}

/// Python's loops and unpacking want an IndexError behind the end.
void check_position(const Tensor& t, PyObject* key) {
  if (!PyLong_Check(key) || PyBool_Check(key) || t.dim() == 0) return;
  const int64_t position = PyLong_AsLongLong(key);
  if (position == -1 && PyErr_Occurred()) throw nb::python_error();
  if (position < -t.size(0) || position >= t.size(0))
    raise(PyExc_IndexError,
          str("index ", position, " is out of range for dimension 0 with size ", t.size(0)));
}

}  // namespace

PyObject* get_item(PyObject* self, PyObject* key) {
  try {
    const LetGo afterwards;
    const Tensor& t = tensor_of(self);
    check_position(t, key);
    if (PyLong_CheckExact(key) && t.dim() > 0) return wrap(t.select(0, PyLong_AsLongLong(key)));
    const std::vector<TensorIndex> indices = indices_of(key);
    return run(work(t), [&] { return t.index(indices); }).release().ptr();
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

int set_item(PyObject* self, PyObject* key, PyObject* value) {
  if (!value) {
    PyErr_SetString(PyExc_TypeError, "elements of a tensor cannot be deleted");
    return -1;
  }
  try {
    const LetGo afterwards;
    const Tensor& t = tensor_of(self);
    check_position(t, key);
    const std::vector<TensorIndex> indices = indices_of(key);
    Scalar number;
    if (is_tensor(value)) t.index_put_(indices, tensor_of(value));
    else if (to_scalar(value, number, true)) t.index_put_(indices, number);
    else t.index_put_(indices, tensor_from(value, t.dtype()));
    return 0;
  } catch (...) {
    set_python_error();
    return -1;
  }
}

// --- functions and methods that C++ says in another way ---

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
      "from_numpy", [](nb::handle array) { return from_buffer(array.ptr(), true); }, "array"_a,
      "A tensor that shares the memory of an array.");
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

NAMESPACE_BEGIN(NB_NAMESPACE)
NAMESPACE_BEGIN(detail)

bool ints_from(PyObject* src, std::vector<int64_t>& out) noexcept {
  const auto add = [&](PyObject* item) {
    if (PyBool_Check(item) || !PyIndex_Check(item)) return false;
    PyObject* const number = PyNumber_Index(item);
    const long long value = number ? PyLong_AsLongLong(number) : -1;
    Py_XDECREF(number);
    if (value == -1 && PyErr_Occurred()) {
      PyErr_Clear();
      return false;
    }
    out.push_back(value);
    return true;
  };
  try {
    out.clear();
    if (!PyList_Check(src) && !PyTuple_Check(src)) return !PySequence_Check(src) && add(src);
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(src); ++i)
      if (!add(PySequence_Fast_GET_ITEM(src, i))) return false;
    return true;
  } catch (...) {
    return false;
  }
}

bool tensors_from(PyObject* src, std::vector<grapnel::Tensor>& out) noexcept {
  try {
    out.clear();
    if (!PyList_Check(src) && !PyTuple_Check(src)) return false;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(src); ++i) {
      PyObject* const item = PySequence_Fast_GET_ITEM(src, i);
      if (!grapnel::python::is_tensor(item)) return false;
      out.push_back(grapnel::python::tensor_of(item));
    }
    return true;
  } catch (...) {
    return false;
  }
}

NAMESPACE_END(detail)
NAMESPACE_END(NB_NAMESPACE)
