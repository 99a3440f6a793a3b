#include "grapnel/cpu/kernels/onednn.h"

#include <dlfcn.h>

#include <algorithm>
#include <new>

#include "grapnel/base/cpu.h"

namespace grapnel::kernels {
namespace {

// Asked for by name at run time: whichever OpenMP oneDNN brought along is the one to talk to, and
// if it brought none there is nothing to say.
struct OpenMp {
  int (*get_max_threads)() = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT,
                                                               "omp_get_max_threads"));
  void (*set_num_threads)(int) = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT,
                                                                       "omp_set_num_threads"));
  bool present() const { return get_max_threads && set_num_threads; }
};

const OpenMp& openmp() {
  static const OpenMp found;
  return found;
}

dnnl::cpu_isa limit_for(base::Isa isa) {
  switch (isa) {
    case base::Isa::baseline: return dnnl::cpu_isa::sse41;
    case base::Isa::avx2: return dnnl::cpu_isa::avx2;
    case base::Isa::avx512: break;
  }
  return dnnl::cpu_isa::all;
}

}  // namespace

OneThread::OneThread() : before_(openmp().present() ? openmp().get_max_threads() : 1) {
  onednn_engine();  // chooses the instruction set, which oneDNN accepts only before its first use
  if (before_ != 1) openmp().set_num_threads(1);
}

OneThread::~OneThread() {
  if (before_ != 1) openmp().set_num_threads(before_);
}

const dnnl::engine& onednn_engine() {
  // Never destroyed: cached primitives refer to it until the process ends.
  static const dnnl::engine& engine = *[] {
    // Refused once oneDNN is in use by somebody else in this process; then it keeps its own choice.
    dnnl_set_max_cpu_isa(static_cast<dnnl_cpu_isa_t>(limit_for(base::cpu_isa())));
    return new dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return engine;
}

const dnnl::stream& onednn_stream() {
  static constinit thread_local base::PerThread<const dnnl::stream> stream;
  return stream.get(onednn_engine());
}

void Scratch::Free::operator()(void* memory) const {
  ::operator delete(memory, std::align_val_t{64});
}

void* Scratch::get(size_t bytes) {
  if (bytes > size_) {
    memory_.reset();
    size_ = 0;
    memory_.reset(::operator new(bytes, std::align_val_t{64}));
    size_ = bytes;
  }
  return memory_.get();
}

}  // namespace grapnel::kernels
