/// Copies: clone, conversion, writing over, turning around.
#pragma once

#include "grapnel/ops/defs/view.h"

namespace grapnel {

/// The same values in fresh, contiguous memory.
struct Clone : Call<1> {
  static constexpr std::string_view name = "clone";
  static constexpr bool elementwise = true;
  static void infer(Inputs in, const Attrs&, Specs& out) {
    out.push_back({in[0]->shape(), in[0]->dtype()});
  }
  static Grads grad(const Saved&, const Tensor& g) { return {g}; }
  static Samples samples() { return {{{sample_tensor({2, 3})}, {}}, {{sample_tensor({})}, {}}}; }
};

/// The same values in another type, rounded once.
struct ConvertAttrs {
  DType dtype = kFloat32;
  static void visit(auto& self, auto&& v) { v("dtype", self.dtype); }
};
struct Convert : Call<1> {
  static constexpr std::string_view name = "to";
  static constexpr bool elementwise = true;
  using Attrs = ConvertAttrs;
  static void infer(Inputs in, const Attrs& a, Specs& out) {
    out.push_back({in[0]->shape(), a.dtype});
  }
  static Grads grad(const Saved& s, const Tensor& g) { return {g.to(s.input_dtype(0))}; }
  static Samples samples() { return {sample({sample_tensor({2, 3})}, Attrs{kFloat64})}; }
};

/// The same values on another device.
struct ToDeviceAttrs {
  int64_t type = 0, index = 0;
  ToDeviceAttrs() = default;
  ToDeviceAttrs(Device d) : type(static_cast<int64_t>(d.type())), index(d.index()) {}
  Device device() const;
  static void visit(auto& self, auto&& v) {
    v("type", self.type);
    v("index", self.index);
  }
};
struct ToDevice : Call<1> {
  static constexpr std::string_view name = "to_device";
  static constexpr bool crosses = true;
  using Attrs = ToDeviceAttrs;
  static void infer(Inputs in, const Attrs& a, Specs& out) {
    out.push_back({in[0]->shape(), in[0]->dtype(), a.device()});
  }
  static Grads grad(const Saved& s, const Tensor& g) { return {g.to(s.input_device(0))}; }
  static Samples samples() { return {sample({sample_tensor({2, 3})}, Attrs(kCPU))}; }
};

/// The second input, broadcast and converted to the shape and type of the first, whose values do
/// not matter.
struct Copy : Call<2> {
  static constexpr std::string_view name = "copy";
  static constexpr bool elementwise = true, crosses = true;
  static void infer(Inputs in, const Attrs&, Specs& out);
  static Grads grad(const Saved& s, const Tensor& g) {
    return {s.needs(0) ? zeros(g.shape(), g.options()) : Tensor(),
            s.needs(1) ? g.sum_to_size(s.input_shape(1)).to(s.input_device(1), s.input_dtype(1))
                       : Tensor()};
  }
  static Samples samples() {
    return {{{sample_tensor({2, 3}), sample_tensor({2, 3}, 1, 2)}, {}},
            {{sample_tensor({2, 3}), sample_tensor({3}, 1, 2)}, {}}};
  }
};
/// The same with one value for all.
struct Fill : Copy {
  static constexpr std::string_view name = "fill";
  static Samples samples() { return {{{sample_tensor({2, 3}), sample_tensor({}, 1, 2)}, {}}}; }
};

/// The listed dimensions turned around.
struct Flip : Call<1> {
  static constexpr std::string_view name = "flip";
  using Attrs = DimsAttrs;
  static void infer(Inputs in, const Attrs& a, Specs& out) {
    attrs::dims(name, a.dims, in[0]->shape().size());
    out.push_back({in[0]->shape(), in[0]->dtype()});
  }
  static Grads grad(const Saved& s, const Tensor& g) { return {g.flip(s.attrs<Attrs>().dims)}; }
  static Samples samples() { return {sample({sample_tensor({2, 3, 2})}, Attrs{{0, 1}})}; }
};

using CopyOps = OpList<Clone, Convert, ToDevice, Copy, Fill, Flip>;

}  // namespace grapnel
