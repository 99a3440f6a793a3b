/// Updates of a large parameter as one pass over memory, in eager mode too.
#pragma once

#include <algorithm>
#include <array>

#include "grapnel/base/thread_pool.h"
#include "grapnel/ops/record.h"
#include "grapnel/tensor/tensor.h"

namespace grapnel::optim {

/// Calls fn(parts) on neighbouring parts of tensors of one shape, for an `fn` that treats each
/// element by itself; an undefined tensor stays undefined. A part passes through all steps of the
/// update while it is in the cache, and threads share out the parts once instead of once per step.
/// Code that is being recorded is handed the whole tensors: the compiler makes one pass of it by
/// itself.
template <size_t N, class Fn>
void in_blocks(const std::array<Tensor, N>& tensors, const Fn& fn) {
  constexpr int64_t kBlock = 1 << 15;
  const int64_t n = tensors[0].numel();
  const auto splits = [](const Tensor& t) { return !t.defined() || t.is_contiguous(); };
  if (n <= kBlock || record::active() || !std::ranges::all_of(tensors, splits)) return fn(tensors);

  std::array<Tensor, N> flat;
  for (size_t i = 0; i < N; ++i)
    if (tensors[i].defined()) flat[i] = tensors[i].detach().view({n});
  base::parallel_for((n + kBlock - 1) / kBlock, 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      std::array<Tensor, N> parts;
      for (size_t i = 0; i < N; ++i)
        if (flat[i].defined())
          parts[i] = flat[i].narrow(0, b * kBlock, std::min(kBlock, n - b * kBlock));
      fn(parts);
    }
  });
}

}  // namespace grapnel::optim
