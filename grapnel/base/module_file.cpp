#include "grapnel/base/module_file.h"

#include <dlfcn.h>
#include <link.h>

#include <filesystem>
#include <utility>
#include <vector>

#include "grapnel/base/trusted_file.h"

namespace grapnel::base {

namespace {

struct Candidate {
  std::string path;
  bool guessed = false;  ///< see Note [Guessed paths] in trusted_file.h
};

/// The file that this code is in: the shared library, or the program, whose first argument is
/// whatever its caller chose.
std::filesystem::path own_file() {
  Dl_info info;
  void* found = nullptr;
  std::error_code ignored;
  if (!dladdr1(reinterpret_cast<const void*>(&load_module), &info, &found, RTLD_DL_LINKMAP) ||
      !found)
    return {};
  const char* const name = static_cast<const link_map*>(found)->l_name;
  return std::filesystem::canonical(name && *name ? name : "/proc/self/exe", ignored);
}

std::vector<Candidate> candidates(const std::string& file, const char* environment_variable) {
  if (const char* wish = trusted_environment(environment_variable); wish && *wish) return {{wish}};
  std::vector<Candidate> out;
  if (const std::filesystem::path own = own_file(); !own.empty())
    out.push_back({own.parent_path() / file, true});
  // Where the loader looks: LD_LIBRARY_PATH, the folders that were named when this was linked, and
  // those of the system.
  out.push_back({file});
  out.push_back({std::string(GRAPNEL_FULL_LIBDIR "/") + file, true});
  return out;
}

}  // namespace

LoadedModule load_module(const std::string& file, const char* environment_variable,
                         const char* symbol, bool (*accept)(void* symbol)) {
  LoadedModule out;
  for (const auto& [path, guessed] : candidates(file, environment_variable)) {
    // Loading runs code of the file, so this is asked before.
    if (const std::string why = guessed ? why_untrusted(path) : ""; !why.empty()) {
      out.problem += "  " + path + ": " + why + "\n";
      continue;
    }
    void* const module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    void* const found = module ? dlsym(module, symbol) : nullptr;
    if (found && (!accept || accept(found))) {
      out.symbol = found;
      return out;
    }
    const char* const why = dlerror();
    out.problem += module ? "  " + path + ": is of another version of Grapnel\n"
                          : std::string("  ") + (why ? why : path.c_str()) + "\n";
    if (module) dlclose(module);
  }
  return out;
}

}  // namespace grapnel::base
