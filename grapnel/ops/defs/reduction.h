/// Reductions: sum, mean, product, extremes, any and all.
#pragma once

#include <limits>

#include "grapnel/functions/functions.h"
#include "grapnel/ops/define.h"

namespace grapnel {

/// Gives a reduced gradient its reduced dimensions back, as size 1.
Tensor restore_dims(const Tensor& reduced, const ReduceAttrs& attrs);
Samples sample_reductions();

struct Sum : Reduction {
  static constexpr std::string_view name = "sum";
  static constexpr TypeRule type_rule = TypeRule::widen;
  // x + -0.0 is x for every x, the zeros included.
  template <class S>
  static S identity() {
    return S(-0.0);
  }
  template <class S>
  static S combine(S a, S b) {
    return a + b;
  }
  static Grads grad(const Saved& s, const Tensor& g) {
    return {restore_dims(g, s.attrs<ReduceAttrs>()).expand(s.input_shape(0))};
  }
  static Samples samples() { return sample_reductions(); }
};

struct Mean : Reduction {
  static constexpr std::string_view name = "mean";
  static constexpr TypeRule type_rule = TypeRule::floating;
  template <class S>
  static S identity() {
    return S(-0.0);
  }
  template <class S>
  static S combine(S a, S b) {
    return a + b;
  }
  template <class S>
  static S finish(S sum, S count) {
    return sum / count;
  }
  static Grads grad(const Saved& s, const Tensor& g) {
    const ReduceAttrs& attrs = s.attrs<ReduceAttrs>();
    int64_t count = 1;
    for (int64_t d : attrs.dims) count *= s.input_shape(0)[static_cast<int>(d)];
    return {(restore_dims(g, attrs) / static_cast<double>(count)).expand(s.input_shape(0))};
  }
  static Samples samples() { return sample_reductions(); }
};

/// The gradient is the product of all the others, so a zero among them is no trouble.
struct Prod : Reduction {
  static constexpr std::string_view name = "prod";
  static constexpr TypeRule type_rule = TypeRule::widen;
  template <class S>
  static S identity() {
    return S(1.0);
  }
  template <class S>
  static S combine(S a, S b) {
    return a * b;
  }
  static constexpr SaveMask saves[] = {input(0)};
  static Grads grad(const Saved& s, const Tensor& g);
  static Samples samples() { return sample_reductions(); }
};

/// Where several values are extreme they share the gradient evenly. A NaN among them wins; where it is
/// known that there is none, `combine_numbers` does with less (cpu/kernels/reduce_kernel.h).
struct Extreme : Reduction {
  static constexpr SaveMask saves[] = {input(0) | output()};
  static Grads grad(const Saved& s, const Tensor& g);
  static Samples samples() { return sample_reductions(); }
};
struct Amax : Extreme {
  static constexpr std::string_view name = "amax";
  template <class S>
  static S identity() {
    if constexpr (is_int<S>) return S::of(std::numeric_limits<typename S::value_type>::min());
    else return -infinity<S>();
  }
  template <class S>
  static S combine(S a, S b) {
    return select((a > b) | (a != a), a, b);
  }
  template <class S>
  static S combine_numbers(S a, S b) {
    return select(a > b, a, b);
  }
};
struct Amin : Extreme {
  static constexpr std::string_view name = "amin";
  template <class S>
  static S identity() {
    if constexpr (is_int<S>) return S::of(std::numeric_limits<typename S::value_type>::max());
    else return infinity<S>();
  }
  template <class S>
  static S combine(S a, S b) {
    return select((a < b) | (a != a), a, b);
  }
  template <class S>
  static S combine_numbers(S a, S b) {
    return select(a < b, a, b);
  }
};

struct Any : Reduction {
  static constexpr std::string_view name = "any";
  static constexpr TypeRule type_rule = TypeRule::test;
  template <class S>
  static S identity() {
    return S(0.0);
  }
  template <class S>
  static S combine(S a, S b) {
    return select((a != 0.0) | (b != 0.0), S(1.0), S(0.0));
  }
  static Samples samples() { return sample_reductions(); }
};
struct All : Reduction {
  static constexpr std::string_view name = "all";
  static constexpr TypeRule type_rule = TypeRule::test;
  template <class S>
  static S identity() {
    return S(1.0);
  }
  template <class S>
  static S combine(S a, S b) {
    return select((a != 0.0) & (b != 0.0), S(1.0), S(0.0));
  }
  static Samples samples() { return sample_reductions(); }
};

/// Their place in it is their place in the kernel tables.
using ReductionOps = OpList<Sum, Mean, Prod, Amax, Amin, Any, All>;

}  // namespace grapnel
