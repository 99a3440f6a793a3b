/// Copies between any two layouts and types.
#include "grapnel/ops/defs/copy.h"

#include <cstring>

#include "grapnel/base/thread_pool.h"
#include "grapnel/ops/kernels/table.h"
#include "grapnel/ops/op_table.h"
#include "grapnel/ops/record.h"

namespace grapnel {

namespace {

constexpr int64_t kBlock = 1024;
constexpr int64_t kGrain = 32768;

template <class Word>
void copy_words(char* to, int64_t to_stride, const char* from, int64_t from_stride, int64_t n) {
  Word* y = reinterpret_cast<Word*>(to);
  const Word* x = reinterpret_cast<const Word*>(from);
  for (int64_t i = 0; i < n; ++i) y[i * to_stride] = x[i * from_stride];
}

/// Bits move unchanged between elements of one type.
void copy_row(size_t size, char* to, int64_t to_stride, const char* from, int64_t from_stride,
              int64_t n) {
  if (to_stride == 1 && from_stride == 1) {
    std::memmove(to, from, static_cast<size_t>(n) * size);
    return;
  }
  switch (size) {
    case 1: return copy_words<uint8_t>(to, to_stride, from, from_stride, n);
    case 2: return copy_words<uint16_t>(to, to_stride, from, from_stride, n);
    case 4: return copy_words<uint32_t>(to, to_stride, from, from_stride, n);
    default: return copy_words<uint64_t>(to, to_stride, from, from_stride, n);
  }
}

}  // namespace

void copy_elements(const Tensor& target, const Tensor& source) {
  if (record::active()) {
    const Tensor* inputs[] = {&target, &source};
    Tensor out = target;
    return record::append(source.impl().wrapped_number ? op_of<Fill> : op_of<Copy>, inputs, nullptr,
                          {&out, 1}, /*inplace=*/true);
  }
  LoopNest<2> nest(target);
  nest.add(source);
  nest.merge();
  if (nest.numel == 0) return;
  const DType to = target.dtype(), from = source.dtype();
  const auto to_size = static_cast<int64_t>(element_size(to)),
             from_size = static_cast<int64_t>(element_size(from));
  const int compute = static_cast<int>(compute_type(from));
  const kernels::LoadFn load = kernels::table().load[static_cast<int>(from)][compute];
  const kernels::StoreFn store = kernels::table().store[static_cast<int>(to)][compute];
  auto piece = [&](int64_t begin, int64_t end) {
    nest.for_rows(begin, end, [&](int64_t i, int64_t n) {
      char* y = nest.operands[0].data + nest.offset(0, i) * to_size;
      const char* x = nest.operands[1].data + nest.offset(1, i) * from_size;
      const int64_t ys = nest.row_stride(0), xs = nest.row_stride(1);
      if (to == from) return copy_row(element_size(to), y, ys, x, xs, n);
      alignas(64) char block[kBlock * 8];
      for (int64_t done = 0; done < n; done += kBlock) {
        const int64_t length = std::min(kBlock, n - done);
        load(x + done * xs * from_size, xs, block, length);
        store(block, y + done * ys * to_size, ys, length);
      }
    });
  };
  if (nest.numel <= kGrain) piece(0, nest.numel);
  else base::parallel_for(nest.numel, kGrain, piece);
}

}  // namespace grapnel
