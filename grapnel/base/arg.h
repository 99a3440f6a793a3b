/// One field of an options class, with LibTorch's accessors: `options.lr(0.1)` sets and returns the
/// options, `options.lr()` reads.
#pragma once

#include <utility>

/// `GRAPNEL_ARG(double, lr) = 1e-3;`
#define GRAPNEL_ARG(Type, field)                          \
 public:                                                  \
  auto field(Type value) -> decltype(*this) {             \
    field##_ = std::move(value);                          \
    return *this;                                         \
  }                                                       \
  const Type& field() const noexcept { return field##_; } \
  Type& field() noexcept { return field##_; }             \
                                                          \
 private:                                                 \
  Type field##_
