/// Comparing compiled products with eager ones.
#pragma once

#include "grapnel/base/allocator.h"
#include "tests/compile/plans.h"
#include "tests/ops/sweep.h"

namespace grapnel {

using Tensors = std::vector<Tensor>;

class Threads {
 public:
  explicit Threads(int count) { set_num_threads(count); }
  ~Threads() { set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  const int before_ = get_num_threads();
};

/// Whether a function gives eager's bits on one thread and on two, fused and not, from machine code
/// and interpreted.
template <class Fn>
bool same_everywhere(Fn fn, const Tensors& inputs) {
  const WithPasses restored([](compiler::PassOptions&) {});
  const Tensors want = fn(inputs);
  bool same = true;
  for (const int threads : {1, 2})
    for (const bool fused : {true, false})
      for (const bool background : {false, true}) {
        const Threads limit(threads);
        compiler::pass_options().epilogues = fused;
        compiler::pass_options().prologues = fused;
        compiler::pass_options().background_kernels = background;
        reset_compile_cache();
        auto f = compile(fn);
        const Tensors got = f(inputs);
        same &= got.size() == want.size();
        for (size_t i = 0; same && i < want.size(); ++i) same &= same_bits(got[i], want[i]);
      }
  return same;
}

/// The same with the gradients of all inputs.
template <class Fn>
bool same_with_gradients(Fn fn, const Tensors& inputs) {
  return same_everywhere(
      [&](const Tensors& in) {
        Tensors leaves, results;
        for (const Tensor& t : in) leaves.push_back(t.detach().requires_grad_());
        results = fn(leaves);
        results[0].sum().backward();
        for (Tensor& r : results) r = r.detach();
        for (const Tensor& leaf : leaves)
          if (leaf.grad().defined()) results.push_back(leaf.grad());
        return results;
      },
      inputs);
}

template <class Fn>
size_t peak_of(Fn&& fn) {
  fn();
  reset_peak_memory();
  const size_t before = memory_stats().in_use;
  fn();
  return memory_stats().peak - before;
}

}  // namespace grapnel
