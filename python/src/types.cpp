// Types of elements, devices and sizes, and the generator of random numbers.
#include <cstring>

#include "python/src/bind.h"

namespace grapnel::python {

namespace {

/// The members of grapnel.dtype, in the order of DType.
PyObject* dtypes[kDTypeCount];
PyObject* size_type = nullptr;
PyObject* pair_type = nullptr;

}  // namespace

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

}  // namespace grapnel::python
