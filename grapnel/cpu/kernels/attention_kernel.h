/// Attention for one instruction set (attention.h says what it computes). Included by
/// attention_*.cpp only.
///
/// Queries come in blocks. A block's scores, at most kBlock rows of one value per key, stay in the
/// cache from the product that makes them to the one that uses them up; in a causal head they end
/// at the last key that the block sees.
#pragma once

#include <limits>

#include "grapnel/cpu/kernels/attention.h"
#include "grapnel/cpu/kernels/gemm_kernel.h"
#include "grapnel/cpu/kernels/pointwise_kernel.h"
#include "grapnel/cpu/kernels/simd_impl.h"
#include "grapnel/math/math.h"

namespace grapnel::kernels {

template <class T, class Isa>
class AttentionKernel {
  using S = Num<T, Isa>;
  using V = typename Simd<T, Isa>::V;
  static constexpr int64_t lanes = sizeof(V) / sizeof(T);

  /// Queries of a block: few enough that little of a causal block is computed in vain, enough to
  /// make a product of it.
  static constexpr int64_t kBlock = 16;

  static GRAPNEL_INLINE int64_t least(int64_t x, int64_t y) { return x < y ? x : y; }
  static constexpr int64_t whole(int64_t n) { return (n + lanes - 1) / lanes * lanes; }
  static GRAPNEL_INLINE V load(const T* p) {
    V v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
  }
  static GRAPNEL_INLINE void store(T* p, V v) { __builtin_memcpy(p, &v, sizeof v); }
  template <int distance, int... I>
  static GRAPNEL_INLINE V swapped(V v, std::integer_sequence<int, I...>) {
    return __builtin_shufflevector(v, v, (I ^ distance)...);
  }
  /// All lanes of v combined in halves, in every lane.
  template <int distance = lanes / 2, class F>
  static GRAPNEL_INLINE V fold(V v, F combine) {
    v = combine(v, swapped<distance>(v, std::make_integer_sequence<int, lanes>{}));
    if constexpr (distance > 1) return fold<distance / 2>(v, combine);
    else return v;
  }
  struct Greater {
    GRAPNEL_INLINE V operator()(V a, V b) const { return a > b ? a : b; }
  };
  struct Plus {
    GRAPNEL_INLINE V operator()(V a, V b) const { return a + b; }
  };

  /// The first `count` lanes of v, and -inf in the others.
  template <int... I>
  static GRAPNEL_INLINE V first(V v, int64_t count, std::integer_sequence<int, I...>) {
    constexpr V number = {T(I)...};
    return number < static_cast<T>(count) - V{} ? v : -std::numeric_limits<T>::infinity() - V{};
  }

  static T* rows(const AttentionRows& r, int64_t i) { return static_cast<T*>(r.data) + i * r.row; }

  /// What one call works with: scratch memory in parts, each on its own cache lines.
  struct Work {
    int64_t width;  // of a row of scores
    T *keys, *values, *weights, *slopes, *gemm;

    Work(const AttentionArgs& a, void* scratch) : width(whole(a.keys)) {
      T* at = static_cast<T*>(scratch);
      const auto take = [&at](int64_t n) {
        T* const part = at;
        at +=
            whole(n) + 16 * lanes;  // rows of 2^n bytes would all fall on the same few cache lines
        return part;
      };
      keys = take(width * a.features);
      values = take(width * a.value_features);
      weights = take(width * kBlock);
      slopes = take(width * kBlock);
      gemm = at;
    }
  };

  static int64_t scratch_bytes(const AttentionArgs& a) {
    const int64_t width = whole(a.keys);
    const int64_t parts = width * (a.features + a.value_features + 2 * kBlock) + 4 * (17 * lanes);
    return (parts + gemm_scratch<T>)*static_cast<int64_t>(sizeof(T));
  }

  /// The queries [begin, begin + count) and the keys [0, keys) that the last of them sees.
  struct Block {
    int64_t begin, count, keys;
  };
  static Block block(const AttentionArgs& a, int64_t begin) {
    const int64_t count = least(kBlock, a.queries - begin);
    return {begin, count, a.causal ? least(a.keys, a.first_query + begin + count) : a.keys};
  }

  /// The keys one feature after the other, scaled, so that products read them in the order they
  /// lie.
  static void turn_keys(const AttentionArgs& a, const Work& w) {
    Transpose<T, Isa>::run(a.keys, a.features, rows(a.k, 0), a.k.row, w.keys, w.width);
    const T scale = static_cast<T>(a.scale);
    for (int64_t e = 0; e < a.features; ++e) {
      GRAPNEL_INDEPENDENT_ITERATIONS
      for (int64_t j = 0; j < a.keys; ++j) w.keys[e * w.width + j] *= scale;
    }
  }

  /// One row: x becomes exp(x - max(x)) for the keys that are seen and 0 up to n, a whole number of
  /// registers. Returns the sum.
  static GRAPNEL_INLINE T exponentials(T* x, int64_t seen, int64_t n) {
    for (int64_t j = seen / lanes * lanes; j < n; j += lanes)
      store(x + j, first(load(x + j), seen - j, std::make_integer_sequence<int, lanes>{}));
    V top = load(x);
    for (int64_t j = lanes; j < n; j += lanes) top = Greater{}(top, load(x + j));
    const T most = fold(top, Greater{})[0];
    GRAPNEL_INDEPENDENT_ITERATIONS
    for (int64_t j = 0; j < n; ++j) x[j] = exp(S::of(x[j] - most)).v;
    V sum = load(x);
    for (int64_t j = lanes; j < n; j += lanes) sum += load(x + j);
    return fold(sum, Plus{})[0];
  }

  /// Scores of a block, as exponentials; each row's sum goes to `sums`.
  static void weigh(const AttentionArgs& a, const Work& w, const Block& b, T* sums) {
    gemm_kernel<T, Isa>({b.count, b.keys, a.features, rows(a.q, b.begin), a.q.row, 1, w.keys,
                         w.width, 1, w.weights, w.width},
                        w.gemm);
    for (int64_t i = 0; i < b.count; ++i) {
      const int64_t seen = a.causal ? least(b.keys, a.first_query + b.begin + i + 1) : b.keys;
      sums[i] = exponentials(w.weights + i * w.width, seen, whole(b.keys));
    }
  }

  static void forward(const AttentionArgs& a, void* scratch) {
    const Work w(a, scratch);
    turn_keys(a, w);
    for (int64_t begin = 0; begin < a.queries; begin += kBlock) {
      const Block b = block(a, begin);
      T sums[kBlock];
      weigh(a, w, b, sums);
      gemm_kernel<T, Isa>({b.count, a.value_features, b.keys, w.weights, w.width, 1, rows(a.v, 0),
                           a.v.row, 1, rows(a.out, begin), a.out.row},
                          w.gemm);
      for (int64_t i = 0; i < b.count; ++i) {
        T* const out = rows(a.out, begin + i);
        GRAPNEL_INDEPENDENT_ITERATIONS
        for (int64_t c = 0; c < a.value_features; ++c) out[c] /= sums[i];
      }
    }
  }

  /// One row: e becomes the weights w = e / sum, d becomes scale * w * (d - sum(w * d)).
  static GRAPNEL_INLINE void slope(T* e, T* d, int64_t n, T sum, T scale) {
    V products{};
    const T inverse = T(1) / sum;
    for (int64_t j = 0; j < n; j += lanes) {
      const V weight = load(e + j) * inverse;
      store(e + j, weight);
      products += weight * load(d + j);
    }
    const V along = fold(products, Plus{});
    for (int64_t j = 0; j < n; j += lanes)
      store(d + j, load(e + j) * (load(d + j) - along) * scale);
  }

  static void backward(const AttentionArgs& a, void* scratch) {
    const Work w(a, scratch);
    turn_keys(a, w);
    Transpose<T, Isa>::run(a.keys, a.value_features, rows(a.v, 0), a.v.row, w.values, w.width);
    const T scale = static_cast<T>(a.scale);
    // From the last block, which sees the most keys: it begins the sums over the queries and the
    // others add to them.
    const int64_t last = (a.queries - 1) / kBlock * kBlock;
    for (int64_t begin = last; begin >= 0; begin -= kBlock) {
      const Block b = block(a, begin);
      T sums[kBlock];
      weigh(a, w, b, sums);
      gemm_kernel<T, Isa>({b.count, b.keys, a.value_features, rows(a.g, begin), a.g.row, 1,
                           w.values, w.width, 1, w.slopes, w.width},
                          w.gemm);
      const int64_t n = whole(b.keys);
      for (int64_t i = 0; i < b.count; ++i) {
        T* const slopes = w.slopes + i * w.width;
        for (int64_t j = b.keys; j < n; ++j) slopes[j] = T(0);
        slope(w.weights + i * w.width, slopes, n, sums[i], scale);
      }
      gemm_kernel<T, Isa>({b.count, a.features, b.keys, w.slopes, w.width, 1, rows(a.k, 0), a.k.row,
                           1, rows(a.dq, begin), a.dq.row},
                          w.gemm);
      gemm_kernel<T, Isa>({b.keys, a.features, b.count, w.slopes, 1, w.width, rows(a.q, begin),
                           a.q.row, 1, rows(a.dk, 0), a.dk.row, begin != last},
                          w.gemm);
      gemm_kernel<T, Isa>({b.keys, a.value_features, b.count, w.weights, 1, w.width,
                           rows(a.g, begin), a.g.row, 1, rows(a.dv, 0), a.dv.row, begin != last},
                          w.gemm);
    }
    for (int64_t j = block(a, last).keys; j < a.keys; ++j) {  // seen by nobody
      for (int64_t e = 0; e < a.features; ++e) rows(a.dk, j)[e] = T(0);
      for (int64_t c = 0; c < a.value_features; ++c) rows(a.dv, j)[c] = T(0);
    }
  }

 public:
  static constexpr AttentionKernels make() { return {&forward, &backward, &scratch_bytes}; }
};

}  // namespace grapnel::kernels
