/// Random fills. The draws are fixed when the op is called: its attributes hold the generator's
/// state of that moment, so running it again, on any number of threads, compiled or not, gives the
/// same numbers.
#pragma once

#include "grapnel/functions/factories.h"
#include "grapnel/ops/define.h"

namespace grapnel {

/// A fill takes shape and type from its input, whose values it does not look at.
struct RandomFill : Call<1> {
  static constexpr bool random = true;
  template <class Attrs>
  static void infer(Inputs inputs, const Attrs&, Specs& out) {
    out.push_back({inputs[0]->shape(), inputs[0]->dtype()});
  }
  // Nothing of what was there before is left.
  static Grads grad(const Saved&, const Tensor& g) { return {zeros_like(g)}; }
};

/// What `a` and `b` are stands in cpu/kernels/random_kernel.h.
struct RandomAttrs {
  int64_t seed = 0, offset = 0;
  double a = 0, b = 0;
  static void visit(auto& self, auto&& v) {
    v.argument("seed", self.seed);
    v.argument("offset", self.offset);
    v("a", self.a);
    v("b", self.b);
  }
};
struct RandomIntAttrs {
  int64_t seed = 0, offset = 0;
  int64_t low = 0, high = 0;
  static void visit(auto& self, auto&& v) {
    v.argument("seed", self.seed);
    v.argument("offset", self.offset);
    v.argument("low", self.low);
    v.argument("high", self.high);
  }
};

#define GRAPNEL_RANDOM(Def, text, Attributes, ...)                          \
  struct Def : RandomFill {                                                 \
    static constexpr std::string_view name = text;                          \
    using Attrs = Attributes;                                               \
    static Samples samples() {                                              \
      return {sample<Attrs>({sample_tensor({2, 3})}, {1, 2, __VA_ARGS__})}; \
    }                                                                       \
  };
GRAPNEL_RANDOM(Uniform, "uniform", RandomAttrs, -1.0, 3.0)
GRAPNEL_RANDOM(Normal, "normal", RandomAttrs, 0.5, 2.0)
GRAPNEL_RANDOM(Exponential, "exponential", RandomAttrs, 1.5, 0.0)
GRAPNEL_RANDOM(Bernoulli, "bernoulli", RandomAttrs, 0.25, 0.0)
GRAPNEL_RANDOM(RandomInts, "random", RandomIntAttrs, -3, 5)
/// The numbers 0 to n - 1 in random order, in a tensor of n elements; low and high are not used.
GRAPNEL_RANDOM(RandomOrder, "randperm", RandomIntAttrs, 0, 0)
#undef GRAPNEL_RANDOM

using RandomOps = OpList<Uniform, Normal, Exponential, Bernoulli, RandomInts, RandomOrder>;

}  // namespace grapnel
