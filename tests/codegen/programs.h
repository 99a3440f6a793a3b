/// Programs and values for the tests of generated code.
#pragma once

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "grapnel/codegen/block_program.h"
#include "grapnel/codegen/op_names.h"

namespace grapnel::codegen {

using Random = std::mt19937_64;
using Step = BlockProgram::Step;

inline constexpr Compute kComputes[] = {Compute::F32, Compute::F64, Compute::I64};

inline Step op_step(int op, Compute compute, std::initializer_list<int32_t> operands) {
  Step step{.compute = compute,
            .from = compute,
            .via = dtype_of(compute),
            .op = static_cast<int16_t>(op),
            .arity = static_cast<int16_t>(operands.size())};
  std::copy(operands.begin(), operands.end(), step.operands);
  return step;
}
inline Step convert_step(Compute from, DType via, Compute to, int32_t operand) {
  return {.kind = Step::Kind::convert,
          .compute = to,
          .from = from,
          .via = via,
          .arity = 1,
          .operands = {operand, -1, -1, -1}};
}
inline int op_number(std::string_view name) {
  for (int op = 0; op < op_count(); ++op)
    if (op_name(op) == name) return op;
  return -1;
}
/// One op whose operands are all inputs.
inline BlockProgram single(int op, Compute compute) {
  BlockProgram p;
  Step step{.compute = compute,
            .from = compute,
            .op = static_cast<int16_t>(op),
            .arity = static_cast<int16_t>(op_arity(op))};
  for (int k = 0; k < step.arity; ++k) {
    p.inputs.push_back(compute);
    step.operands[k] = k;
  }
  p.steps = {step};
  p.outputs = {step.arity};
  return p;
}

/// A block of values, 8 bytes of room for each.
struct Block {
  Compute type;
  std::vector<uint64_t> words;
  explicit Block(Compute t, int64_t n = 0) : type(t), words(static_cast<size_t>(n)) {}
  void* data() { return words.data(); }
  template <class T>
  void set(int64_t i, T value) {
    std::memcpy(reinterpret_cast<char*>(words.data()) + i * static_cast<int64_t>(sizeof(T)), &value,
                sizeof(T));
  }
  template <class T>
  T get(int64_t i) const {
    T value;
    std::memcpy(&value,
                reinterpret_cast<const char*>(words.data()) + i * static_cast<int64_t>(sizeof(T)),
                sizeof(T));
    return value;
  }
};

/// Random bit patterns, values of ordinary size, whole numbers, and the usual suspects.
template <class T>
T random_value(Random& random) {
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  using Limits = std::numeric_limits<T>;
  if constexpr (std::is_integral_v<T>) {
    static constexpr T edges[] = {0,
                                  1,
                                  -1,
                                  2,
                                  255,
                                  256,
                                  Limits::min(),
                                  Limits::max(),
                                  Limits::min() + 1,
                                  int64_t{1} << 31,
                                  int64_t{1} << 53};
    switch (random() % 3) {
      case 0: return static_cast<T>(random());
      case 1: return static_cast<T>(random() % 201) - 100;
      default: return edges[random() % std::size(edges)];
    }
  } else {
    static const T edges[] = {T(0),
                              -T(0),
                              T(1),
                              T(-1),
                              T(0.5),
                              T(2),
                              T(-2),
                              T(1.5),
                              T(2.5),
                              Limits::infinity(),
                              -Limits::infinity(),
                              Limits::quiet_NaN(),
                              Limits::min(),
                              Limits::denorm_min(),
                              Limits::max(),
                              Limits::lowest(),
                              Limits::epsilon(),
                              T(88.7),
                              T(-103.9),
                              T(709.7),
                              T(65504),
                              T(65520),
                              T(6e-8),
                              T(3.3895314e38),
                              T(9223372036854775808.0),
                              T(-9223372036854775808.0),
                              T(2147483648.0),
                              T(1e15),
                              T(3.14159265358979)};
    switch (random() % 6) {
      case 0:
      case 1: return std::bit_cast<T>(static_cast<Bits>(random()));
      case 2: return edges[random() % std::size(edges)];
      case 3: return static_cast<T>(static_cast<int>(random() % 41) - 20);
      case 4: return std::uniform_real_distribution<T>(-1, 1)(random);
      default: return std::uniform_real_distribution<T>(-100, 100)(random);
    }
  }
}

inline Block random_block(Compute type, int64_t n, Random& random) {
  Block b(type, n);
  for (int64_t i = 0; i < n; ++i) {
    if (type == Compute::F32) b.set(i, random_value<float>(random));
    else if (type == Compute::F64) b.set(i, random_value<double>(random));
    else b.set(i, random_value<int64_t>(random));
  }
  return b;
}

/// The first place where two blocks differ, any two NaNs being equal; -1 if none.
inline int64_t first_difference(const Block& a, const Block& b, int64_t n) {
  auto scan = [&]<class T>() -> int64_t {
    using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
    for (int64_t i = 0; i < n; ++i) {
      if (a.get<Bits>(i) == b.get<Bits>(i)) continue;
      if constexpr (std::is_floating_point_v<T>)
        if (std::isnan(a.get<T>(i)) && std::isnan(b.get<T>(i))) continue;
      return i;
    }
    return -1;
  };
  return a.type == Compute::F32   ? scan.operator()<float>()
         : a.type == Compute::F64 ? scan.operator()<double>()
                                  : scan.operator()<int64_t>();
}

/// A program of about `steps` random steps over all types.
inline BlockProgram random_program(int steps, Random& random) {
  BlockProgram p;
  for (uint64_t i = 0, count = 1 + random() % 4; i < count; ++i)
    p.inputs.push_back(kComputes[random() % 3]);
  for (uint64_t i = 0, count = random() % 3; i < count; ++i)
    p.scalars.push_back(kComputes[random() % 3]);
  auto registers = [&] {
    return static_cast<int32_t>(p.inputs.size() + p.scalars.size() + p.steps.size());
  };
  auto pick = [&] { return static_cast<int32_t>(random() % static_cast<uint64_t>(registers())); };
  while (p.steps.size() < static_cast<size_t>(steps)) {
    const int32_t base = random() % 2 ? registers() - 1 : pick();
    const Compute compute = p.type_of(base);
    if (random() % 5 == 0) {
      p.steps.push_back(convert_step(compute, static_cast<DType>(random() % kDTypeCount),
                                     kComputes[random() % 3], base));
      continue;
    }
    const int op = static_cast<int>(random() % static_cast<uint64_t>(op_count()));
    if (!op_exists(op, compute)) continue;
    Step step = op_step(op, compute, {});
    step.arity = static_cast<int16_t>(op_arity(op));
    for (int k = 0; k < step.arity; ++k) {
      int32_t operand = pick();
      for (int tries = 0; tries < 8 && p.type_of(operand) != compute; ++tries) operand = pick();
      step.operands[k] = p.type_of(operand) == compute ? operand : base;
    }
    step.operands[random() % static_cast<uint64_t>(step.arity)] = base;
    p.steps.push_back(step);
  }
  p.outputs.push_back(registers() - 1);
  for (uint64_t i = 0, count = random() % 3; i < count; ++i) p.outputs.push_back(pick());
  return p;
}

/// Inputs, outputs and scalars of one call.
struct Arguments {
  int64_t n;
  std::vector<Block> in, out;
  Block scalars{Compute::I64};
  std::vector<const void*> in_pointers;
  std::vector<void*> out_pointers;

  Arguments(const BlockProgram& p, int64_t count, uint64_t seed) : n(count) {
    Random random(seed);
    for (Compute c : p.inputs) in.push_back(random_block(c, n, random));
    for (int32_t reg : p.outputs) out.emplace_back(p.type_of(reg), n);
    for (Compute c : p.scalars) scalars.words.push_back(random_block(c, 1, random).words[0]);
    for (Block& b : in) in_pointers.push_back(b.data());
    for (Block& b : out) out_pointers.push_back(b.data());
  }
  Arguments(const Arguments&) = delete;
};

}  // namespace grapnel::codegen
