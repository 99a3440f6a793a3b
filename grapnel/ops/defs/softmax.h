/// Softmax and its logarithm: fast rows that give the bits of the ops they stand for
/// (cpu/kernels/row.h says which).
#pragma once

#include "grapnel/functions/functions.h"
#include "grapnel/ops/define.h"

namespace grapnel {

struct SoftmaxAttrs {
  int64_t dim = 0;
  static void visit(auto& self, auto&& v) { v("dim", self.dim); }
};

/// Narrow types are computed in f32 and rounded once.
struct Softmax : Call<1> {
  static constexpr std::string_view name = "softmax";
  using Attrs = SoftmaxAttrs;
  static void infer(Inputs in, const Attrs&, Specs& out);
  static constexpr SaveMask saves[] = {output()};
  static Grads grad(const Saved& s, const Tensor& g);
  static Outputs lower(Inputs in, const Attrs& a);
  static Samples samples();
};

struct LogSoftmax : Call<1> {
  static constexpr std::string_view name = "log_softmax";
  using Attrs = SoftmaxAttrs;
  static void infer(Inputs in, const Attrs&, Specs& out);
  static constexpr SaveMask saves[] = {output()};
  static Grads grad(const Saved& s, const Tensor& g);
  static Outputs lower(Inputs in, const Attrs& a);
  static Samples samples();
};

/// Take the gradient of the result, and the result.
struct SoftmaxBackward : Call<2> {
  static constexpr std::string_view name = "softmax_backward";
  using Attrs = SoftmaxAttrs;
  static void infer(Inputs in, const Attrs&, Specs& out);
  static constexpr SaveMask saves[] = {input(1), input(0) | input(1)};
  static Grads grad(const Saved& s, const Tensor& h);
  static Outputs lower(Inputs in, const Attrs& a);
  static Samples samples();
};

struct LogSoftmaxBackward : Call<2> {
  static constexpr std::string_view name = "log_softmax_backward";
  using Attrs = SoftmaxAttrs;
  static void infer(Inputs in, const Attrs&, Specs& out);
  static constexpr SaveMask saves[] = {input(1), input(0) | input(1)};
  static Grads grad(const Saved& s, const Tensor& h);
  static Outputs lower(Inputs in, const Attrs& a);
  static Samples samples();
};

using SoftmaxOps = OpList<Softmax, LogSoftmax, SoftmaxBackward, LogSoftmaxBackward>;

}  // namespace grapnel
