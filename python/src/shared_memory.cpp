// Tensors in memory that processes share: what the workers of a DataLoader send and are sent.
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "grapnel/base/checked.h"
#include "grapnel/io/array_bytes.h"
#include "python/src/bind.h"

namespace grapnel::python {

namespace {

constexpr int64_t kAlignment = 64;

[[noreturn]] void fail_with(const char* doing) {
  fail("shared memory: ", doing, ": ", std::strerror(errno), ".");
}

/// A descriptor, until somebody else has it.
struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

/// One piece of memory with all tensors, each at an aligned place: (descriptor, places). It lives as
/// long as a descriptor or a mapping of it, in whatever process.
nb::object to_shared(const Tensors& tensors) {
  std::vector<int64_t> places;
  nb::list described;
  int64_t bytes = 0;
  for (const Tensor& t : tensors.values) {
    places.push_back(bytes);
    described.append(
        nb::make_tuple(dtype_object(t.dtype()), nb::steal(size_object(t.sizes())), bytes));
    bytes = checked_add(bytes, (t.nbytes() + kAlignment - 1) / kAlignment * kAlignment, "a batch");
  }
  Descriptor memory{-1};
  {
    const WithoutInterpreter others_run;
    memory.fd = memfd_create("grapnel", MFD_CLOEXEC);
    if (memory.fd < 0 || ftruncate(memory.fd, bytes) != 0) fail_with("cannot be made");
    if (bytes > 0) {
      void* const at = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED,
                            memory.fd, 0);
      if (at == MAP_FAILED) fail_with("cannot be mapped");
      for (size_t i = 0; i < places.size(); ++i) {
        const Tensor dense = tensors.values[i].detach().contiguous();
        if (dense.nbytes() > 0)
          std::memcpy(static_cast<char*>(at) + places[i], dense.data_ptr(),
                      static_cast<size_t>(dense.nbytes()));
      }
      munmap(at, static_cast<size_t>(bytes));
    }
  }
  return nb::make_tuple(std::exchange(memory.fd, -1), described);
}

/// Tensors over such memory, which they keep. With `own`, what is written to them stays here.
nb::object from_shared(int fd, nb::list described, bool own) {
  struct stat about;
  if (fstat(fd, &about) != 0) fail_with("there is none");
  const auto bytes = static_cast<size_t>(about.st_size);
  std::shared_ptr<void> memory;
  if (bytes > 0) {
    void* const at =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, own ? MAP_PRIVATE : MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) fail_with("cannot be mapped");
    memory = std::shared_ptr<void>(at, [bytes](void* p) { munmap(p, bytes); });
  }
  nb::list out;
  for (const nb::handle one : described) {
    const DType type = nb::cast<DTypeArg>(one[0]).value;
    const Ints sizes = nb::cast<Ints>(one[1]);
    const auto place = nb::cast<int64_t>(one[2]);
    const auto need = io::array_bytes(sizes, element_size(type));
    check(place >= 0 && static_cast<uint64_t>(place) <= bytes && need && *need <= bytes - place,
          "shared memory: a tensor of shape ", IntArrayRef(sizes), " reaches beyond its end.");
    if (*need == 0) out.append(result(empty(sizes, type)));
    else
      out.append(result(
          from_blob(static_cast<char*>(memory.get()) + place, sizes, [memory](void*) {}, type)));
  }
  return out;
}

}  // namespace

void bind_shared_memory(nb::module_& m) {
  m.def("_to_shared", to_shared);
  m.def("_from_shared", from_shared);
}

}  // namespace grapnel::python
