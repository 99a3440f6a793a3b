/// Finds and loads libgrapnel_llvm.so.
#pragma once

#include <string>

#include "grapnel/codegen/llvm/api.h"

namespace grapnel::codegen {

struct LlvmModule {
  const LlvmApi* api = nullptr;  ///< null if there is none
  std::string problem;           ///< then: where it was looked for, and what to do
};

/// Loads the module on the first call.
const LlvmModule& llvm_module();

}  // namespace grapnel::codegen
