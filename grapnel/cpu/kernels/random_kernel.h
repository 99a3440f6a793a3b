/// Random fills, compiled once per instruction set with equal bits.
///
/// Note [Random draws]
/// Element i of a fill is a pure function of the generator's seed, its offset when the fill was
/// asked for, and i. f32 (and all narrower types) takes word i % 4 of the block with counter offset
/// + i / 4, f64 takes half i % 2 of block offset + i / 2, an integer takes block offset + i. A fill
/// of n elements moves the offset by n, so fills never share a block, and the draws after one do
/// not depend on its type. Normal numbers come in pairs, made from the words of both.
#pragma once

#include <cstdint>

#include "grapnel/math/scalar.h"

namespace grapnel::kernels {

enum class Draw : uint8_t { uniform, normal, exponential, bernoulli };

struct RandomCall {
  Draw draw;
  uint64_t seed, offset;
  /// uniform: [a, b); normal: mean a, deviation b; exponential: rate a; bernoulli: 1 with
  /// probability a.
  double a, b;
  /// Uniform numbers are multiples of 2^-digits: as many as the stored type holds, so that rounding
  /// never gives 1.
  int digits;
};

/// Elements that one block of random bits yields.
template <class T>
inline constexpr int64_t per_block = 16 / sizeof(T);

/// Elements [first_block * per_block, (first_block + blocks) * per_block) of the fill.
template <class T, class Isa>
void random_kernel(const RandomCall& call, int64_t first_block, int64_t blocks, T* out);
template <class T>
using RandomFn = void (*)(const RandomCall& call, int64_t first_block, int64_t blocks, T* out);

}  // namespace grapnel::kernels
