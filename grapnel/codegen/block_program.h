/// BlockProgram: straight-line pointwise arithmetic on blocks of values, the unit that becomes one
/// kernel.
///
/// A block is a contiguous run of values of one compute type (f32, f64, i64). Whoever runs a
/// program brings its inputs into that form (strided, broadcast and most narrow operands are staged
/// in the first-level cache) and takes its outputs from it, so a program knows no shapes or strides
/// and serves every size. Two implementations give the same bits: `interpret` calls
/// the eager kernels step by step, `Jit` turns the whole program into machine code.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "grapnel/tensor/dtype.h"

namespace grapnel::codegen {

/// Kernels are called with a number of values that is a multiple of this; reductions have as many
/// lanes.
inline constexpr int64_t kLanes = 64;
/// Of the outputs of a program that streams, in bytes.
inline constexpr uintptr_t kStreamAlignment = 64;

struct BlockProgram {
  /// One instruction. Its result is register `inputs.size() + scalars.size() + its position in
  /// steps`.
  struct Step {
    enum class Kind : uint8_t {
      op,  ///< pointwise op number `op` of PointwiseOps; all operands and the result are of type
           ///< `compute`
      convert,  ///< operand 0, of type `from`, as it would be after a store to `via` and a load as
                ///< `compute`
    };
    Kind kind = Kind::op;
    Compute compute = Compute::F32;
    Compute from = Compute::F32;
    DType via = DType::Float32;
    int16_t op = -1;
    int16_t arity = 0;
    int32_t operands[4] = {-1, -1, -1, -1};  ///< registers
    friend bool operator==(const Step&, const Step&) = default;
  };

  std::vector<Compute> inputs;   ///< registers 0 ... : one block each
  std::vector<Compute> scalars;  ///< the registers that follow: one value for all lanes
  std::vector<Step> steps;
  /// Registers that are stored, one block each; any register, also an input.
  std::vector<int32_t> outputs;
  /// Outputs go past the caches, for results that are too large to find there again. They are then
  /// aligned to kStreamAlignment and lie over no input. The values are the same.
  bool streams = false;
  /// The last outputs are not stored but reduced, each by one of ReductionOps: value i is combined
  /// with value i % kLanes of the output, which are the lanes of Note [Reduction tree]. There is
  /// machine code for that only, no interpreter.
  std::vector<int16_t> reductions = {};
  /// The types that inputs have in memory, where some are narrow; empty if none is.
  std::vector<DType> stored = {};

  DType stored_as(size_t input) const {
    return stored.empty() ? dtype_of(inputs[input]) : stored[input];
  }
  Compute type_of(int32_t reg) const;
  /// A text that is equal for equal programs and names ops by name, so that it holds across builds.
  /// Keys of kernels on disk.
  std::string str() const;
  friend bool operator==(const BlockProgram&, const BlockProgram&) = default;
};

/// Whether programs read values of this type as they lie in memory.
inline bool reads_directly(DType stored, Compute compute) {
  return stored == dtype_of(compute) ||
         (compute == Compute::F32 &&
          (stored == DType::Bool || stored == DType::UInt8 || stored == DType::BFloat16));
}

/// How a kernel walks an input: those bits of a position that it looks at.
enum class Walk : int64_t {
  along = -1,  ///< the input has as many values as the block
  stay = 0,    ///< it has kLanes values, which are taken again and again: the same for all lanes
};

/// Machine code of a program. `in`, `out`: one pointer per input and output, to n values each,
/// aligned to their type; an output may be the very block of an input of the same type, but they
/// never overlap otherwise. `walks`: one per input. `scalars`: 8 bytes per scalar, the value in its
/// first bytes.
using BlockFn = void (*)(const void* const* in, const Walk* walks, void* const* out,
                         const void* scalars, int64_t n);

/// Throws InternalError unless every register is written before it is read and has the type its
/// reader expects.
void verify(const BlockProgram& program);

/// Runs the program with the eager kernels, any n.
void interpret(const BlockProgram& program, const void* const* in, void* const* out,
               const void* scalars, int64_t n);

}  // namespace grapnel::codegen
