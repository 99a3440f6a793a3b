/// Copies between any two layouts and types, and the ops that are little more.
#include "grapnel/ops/defs/copy.h"

#include <cstring>

#include "grapnel/base/thread_pool.h"
#include "grapnel/cpu/kernels/table.h"
#include "grapnel/cpu/loop_nest.h"
#include "grapnel/cpu/raw.h"
#include "grapnel/cpu/run.h"
#include "grapnel/ops/evaluator.h"

namespace grapnel::cpu {

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

/// Whether `t` is a plain number all of whose bits are 0, in every type.
bool is_zero(const Tensor& t) {
  constexpr char zeros[8] = {};
  return t.impl().wrapped_number && std::memcmp(t.impl().host(), zeros, t.element_size()) == 0;
}

}  // namespace

void copy(const Tensor& target, const Tensor& source) {
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
  const bool zeros = nest.operands[0].contiguous && is_zero(source);
  auto piece = [&](int64_t begin, int64_t end) {
    if (zeros) {
      std::memset(nest.operands[0].data + begin * to_size, 0,
                  static_cast<size_t>((end - begin) * to_size));
      return;
    }
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

template <>
void run<Clone>(Inputs in, const Clone::Attrs&, std::span<Tensor> out) {
  cpu::copy(out[0], *in[0]);
}
template <>
void run<Convert>(Inputs in, const Convert::Attrs&, std::span<Tensor> out) {
  cpu::copy(out[0], *in[0]);
}

template <>
void run<ToDevice>(Inputs in, const ToDevice::Attrs&, std::span<Tensor> out) {
  evaluator_of(out[0].device()).copy(out[0], *in[0]);  // the work of the side that is not the CPU
}

template <>
void run<Copy>(Inputs in, const Copy::Attrs&, std::span<Tensor> out) {
  cpu::copy(out[0], apart_from(*in[1], out[0]));
}
template <>
void run<Fill>(Inputs in, const Fill::Attrs& a, std::span<Tensor> out) {
  run<Copy>(in, a, out);
}

template <>
void run<Flip>(Inputs in, const Flip::Attrs& a, std::span<Tensor> out) {
  if (out[0].numel() == 0) return;
  Geometry g = geometry_of(out[0]);
  for (int64_t d : a.dims) {
    const int dim = static_cast<int>(d);
    g.offset += (g.sizes[dim] - 1) * g.strides[dim];
    g.strides[dim] = -g.strides[dim];
  }
  cpu::copy(make_alias(out[0], g), *in[0]);
}

}  // namespace grapnel::cpu
