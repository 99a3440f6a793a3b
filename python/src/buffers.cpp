// The buffer protocol, both ways: NumPy's arrays as tensors, and tensors as arrays.
#include "python/src/bind.h"

namespace grapnel::python {

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

}  // namespace

Tensor from_buffer(PyObject* object, bool writable) {
  const nb::object memory = nb::steal(PyMemoryView_FromObject(object));
  if (!memory.is_valid()) throw nb::python_error();
  const Py_buffer& view = *PyMemoryView_GET_BUFFER(memory.ptr());
  const auto type = type_of_format(view.format, view.itemsize);
  if (!type)
    refuse(PyExc_TypeError,
           str("no dtype for memory of the format '", view.format ? view.format : "B",
               "'; there are bool, uint8, int32, int64, float16, float32 and float64"));
  if (writable && view.readonly)
    refuse(PyExc_ValueError,
           "from_numpy: the array is read-only, and a tensor over it could be written to. Use "
           "tensor(array), which copies.");
  std::vector<int64_t> sizes(view.shape, view.shape + view.ndim), strides;
  for (int i = 0; i < view.ndim; ++i) {
    if (view.strides[i] < 0 || view.strides[i] % view.itemsize != 0)
      refuse(PyExc_ValueError,
             "the array has negative strides, or such that are no multiple of an element; copy it "
             "first: array.copy()");
    strides.push_back(view.strides[i] / view.itemsize);
  }
  if (view.ndim > kMaxRank)
    refuse(PyExc_ValueError,
           str("an array of ", view.ndim, " dimensions; tensors have up to ", kMaxRank));
  return from_blob(view.buf, sizes, strides, [keep = Held::borrow(memory.ptr())](void*) {}, *type);
}

namespace {

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

}  // namespace grapnel::python
