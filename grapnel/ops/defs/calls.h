/// Calls of functions of the program, and checks of values: ops that a recording keeps in their place.
#pragma once

#include "grapnel/ops/attr_check.h"
#include "grapnel/ops/define.h"

namespace grapnel {

/// A function of the program, as a graph calls it.
class ProgramCall {
 public:
  virtual ~ProgramCall() = default;
  /// Computes `out`, whose tensors are allocated; an undefined one is not wanted.
  virtual void run(Inputs inputs, std::span<Tensor> out) const = 0;
};
struct ProgramCallAttrs {
  const ProgramCall* call = nullptr;  ///< kept alive by the trace
  static void visit(auto&, auto&&) {}
};

/// A call of a function that is not recorded op by op (ops/invoke.h). Whoever makes one knows what
/// its results look like.
struct Invoke : Call<-1> {
  static constexpr std::string_view name = "invoke";
  static constexpr bool effect = true, opaque = true;
  using Attrs = ProgramCallAttrs;
  static void infer(Inputs, const Attrs&, Specs&) {}
  static Grads grad(const Saved&, const Grads&) {
    fail(
        "invoke: the gradient of an invoked function was asked for, and it has none.\n"
        "Register the function as an ordinary hook, or detach() its result.");
  }
  static Samples samples() { return {}; }
};

/// The condition and the operands in, the results of the branch that holds out (compile/cond.h). Its
/// node is made by hand.
struct Cond : Call<-1> {
  static constexpr std::string_view name = "cond";
  static constexpr bool opaque = true;
  using Attrs = ProgramCallAttrs;
  static void infer(Inputs, const Attrs&, Specs&) {}
  static Samples samples() { return {}; }
};

/// Fails where values are refused. It has no results, and a call without results is never dropped.
struct CheckIntegers : Call<1> {
  static constexpr std::string_view name = "check_integers";
  struct Attrs {
    int64_t rule = 0;
    static void visit(auto& self, auto&& v) { v("rule", self.rule); }
  };
  static void infer(Inputs in, const Attrs& a, Specs& out);
  static Samples samples() {
    return {sample({sample_tensor({2, 3}, 1, 9)},
                   Attrs{static_cast<int64_t>(Refused::negative_exponent)})};
  }
};
/// Fails because of the value of `t` with that number, counted row by row.
[[noreturn]] void refuse_value(const Tensor& t, Refused rule, int64_t number);

using CallOps = OpList<Invoke, Cond, CheckIntegers>;

}  // namespace grapnel
