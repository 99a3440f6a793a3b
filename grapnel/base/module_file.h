/// Modules: parts of the library that are loaded on first use, because they bring large
/// dependencies along.
#pragma once

#include <string>

namespace grapnel::base {

struct LoadedModule {
  void* symbol = nullptr;  ///< null if the module could not be loaded
  std::string problem;     ///< then: what was tried and what was wrong with it
};

/// Loads `file` and looks `symbol` up in it. Looked for in the file that the environment variable
/// names, beside the library or program that this code is in, where it was installed, and where the
/// system looks. Only a module whose symbol `accept` likes will do. It stays loaded.
LoadedModule load_module(const std::string& file, const char* environment_variable,
                         const char* symbol, bool (*accept)(void* symbol) = nullptr);

}  // namespace grapnel::base
