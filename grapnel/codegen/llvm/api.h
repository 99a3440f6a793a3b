/// The border between libgrapnel and the module that holds LLVM.
///
/// Plain data and functions that never throw, so that neither side needs the other's symbols, C++
/// runtime or allocator. The one exported symbol of the module is `grapnel_llvm_api`.
#pragma once

#include <cstddef>
#include <cstdint>

#include "grapnel/base/cpu.h"
#include "grapnel/codegen/block_program.h"
#include "grapnel/codegen/op_names.h"
#include "grapnel/cpu/kernels/table.h"

namespace grapnel::codegen {

inline constexpr char kLlvmApiSymbol[] = "grapnel_llvm_api";

/// A BlockProgram without its containers.
struct ProgramView {
  const Compute* inputs;
  const Compute* scalars;
  const BlockProgram::Step* steps;
  const int32_t* outputs;
  int32_t input_count, scalar_count, step_count, output_count;
  bool streams;
  const int16_t* reductions;
  int32_t reduction_count;
  const DType* stored;  ///< one for each input, or null
};

/// Takes bytes out of the module.
struct Sink {
  void* context;
  void (*write)(void* context, const char* data, size_t size);
};

struct LlvmApi {
  const char* llvm_version;
  const char* identity;  ///< differs between modules that may generate different code

  /// Machine code of a program, as an object file. False: the error is what went wrong.
  bool (*compile)(const ProgramView& program, base::Isa isa, Sink object, Sink error);
  /// The same program as LLVM's text, before anything that depends on the processor is done to it.
  bool (*print)(const ProgramView& program, base::Isa isa, Sink text, Sink error);
  /// Brings an object into memory; heavy ops in it call the kernels of `table`. The handle ends in
  /// `unlink`.
  bool (*link)(const char* object, size_t size, const kernels::KernelTable& table, BlockFn* fn,
               void** handle, Sink error);
  void (*unlink)(void* handle);
  /// For tests: an internal error of LLVM. It comes back as an error; the module refuses all
  /// further work.
  bool (*provoke)(Sink error);
};

/// Tells apart libraries and modules that do not fit: it follows from the lists of ops, whose
/// numbers stand in programs, and from the sizes of what crosses the border. A change that these do
/// not show takes another first number.
inline uint32_t llvm_api_version() {
  uint32_t version = 7;
  for (const size_t part : {size_t{ops_fingerprint()}, sizeof(LlvmApi), sizeof(ProgramView),
                            sizeof(BlockProgram::Step), sizeof(kernels::KernelTable)})
    version = (version ^ static_cast<uint32_t>(part)) * 0x01000193u;
  return version;
}

/// The module's table, or null if it was built for another version.
using LlvmApiFn = const LlvmApi* (*)(uint32_t version);

}  // namespace grapnel::codegen
