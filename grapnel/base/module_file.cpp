#include "grapnel/base/module_file.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

namespace grapnel::base {

namespace {

std::vector<std::string> candidates(const std::string& file, const char* environment_variable) {
  if (const char* wish = std::getenv(environment_variable); wish && *wish) return {wish};
  std::vector<std::string> files;
  Dl_info info;
  std::error_code ignored;
  if (dladdr(reinterpret_cast<const void*>(&load_module), &info) && info.dli_fname) {
    const std::filesystem::path here =
        std::filesystem::canonical(info.dli_fname, ignored).parent_path();
    files.push_back(here / file);
    files.push_back(here.parent_path() / "grapnel" / file);  // a program in the build tree
    files.push_back(here.parent_path() / GRAPNEL_LIBDIR / file);
  }
  files.push_back(std::string(GRAPNEL_FULL_LIBDIR "/") + file);
  files.push_back(file);
  return files;
}

}  // namespace

LoadedModule load_module(const std::string& file, const char* environment_variable,
                         const char* symbol, bool (*accept)(void* symbol)) {
  LoadedModule out;
  for (const std::string& path : candidates(file, environment_variable)) {
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
