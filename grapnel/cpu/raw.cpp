#include "grapnel/cpu/raw.h"

#include <cstring>

#include "grapnel/base/error_kinds.h"

namespace grapnel::cpu {

void set_zero(const Tensor& fresh) {
  std::memset(fresh.impl().host(), 0, static_cast<size_t>(fresh.nbytes()));
}

Tensor apart_from(const Tensor& source, const Tensor& target) {
  if (!source.is_alias_of(target)) return source;
  Tensor copy(TensorImpl::empty(source.shape(), source.dtype(), kCPU));
  cpu::copy(copy, source);
  return copy;
}

void begin_with(const Tensor& out, const Tensor& self) {
  if (!out.is_same(self)) cpu::copy(out, self);
}

void add_in_order(const Tensor& target, const Tensor& source) {
  widened(target, [&](const Tensor& wide) {
    const Tensor addend = converted(source, wide.dtype());
    LoopNest<2> nest(wide);
    nest.add(addend);
    nest.merge();
    visit_compute(wide.dtype(), [&]<class T>() {
      T* y = reinterpret_cast<T*>(nest.operands[0].data);
      const T* x = reinterpret_cast<const T*>(nest.operands[1].data);
      nest.for_rows(0, nest.numel, [&](int64_t i, int64_t n) {
        T* to = y + nest.offset(0, i);
        const T* from = x + nest.offset(1, i);
        for (int64_t j = 0; j < n; ++j) {
          T& sum = to[j * nest.row_stride(0)];
          sum = (wrapping(sum) + wrapping(from[j * nest.row_stride(1)])).v;
        }
      });
    });
  });
}

void check_index_bounds(const Tensor& index, int64_t size, int64_t dim, std::string_view op) {
  const auto* values = reinterpret_cast<const int64_t*>(index.impl().host());
  const int64_t n = index.numel();
  // One comparison per element: negative numbers are large as unsigned ones.
  const auto limit = static_cast<uint64_t>(size);
  bool good = true;
  for (int64_t i = 0; i < n; ++i) good &= static_cast<uint64_t>(values[i]) < limit;
  if (good) return;
  int64_t bad = 0;
  while (static_cast<uint64_t>(values[bad]) < limit) ++bad;
  Shape position = index.shape();
  int64_t rest = bad;
  for (int i = position.size() - 1; i >= 0; --i) {
    const int64_t extent = position[i];
    position[i] = rest % extent;
    rest /= extent;
  }
  if (size == 0)
    fail_as<IndexError>(op, ": index ", values[bad], " at position ", position,
                        " of the index, but dimension ", dim, " has size 0.");
  fail_as<IndexError>(op, ": index ", values[bad], " at position ", position,
                      " of the index is out of range for dimension ", dim, " with size ", size,
                      ".\nIndices run from 0 to ", size - 1, " here.");
}

}  // namespace grapnel::cpu
