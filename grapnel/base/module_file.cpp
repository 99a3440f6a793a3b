#include "grapnel/base/module_file.h"

#include <dlfcn.h>
#include <link.h>

#include <cstddef>
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

/// What this code is in, as the loader knows it: a shared library by its name, the program by none.
/// (Its first argument is whatever its caller chose.)
const char* own_name() {
  Dl_info info;
  void* found = nullptr;
  const bool known =
      dladdr1(reinterpret_cast<const void*>(&load_module), &info, &found, RTLD_DL_LINKMAP) != 0;
  const char* const name = known && found ? static_cast<const link_map*>(found)->l_name : nullptr;
  return name && *name ? name : nullptr;
}

/// Where the loader looks for libraries that this code asks for, in its order. It would look there
/// itself; but a sanitizer that stands in for dlopen makes it look where the sanitizer is from.
std::vector<std::string> loader_folders() {
  std::vector<std::string> out;
  void* const self = dlopen(own_name(), RTLD_LAZY | RTLD_NOLOAD);
  Dl_serinfo size;
  if (!self) return out;
  if (dlinfo(self, RTLD_DI_SERINFOSIZE, &size) == 0) {
    std::vector<std::max_align_t> memory(size.dls_size / sizeof(std::max_align_t) + 1);
    auto* const list = reinterpret_cast<Dl_serinfo*>(memory.data());
    list->dls_size = size.dls_size, list->dls_cnt = size.dls_cnt;
    if (dlinfo(self, RTLD_DI_SERINFO, list) == 0)
      for (unsigned i = 0; i < list->dls_cnt; ++i) {
        const char* const name = list->dls_serpath[i].dls_name;
        if (name && *name == '/') out.emplace_back(name);
      }
  }
  dlclose(self);
  return out;
}

std::vector<Candidate> candidates(const std::string& file, const char* environment_variable) {
  if (const char* wish = trusted_environment(environment_variable); wish && *wish) return {{wish}};
  std::vector<Candidate> out;
  std::error_code ignored;
  const char* const name = own_name();
  const auto own = std::filesystem::canonical(name ? name : "/proc/self/exe", ignored);
  if (!own.empty()) out.push_back({own.parent_path() / file, true});
  // LD_LIBRARY_PATH, the folders that were named when this was linked, and those of the system.
  for (const std::string& folder : loader_folders())
    if (const std::string path = folder + "/" + file; std::filesystem::exists(path, ignored))
      out.push_back({path});
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
