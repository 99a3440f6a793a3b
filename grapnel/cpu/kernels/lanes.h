/// Lanes: as many numbers as a register holds, with those operations of scalar.h that reductions
/// combine values with.
///
/// Compilers turn long loops over numbers into registers by themselves, but not the last steps of a
/// reduction, where half a register meets the other half: they compare number by number and branch.
///
/// Only files compiled for one instruction set may use it.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "grapnel/math/scalar.h"

namespace grapnel::kernels {

template <class Isa>
inline constexpr int register_bytes = std::is_same_v<Isa, IsaAvx512> ? 64
                                      : std::is_same_v<Isa, IsaAvx2> ? 32
                                                                     : 16;

template <class T, class Isa>
struct Lanes {
  using value_type = T;
  using isa = Isa;
  static constexpr int count = register_bytes<Isa> / static_cast<int>(sizeof(T));
  typedef T V __attribute__((vector_size(register_bytes<Isa>)));
  V v;

  Lanes() = default;
  /// Subtracting zero keeps the sign of a negative zero; adding it would not.
  GRAPNEL_INLINE Lanes(double literal) : v(static_cast<T>(literal) - V{}) {}
  GRAPNEL_INLINE static Lanes of(V value) {
    Lanes l;
    l.v = value;
    return l;
  }
  GRAPNEL_INLINE static Lanes load(const T* from) {
    Lanes l;
    __builtin_memcpy(&l.v, from, sizeof(V));
    return l;
  }
  GRAPNEL_INLINE T first() const { return v[0]; }
  /// Lane l is lane l + distance of this.
  template <int distance>
  GRAPNEL_INLINE Lanes from_above() const {
    return from_above<distance>(std::make_integer_sequence<int, count>{});
  }

  // Signed overflow wraps, as in Num.
  GRAPNEL_INLINE static auto wrap(V a) {
    if constexpr (std::is_integral_v<T>) {
      typedef std::make_unsigned_t<T> U __attribute__((vector_size(register_bytes<Isa>)));
      return reinterpret_cast<U>(a);
    } else {
      return a;
    }
  }
  friend GRAPNEL_INLINE Lanes operator+(Lanes a, Lanes b) { return of((V)(wrap(a.v) + wrap(b.v))); }
  friend GRAPNEL_INLINE Lanes operator*(Lanes a, Lanes b) { return of((V)(wrap(a.v) * wrap(b.v))); }
  friend GRAPNEL_INLINE auto operator<(Lanes a, Lanes b) { return a.v < b.v; }
  friend GRAPNEL_INLINE auto operator>(Lanes a, Lanes b) { return a.v > b.v; }
  friend GRAPNEL_INLINE auto operator!=(Lanes a, Lanes b) { return a.v != b.v; }
  template <class Mask>
  friend GRAPNEL_INLINE Lanes select(Mask mask, Lanes a, Lanes b) {
    return of(mask ? a.v : b.v);
  }

 private:
  template <int distance, int... I>
  GRAPNEL_INLINE Lanes from_above(std::integer_sequence<int, I...>) const {
    return of(__builtin_shufflevector(v, v, (I + distance) % count...));
  }
};

}  // namespace grapnel::kernels
