/// Modules: parts of the library that are loaded on first use, because they bring large
/// dependencies along.
#pragma once

#include <string>

namespace grapnel::base {

struct LoadedModule {
  void* symbol = nullptr;  ///< null if the module could not be loaded
  std::string problem;     ///< then: what was tried and what was wrong with it
};

/// Loads `file` and looks `symbol` up in it. If the environment variable names a file, it is that
/// one or none. Otherwise it is looked for beside the library or program that this code is in,
/// where the loader looks for libraries, and where it was installed; the first and the last only if
/// nobody else can have put it there: Note [Guessed paths] in trusted_file.h. Only a module whose
/// symbol `accept` likes will do. It stays loaded.
LoadedModule load_module(const std::string& file, const char* environment_variable,
                         const char* symbol, bool (*accept)(void* symbol) = nullptr);

}  // namespace grapnel::base
