/// Autocast: inside its scope products and convolutions of f32 tensors compute in bf16 or f16, on
/// this thread.
///
///   {
///     Autocast scope(kBFloat16);
///     loss = cross_entropy(net(x), y);       // products in bf16, softmax, norms and losses in f32
///   }
///   loss.backward();                         // each gradient has the type of its tensor
///
/// Note [What autocast casts]
/// | op                                                 | inputs                     | result    |
/// |----------------------------------------------------|----------------------------|-----------|
/// | matmul, mm, bmm, mv, addmm, linear, conv1d, conv2d | f32 (f16, bf16) to `dtype` | dtype     |
/// | softmax, log_softmax, layer_norm, losses           | f16, bf16 to f32           | f32       |
/// | all others                                         | as they are                | as always |
/// f64 and integers are never cast. The casts are ordinary ops on the tape: a parameter stays f32
/// and gets its gradient in f32, and a hook sees the gradient in the type of its own tensor (bf16
/// for the result of a product). Formulas of the backward pass are not cast again, whatever scope
/// backward() is called in.
#pragma once

#include "grapnel/base/context.h"
#include "grapnel/tensor/tensor.h"

namespace grapnel {

static_assert(Modes{}.autocast == DType::Float32, "no autocast");

/// Inside this scope products and convolutions are computed in a shorter type.
class Autocast {
 public:
  /// kBFloat16 or kFloat16; kFloat32 switches casting off, for a region inside another scope.
  explicit Autocast(DType dtype);
  ~Autocast() { this_context.modes.autocast = before_; }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

  static bool is_enabled() { return dtype() != DType::Float32; }
  static DType dtype() { return this_context.modes.autocast; }

 private:
  DType before_;
};

/// For the ops. One comparison is what a program without autocast pays.
struct autocast {
  static bool lowers(const Tensor& t) {
    return t.defined() && t.is_floating_point() && t.dtype() != DType::Float64 &&
           t.dtype() != Autocast::dtype();
  }
  static bool lowers(const Tensor& a, const Tensor& b) {
    return Autocast::is_enabled() && (lowers(a) || lowers(b));
  }
  static Tensor lower(const Tensor& t) { return lowers(t) ? t.to(Autocast::dtype()) : t; }
  static bool widens(const Tensor& t) {
    return Autocast::is_enabled() && (t.dtype() == DType::Float16 || t.dtype() == DType::BFloat16);
  }
  static Tensor wide(const Tensor& t) {
    return t.defined() && widens(t) ? t.to(DType::Float32) : t;
  }
};

}  // namespace grapnel
