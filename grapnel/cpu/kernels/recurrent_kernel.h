/// The kernels of recurrent layers for one instruction set (recurrent.h says what they compute).
/// Included by recurrent_isa.cpp only.
#pragma once

#include "grapnel/cpu/kernels/pointwise_kernel.h"
#include "grapnel/cpu/kernels/recurrent.h"
#include "grapnel/math/math.h"
#include "grapnel/ops/defs/activation.h"

namespace grapnel::kernels {

template <class T, class Isa>
struct RecurrentKernel {
  using S = Num<T, Isa>;
  /// Columns that are worked on together, so that what lies between two loops stays in the cache.
  static constexpr int64_t kBlock = 256;

  static T sigmoid(T x) { return Sigmoid::scalar(S::of(x)).v; }
  static T tanh_of(T x) { return tanh(S::of(x)).v; }

  /// Arrays coincide exactly or do not meet.
  template <class F>
  GRAPNEL_INLINE static void each(int64_t n, F f) {
    GRAPNEL_INDEPENDENT_ITERATIONS
    for (int64_t j = 0; j < n; ++j) f(j);
  }

  /// The part of a row in which a block begins.
  template <class V>
  static V* at(V* data, int64_t r, int64_t parts, int64_t part, int64_t n, int64_t j) {
    return data + (r * parts + part) * n + j;
  }

  /// Calls fn(r, j, count) for all blocks of all rows.
  template <class F>
  GRAPNEL_INLINE static void for_blocks(int64_t rows, int64_t n, F fn) {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t j = 0; j < n; j += kBlock) fn(r, j, n - j < kBlock ? n - j : kBlock);
  }

  /// to = p + bias for the part of a block; p itself where there is none to be added.
  GRAPNEL_INLINE static const T* biased(const T* p, const T* bias, T* to, int64_t n) {
    if (!bias) return p;
    each(n, [=](int64_t j) { to[j] = p[j] + bias[j]; });
    return to;
  }

  static void lstm(const RecurrentArgs& a) {
    alignas(64) T gates[4][kBlock];
    const T *const x = static_cast<const T*>(a.x), *const p = static_cast<const T*>(a.p),
                   *const bias = static_cast<const T*>(a.bias);
    for_blocks(a.rows, a.n, [&](int64_t r, int64_t j, int64_t n) {
      for (int64_t k = 0; k < 4; ++k) {
        const T* const xk = at(x, r, 4, k, a.n, j);
        T* const gate = gates[k];
        const T* const pk =
            biased(at(p, r, 4, k, a.n, j), bias ? bias + k * a.n + j : nullptr, gate, n);
        if (k == 2) each(n, [=](int64_t i) { gate[i] = tanh_of(xk[i] + pk[i]); });
        else each(n, [=](int64_t i) { gate[i] = sigmoid(xk[i] + pk[i]); });
      }
      const T *const in = gates[0], *const forget = gates[1], *const cell = gates[2],
                     *const out = gates[3];
      T* const c = static_cast<T*>(a.c) + r * a.n + j;
      T* const y = static_cast<T*>(a.y) + r * a.n + j;
      each(n, [=](int64_t i) {
        c[i] = forget[i] * c[i] + in[i] * cell[i];
        y[i] = out[i] * tanh_of(c[i]);
      });
      if (!a.kept) return;
      for (int64_t k = 0; k < 5; ++k) {
        const T* const from = k < 4 ? gates[k] : c;
        T* const to = at(static_cast<T*>(a.kept), r, 5, k, a.n, j);
        each(n, [=](int64_t i) { to[i] = from[i]; });
      }
    });
  }

  static void lstm_backward(const RecurrentBackwardArgs& a) {
    const T* const kept = static_cast<const T*>(a.kept);
    T* const all = static_cast<T*>(a.gx);
    for_blocks(a.rows, a.n, [&](int64_t r, int64_t j, int64_t n) {
      const auto of = [&](int64_t k) { return at(kept, r, 5, k, a.n, j); };
      const auto to = [&](int64_t k) { return at(all, r, 4, k, a.n, j); };
      const T *const in = of(0), *const forget = of(1), *const cell = of(2), *const out = of(3),
                     *const c = of(4);
      const T* const before = static_cast<const T*>(a.c) + r * a.c_row + j;
      const T* const gy = static_cast<const T*>(a.gy) + r * a.n + j;
      const T* const product = static_cast<const T*>(a.product) + r * a.n + j;
      T* const gc = static_cast<T*>(a.gc) + r * a.n + j;
      T *const gi = to(0), *const gf = to(1), *const gg = to(2), *const go = to(3);
      const T one = 1;
      each(n, [=](int64_t i) {
        const T u = tanh_of(c[i]), gh = gy[i] + product[i],
                g = gc[i] + gh * out[i] * (one - u * u);
        gi[i] = g * cell[i] * (in[i] * (one - in[i]));
        gf[i] = g * before[i] * (forget[i] * (one - forget[i]));
        gg[i] = g * in[i] * (one - cell[i] * cell[i]);
        go[i] = gh * u * (out[i] * (one - out[i]));
        gc[i] = g * forget[i];
      });
    });
  }

  static void gru(const RecurrentArgs& a) {
    alignas(64) T sums[3][kBlock];
    const T *const x = static_cast<const T*>(a.x), *const p = static_cast<const T*>(a.p),
                   *const bias = static_cast<const T*>(a.bias);
    for_blocks(a.rows, a.n, [&](int64_t r, int64_t j, int64_t n) {
      const T* pk[3];
      for (int64_t k = 0; k < 3; ++k)
        pk[k] = biased(at(p, r, 3, k, a.n, j), bias ? bias + k * a.n + j : nullptr, sums[k], n);
      for (int64_t k = 0; k < 2; ++k) {
        const T *const xk = at(x, r, 3, k, a.n, j), *const from = pk[k];
        T* const gate = sums[k];
        each(n, [=](int64_t i) { gate[i] = sigmoid(xk[i] + from[i]); });
      }
      const T *const reset = sums[0], *const update = sums[1], *const q = pk[2],
                     *const xn = at(x, r, 3, 2, a.n, j);
      const T* const h = static_cast<const T*>(a.h) + r * a.n + j;
      T* const y = static_cast<T*>(a.y) + r * a.n + j;
      alignas(64) T fresh[kBlock];
      T* const now = fresh;
      each(n, [=](int64_t i) {
        now[i] = tanh_of(xn[i] + reset[i] * q[i]);
        y[i] = now[i] + update[i] * (h[i] - now[i]);
      });
      if (!a.kept) return;
      const T* const kept[] = {reset, update, now, q};
      for (int64_t k = 0; k < 4; ++k) {
        const T* const from = kept[k];
        T* const to = at(static_cast<T*>(a.kept), r, 4, k, a.n, j);
        each(n, [=](int64_t i) { to[i] = from[i]; });
      }
    });
  }

  static void gru_backward(const RecurrentBackwardArgs& a) {
    const T* const kept = static_cast<const T*>(a.kept);
    for_blocks(a.rows, a.n, [&](int64_t r, int64_t j, int64_t n) {
      const auto of = [&](int64_t k) { return at(kept, r, 4, k, a.n, j); };
      const auto to = [&](void* all, int64_t k) { return at(static_cast<T*>(all), r, 3, k, a.n, j); };
      const T *const reset = of(0), *const update = of(1), *const now = of(2), *const q = of(3);
      const T* const h = static_cast<const T*>(a.h) + r * a.n + j;
      const T* const gy = static_cast<const T*>(a.gy) + r * a.n + j;
      const T* const product = static_cast<const T*>(a.product) + r * a.n + j;
      T* const direct = static_cast<T*>(a.direct) + r * a.n + j;
      T *const xr = to(a.gx, 0), *const xz = to(a.gx, 1), *const xn = to(a.gx, 2);
      T *const pr = to(a.gp, 0), *const pz = to(a.gp, 1), *const pn = to(a.gp, 2);
      const T one = 1;
      each(n, [=](int64_t i) {
        const T gh = gy[i] + (direct[i] + product[i]);
        const T dn = gh * (one - update[i]) * (one - now[i] * now[i]);
        xr[i] = pr[i] = dn * q[i] * (reset[i] * (one - reset[i]));
        xz[i] = pz[i] = gh * (h[i] - now[i]) * (update[i] * (one - update[i]));
        xn[i] = dn;
        pn[i] = dn * reset[i];
        direct[i] = gh * update[i];
      });
    });
  }

  template <bool is_tanh>
  static void simple(const RecurrentArgs& a) {
    alignas(64) T memory[kBlock];
    for_blocks(a.rows, a.n, [&](int64_t r, int64_t j, int64_t n) {
      const T* const x = static_cast<const T*>(a.x) + r * a.n + j;
      const T* const bias = static_cast<const T*>(a.bias);
      const T* const p = biased(static_cast<const T*>(a.p) + r * a.n + j,
                                bias ? bias + j : nullptr, memory, n);
      T* const y = static_cast<T*>(a.y) + r * a.n + j;
      each(n, [=](int64_t i) {
        if constexpr (is_tanh) y[i] = tanh_of(x[i] + p[i]);
        else y[i] = Relu::scalar(S::of(x[i] + p[i])).v;
      });
    });
  }

  template <bool is_tanh>
  static void simple_backward(const RecurrentBackwardArgs& a) {
    const T *const gy = static_cast<const T*>(a.gy), *const product = static_cast<const T*>(a.product),
                   *const y = static_cast<const T*>(a.y);
    T* const gx = static_cast<T*>(a.gx);
    const T one = 1, zero = 0;
    each(a.rows * a.n, [=](int64_t i) {
      const T gh = gy[i] + product[i];
      if constexpr (is_tanh) gx[i] = gh * (one - y[i] * y[i]);
      else gx[i] = y[i] <= zero ? zero : gh;
    });
  }

  static constexpr RecurrentKernels make() {
    return {.forward = {&lstm, &gru, &simple<true>, &simple<false>},
            .backward = {&lstm_backward, &gru_backward, &simple_backward<true>,
                         &simple_backward<false>}};
  }
};

}  // namespace grapnel::kernels
