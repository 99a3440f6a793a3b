#include "grapnel/codegen/llvm_module.h"

#include "grapnel/base/error.h"
#include "grapnel/base/module_file.h"

namespace grapnel::codegen {
namespace {

constexpr char kFileName[] = "libgrapnel_llvm.so";

const LlvmApi* api_of(void* symbol) {
  return reinterpret_cast<LlvmApiFn>(symbol)(llvm_api_version());
}

bool fits(void* symbol) { return api_of(symbol) != nullptr; }

LlvmModule load() {
  const base::LoadedModule module =
      base::load_module(kFileName, "GRAPNEL_LLVM_LIBRARY", kLlvmApiSymbol, &fits);
  if (module.symbol) return {api_of(module.symbol), ""};
  return {nullptr, str("LLVM's module ", kFileName, " could not be loaded:\n", module.problem,
                       "Put the file beside libgrapnel, or set GRAPNEL_LLVM_LIBRARY to its path.")};
}

}  // namespace

const LlvmModule& llvm_module() {
  static const LlvmModule* const module = new LlvmModule(load());
  return *module;
}

}  // namespace grapnel::codegen
