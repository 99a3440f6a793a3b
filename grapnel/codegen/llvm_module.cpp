#include "grapnel/codegen/llvm_module.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "grapnel/base/error.h"
#include "grapnel/codegen/op_names.h"

namespace grapnel::codegen {
namespace {

constexpr char kFileName[] = "libgrapnel_llvm.so";

/// The folder of the shared library or program that this code is in.
std::filesystem::path own_folder() {
  Dl_info info;
  if (!dladdr(reinterpret_cast<const void*>(&llvm_module), &info) || !info.dli_fname) return {};
  std::error_code ignored;
  return std::filesystem::canonical(info.dli_fname, ignored).parent_path();
}

std::vector<std::string> candidates() {
  if (const char* wish = std::getenv("GRAPNEL_LLVM_LIBRARY"); wish && *wish) return {wish};
  std::vector<std::string> files;
  if (const std::filesystem::path here = own_folder(); !here.empty()) {
    files.push_back(here / kFileName);
    files.push_back(here.parent_path() / "grapnel" / kFileName);  // a program in the build tree
    files.push_back(here.parent_path() / GRAPNEL_LIBDIR / kFileName);
  }
  files.push_back(std::string(GRAPNEL_FULL_LIBDIR "/") + kFileName);
  files.push_back(kFileName);  // wherever the system looks
  return files;
}

/// The table of one file, or null and one line on what is wrong with it.
const LlvmApi* open(const std::string& file, std::string& problem) {
  void* module = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!module) {
    const char* why = dlerror();
    problem = str("  ", why ? why : file.c_str(), "\n");
    return nullptr;
  }
  const auto get = reinterpret_cast<LlvmApiFn>(dlsym(module, kLlvmApiSymbol));
  const LlvmApi* api = get ? get(kLlvmApiVersion) : nullptr;
  if (api && api->op_count == static_cast<uint32_t>(op_count())) return api;
  dlclose(module);
  problem = str("  ", file, ": is of another version of Grapnel\n");
  return nullptr;
}

LlvmModule load() {
  std::string problems;
  for (const std::string& file : candidates()) {
    std::string problem;
    if (const LlvmApi* api = open(file, problem)) return {api, ""};
    problems += problem;
  }
  return {nullptr, str("LLVM's module ", kFileName, " could not be loaded:\n", problems,
                       "Put the file beside libgrapnel, or set GRAPNEL_LLVM_LIBRARY to its path.")};
}

}  // namespace

const LlvmModule& llvm_module() {
  static const LlvmModule* const module = new LlvmModule(load());
  return *module;
}

}  // namespace grapnel::codegen
