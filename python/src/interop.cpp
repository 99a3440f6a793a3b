// Memory that Python's other libraries see: DLPack both ways, the bytes of pickles, and files.
#include <cstring>

#include "grapnel/io/archive.h"
#include "python/src/bind.h"

namespace grapnel::python {

namespace {

// --- DLPack: the structures of its header, version 1 ---

struct DLDevice {
  int32_t type, id;
};
struct DLType {
  uint8_t code, bits;
  uint16_t lanes;
};
struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLType dtype;
  int64_t *shape, *strides;
  uint64_t byte_offset;
};
struct DLManagedTensor {
  DLTensor tensor;
  void* context;
  void (*deleter)(DLManagedTensor*);
};
struct DLVersion {
  uint32_t major, minor;
};
struct DLManagedTensorVersioned {
  DLVersion version;
  void* context;
  void (*deleter)(DLManagedTensorVersioned*);
  uint64_t flags;
  DLTensor tensor;
};
constexpr int32_t kCpu = 1;
constexpr uint64_t kReadOnly = 1;

DLType to_dl(DType t) {
  const auto bits = static_cast<uint8_t>(8 * element_size(t));
  switch (t) {
    case DType::Bool: return {6, 8, 1};
    case DType::UInt8: return {1, bits, 1};
    case DType::Int32:
    case DType::Int64: return {0, bits, 1};
    case DType::BFloat16: return {4, bits, 1};
    default: return {2, bits, 1};
  }
}

DType from_dl(DLType t) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto type = static_cast<DType>(i);
    const DLType known = to_dl(type);
    if (t.lanes == 1 && known.code == t.code && known.bits == t.bits) return type;
  }
  fail("from_dlpack: no dtype for elements of code ", int{t.code}, " with ", int{t.bits},
       " bits; there are bool, uint8, int32, int64, float16, bfloat16, float32 and float64.");
}

/// A tensor that another library has: the header keeps the memory.
template <class Managed>
struct Exported {
  Managed managed;
  Tensor tensor;
  std::vector<int64_t> sizes, strides;
};

template <class Managed>
Managed* exported(const Tensor& t) {
  auto* const out = new Exported<Managed>;
  out->tensor = t;
  out->sizes.assign(t.shape().begin(), t.shape().end());
  for (int i = 0; i < t.dim(); ++i) out->strides.push_back(t.stride(i));
  out->managed.context = out;
  out->managed.deleter = [](Managed* m) { delete static_cast<Exported<Managed>*>(m->context); };
  out->managed.tensor = {t.data_ptr(),          {kCpu, 0},           static_cast<int32_t>(t.dim()),
                         to_dl(t.dtype()),      out->sizes.data(),   out->strides.data(),
                         0};
  return &out->managed;
}

template <class Managed>
nb::object capsule(Managed* managed, const char* name) {
  PyObject* const out = PyCapsule_New(managed, name, [](PyObject* c) {
    // A consumer has renamed the capsule and owns the tensor.
    const char* const now = PyCapsule_GetName(c);
    if (now && (!std::strcmp(now, "dltensor") || !std::strcmp(now, "dltensor_versioned"))) {
      auto* const left = static_cast<Managed*>(PyCapsule_GetPointer(c, now));
      left->deleter(left);
    }
  });
  if (!out) {
    managed->deleter(managed);
    throw nb::python_error();
  }
  return nb::steal(out);
}

template <class Managed>
Tensor imported(nb::handle capsule, const char* name, const char* used) {
  auto* const managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule.ptr(), name));
  if (!managed) throw nb::python_error();
  const DLTensor& t = managed->tensor;
  if constexpr (requires { managed->flags; })
    if (managed->flags & kReadOnly)
      throw nb::buffer_error(
          "from_dlpack: the memory is read-only, and a tensor over it could be written to; copy it "
          "first");
  check(t.device.type == kCpu, "from_dlpack: the memory is on a device of type ", t.device.type,
        ", and not the CPU's.");
  check(t.ndim >= 0 && t.ndim <= kMaxRank, "from_dlpack: ", t.ndim,
        " dimensions; tensors have up to ", kMaxRank, ".");
  const DType type = from_dl(t.dtype);
  std::vector<int64_t> sizes(t.shape, t.shape + t.ndim), strides(t.ndim);
  int64_t step = 1;
  for (int32_t i = t.ndim; i-- > 0;) {
    strides[i] = t.strides ? t.strides[i] : step;
    step *= sizes[i];
    check(strides[i] >= 0, "from_dlpack: the memory has negative strides; copy it first.");
  }
  PyCapsule_SetName(capsule.ptr(), used);
  // The other library's deleter may want the interpreter's lock: it runs where Python objects die.
  const nb::object keeper = nb::steal(
      PyCapsule_New(managed, "grapnel_dlpack", [](PyObject* c) {
        auto* const kept = static_cast<Managed*>(PyCapsule_GetPointer(c, "grapnel_dlpack"));
        if (kept->deleter) kept->deleter(kept);
      }));
  return from_blob(static_cast<char*>(t.data) + t.byte_offset, sizes, strides,
                   [keep = Held::borrow(keeper.ptr())](void*) {}, type);
}

// --- files ---

io::NamedTensors named(nb::handle tensors) {
  io::NamedTensors out("Tensor");
  for (const nb::handle pair : tensors.attr("items")()) {
    const nb::object value = pair[1];
    if (!is_tensor(value.ptr()))
      throw nb::type_error("save: a file of this format holds tensors by name");
    out.insert(nb::cast<std::string>(pair[0]), tensor_of(value.ptr()).detach());
  }
  return out;
}

nb::object from_file(const io::Safetensors& file) {
  nb::dict tensors, texts;
  for (const auto& item : file.tensors) tensors[item.key().c_str()] = result(*item);
  for (const auto& [name, text] : file.metadata) texts[name.c_str()] = nb::str(text.c_str());
  return nb::make_tuple(tensors, texts);
}

}  // namespace

void bind_interop(nb::module_& m) {
  on_tensor("_dlpack", [](const Tensor& t, bool versioned) {
    if (t.requires_grad())
      throw nb::buffer_error(
          "__dlpack__: the tensor requires grad, and nobody would see what is written to its "
          "memory; use x.detach()");
    {
      const WithoutInterpreter others_run;  // recorded work may have to be done first
      t.data_ptr();
    }
    if (!versioned) return capsule(exported<DLManagedTensor>(t), "dltensor");
    auto* const managed = exported<DLManagedTensorVersioned>(t);
    managed->version = {1, 0};
    managed->flags = 0;
    return capsule(managed, "dltensor_versioned");
  });
  m.def("_from_dlpack", [](nb::handle capsule, bool stable) {
    Tensor out =
        PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned")
            ? imported<DLManagedTensorVersioned>(capsule, "dltensor_versioned", "used_dltensor_versioned")
            : imported<DLManagedTensor>(capsule, "dltensor", "used_dltensor");
    if (stable) declare_stable(out);
    return out;
  });

  // Pickles: a storage is a flat tensor over all of it, as bytes.
  on_tensor("_storage_key", [](const Tensor& t) {
    return nb::make_tuple(reinterpret_cast<uintptr_t>(t.impl().storage.get()),
                          t.impl().storage->bytes());
  });
  on_tensor("_storage_bytes", [](const Tensor& t) {
    const Storage& storage = *t.impl().storage;
    const void* data;
    {
      const WithoutInterpreter others_run;
      t.data_ptr();
      data = storage.host();
    }
    return nb::steal(PyBytes_FromStringAndSize(static_cast<const char*>(data),
                                               static_cast<Py_ssize_t>(storage.bytes())));
  });
  m.def("_flat_from_bytes", [](nb::handle bytes, DTypeArg type) {
    Py_buffer view;
    if (PyObject_GetBuffer(bytes.ptr(), &view, PyBUF_SIMPLE)) throw nb::python_error();
    const auto size = static_cast<int64_t>(element_size(type.value));
    const Tensor out = empty({view.len / size}, type.value);
    if (view.len >= size)
      std::memcpy(out.data_ptr(), view.buf, static_cast<size_t>(view.len / size * size));
    PyBuffer_Release(&view);
    return out;
  });
  m.def("_view_of_flat", [](const Tensor& flat, int64_t offset, const Ints& sizes,
                            const Ints& strides) {
    check(sizes.size() == strides.size() && offset >= 0, "a pickled tensor has ", sizes.size(), " sizes and ", strides.size(),
          " strides, and the offset ", offset, ".");
    return flat.as_strided(sizes, strides, offset);
  });

  m.def("_save_safetensors", [](const std::string& path, nb::handle tensors, nb::handle texts) {
    const io::NamedTensors list = named(tensors);
    io::TextMap metadata;
    for (const nb::handle pair : texts.attr("items")())
      metadata[nb::cast<std::string>(pair[0])] = nb::cast<std::string>(pair[1]);
    const WithoutInterpreter others_run;
    io::save_safetensors(path, list, metadata);
  });
  m.def("_load_safetensors", [](const std::string& path) {
    io::Safetensors file;
    {
      const WithoutInterpreter others_run;
      file = io::load_safetensors(path);
    }
    return from_file(file);
  });
  m.def("_parse_safetensors", [](nb::bytes data) {
    return from_file(io::parse_safetensors(
        {reinterpret_cast<const std::byte*>(data.c_str()), data.size()}, "bytes"));
  });
}

}  // namespace grapnel::python
