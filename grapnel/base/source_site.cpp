#include "grapnel/base/source_site.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "grapnel/base/at_fork.h"
#include "grapnel/base/error.h"

namespace grapnel::base {
namespace {

std::string demangled(const char* symbol) {
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(symbol, nullptr, nullptr, nullptr), &std::free);
  return name != nullptr ? name.get() : symbol;
}

std::string in_module(const char* symbol, uint64_t offset, const char* module) {
  return str(demangled(symbol), "+0x", std::hex, offset, " in ", module);
}

// What the dynamic loader knows: exported symbols, even if the files are gone or cannot be read.
std::string describe_by_loader(uintptr_t return_address) {
  Dl_info info = {};
  if (::dladdr(reinterpret_cast<const void*>(return_address - 1), &info) == 0 ||
      info.dli_sname == nullptr) {
    return str(reinterpret_cast<const void*>(return_address));
  }
  return in_module(info.dli_sname, return_address - reinterpret_cast<uintptr_t>(info.dli_saddr),
                   info.dli_fname);
}

// The debug information of this process. Built at the first question and kept, since loading it is
// what takes time.
class Symbolizer {
 public:
  std::string describe(const void* return_address) {
    const std::lock_guard lock(mutex_);
    std::string& known = known_[return_address];
    if (known.empty()) known = look_up(reinterpret_cast<uintptr_t>(return_address));
    return known;
  }

 private:
  std::string look_up(uintptr_t return_address) {
    // The call ends where it returns to, and the byte before still belongs to its line.
    const uintptr_t call = return_address - 1;
    Dwfl_Module* const module = module_of(call);
    if (module == nullptr) return describe_by_loader(return_address);
    GElf_Off offset = 0;
    GElf_Sym symbol = {};
    const char* const name =
        ::dwfl_module_addrinfo(module, call, &offset, &symbol, nullptr, nullptr, nullptr);
    const std::string line = line_of(module, call);
    if (!line.empty()) return name != nullptr ? str(line, " (", demangled(name), ")") : line;
    return name != nullptr ? in_module(name, offset + 1, module_file(module))
                           : describe_by_loader(return_address);
  }

  // "file:line", or nothing.
  static std::string line_of(Dwfl_Module* module, uintptr_t address) {
    Dwarf_Addr bias = 0;
    Dwarf_Die* unit = ::dwfl_module_addrdie(module, address, &bias);
    // That looks into a table of addresses which Clang does not write, and takes code without lines
    // for part of the unit around it. In doubt every unit is asked.
    if (unit == nullptr || ::dwarf_haspc(unit, address - bias) != 1) {
      unit = nullptr;
      while ((unit = ::dwfl_module_nextcu(module, unit, &bias)) != nullptr) {
        if (::dwarf_haspc(unit, address - bias) == 1) break;
      }
    }
    Dwarf_Line* const line = unit != nullptr ? ::dwarf_getsrc_die(unit, address - bias) : nullptr;
    int number = 0;
    if (line == nullptr || ::dwarf_lineno(line, &number) != 0 || number == 0) return {};
    const char* const file = ::dwarf_linesrc(line, nullptr, nullptr);
    return file != nullptr ? str(file, ":", number) : std::string();
  }

  static const char* module_file(Dwfl_Module* module) {
    return ::dwfl_module_info(module, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
                              nullptr);
  }

  Dwfl_Module* module_of(uintptr_t address) {
    if (session_ == nullptr) {
      session_ = ::dwfl_begin(&callbacks_);
      if (session_ == nullptr) return nullptr;
    } else if (Dwfl_Module* const module = ::dwfl_addrmodule(session_, address)) {
      return module;
    }
    // The first question, or a library that was loaded since: see what is mapped now.
    ::dwfl_report_begin(session_);
    const bool ok = ::dwfl_linux_proc_report(session_, ::getpid()) == 0;
    ::dwfl_report_end(session_, nullptr, nullptr);
    return ok ? ::dwfl_addrmodule(session_, address) : nullptr;
  }

  // Separate debug files are found by build id, on this machine only: the standard search may go on
  // to ask a server on the network, and a message must not wait for one.
  char* debug_path_ = nullptr;
  const Dwfl_Callbacks callbacks_ = {.find_elf = ::dwfl_linux_proc_find_elf,
                                     .find_debuginfo = ::dwfl_build_id_find_debuginfo,
                                     .section_address = nullptr,
                                     .debuginfo_path = &debug_path_};
  ProcessMutex mutex_{ForkOrder::places};
  Dwfl* session_ = nullptr;
  std::unordered_map<const void*, std::string> known_;
};

}  // namespace

constinit thread_local const void* call_site [[gnu::tls_model("initial-exec")]] = nullptr;

std::string describe(SourceSite site) {
  if (site.address == nullptr) return "an unknown place";
  // Never destroyed: messages are also printed during static destruction.
  static Symbolizer& symbolizer = *new Symbolizer;
  return symbolizer.describe(site.address);
}

}  // namespace grapnel::base
