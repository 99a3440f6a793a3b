#include "grapnel/base/symbolizer.h"

#include <dlfcn.h>
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>
#include <unistd.h>
#include <unwind.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "grapnel/base/at_fork.h"
#include "grapnel/base/error.h"
#include "grapnel/base/short_name.h"

namespace grapnel::base {
namespace {

constexpr std::string_view kFolders[] = {
    "autograd",  "base",  "capture", "codegen", "compat", "compile", "cpu",   "data",   "dist",
    "functions", "hooks", "io",      "math",    "nn",     "ops",     "optim", "tensor", "train"};

bool begins_with_a_folder(std::string_view path) {
  return std::ranges::any_of(kFolders, [&](std::string_view folder) {
    return path.starts_with(folder) && path.substr(folder.size()).starts_with('/');
  });
}

/// Where the library's sources lay when it was compiled.
std::string_view source_root() {
  constexpr std::string_view here = __FILE__;
  constexpr std::string_view tail = "base/symbolizer.cpp";
  return here.ends_with(tail) ? here.substr(0, here.size() - tail.size()) : here;
}

/// Named like a source of the library, wherever it lies.
bool looks_librarys(std::string_view file) {
  const size_t at = file.rfind("/grapnel/");
  return at != file.npos && begins_with_a_folder(file.substr(at + 9));
}
/// A source of the library, or one of its headers, which may be installed anywhere.
bool is_librarys(std::string_view file) {
  if (file.starts_with(source_root()) && begins_with_a_folder(file.substr(source_root().size())))
    return true;
  return file.ends_with(".h") && looks_librarys(file);
}
bool is_outside(std::string_view file) {
  return !is_librarys(file) && file.find("/include/c++/") == file.npos;
}

/// For code without lines: what its mangled name tells.
bool is_users_symbol(std::string_view symbol) {
  for (const std::string_view prefix :
       {"_ZN7grapnel", "_ZNK7grapnel", "_ZZN7grapnel", "_ZZNK7grapnel", "_ZNSt", "_ZNKSt", "_ZSt"})
    if (symbol.starts_with(prefix)) return false;
  return symbol != "_start";
}
std::string_view file_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }
/// Below the library and its user.
bool is_systems_module(std::string_view path) {
  for (const std::string_view prefix :
       {"libc.", "libc-", "libstdc++", "libc++", "libpthread", "libgcc_s", "ld-linux", "libtsan",
        "libasan", "libubsan", "linux-vdso", "[vdso"})
    if (file_name(path).starts_with(prefix)) return true;
  return false;
}
bool is_users_module(std::string_view path) {
  return !is_systems_module(path) && !file_name(path).starts_with("libgrapnel");
}

std::string in_module(const char* symbol, uint64_t offset, const char* module) {
  const bool mangled = std::string_view(symbol).starts_with("_Z");
  return str(mangled ? short_function_name(symbol) : symbol, "+0x", std::hex, offset, " in ",
             module);
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

/// What only carries a failure out: it is its caller who fails.
bool is_messenger(std::string_view file) {
  for (const std::string_view name : {"base/error.h", "base/error_kinds.h", "base/error.cpp",
                                      "base/place.cpp", "base/symbolizer.cpp", "compat/c10.h"})
    if (file.ends_with(name)) return is_librarys(file) || looks_librarys(file);
  return false;
}
bool is_messengers_symbol(std::string_view symbol) {
  for (const std::string_view prefix :
       {"_ZN7grapnel4fail", "_ZN7grapnel6compat12check_failed", "_ZN7grapnel4base11throw_error",
        "_ZN7grapnel7fail_as", "_ZN7grapnel4base6placed", "_ZN7grapnel4base10with_place",
        "_ZN7grapnel4base12_GLOBAL__N_114describe_stack", "_ZN7grapnel4base16describe_failure"})
    if (symbol.starts_with(prefix)) return true;
  return false;
}

/// What is known of the code at an address.
struct Place {
  bool outside = false;    ///< some of it is not the library's
  bool messenger = false;  ///< it is not the one who fails
  bool own = false;        ///< if it fails, that is the user's own
  std::string text;
};

// The debug information of this process. Built at the first question and kept, since loading it is
// what takes time.
class Symbolizer {
 public:
  std::string describe(const void* return_address) {
    const std::lock_guard lock(mutex_);
    std::string& known = described_[return_address];
    if (known.empty()) known = look_up(reinterpret_cast<uintptr_t>(return_address), false).text;
    return known;
  }
  std::string first_outside(std::span<const void* const> addresses, bool unless_own) {
    const std::lock_guard lock(mutex_);
    for (const void* const address : addresses) {
      const auto [known, fresh] = places_.try_emplace(address);
      Place& place = known->second;
      if (fresh) place = look_up(reinterpret_cast<uintptr_t>(address), true);
      if (unless_own && place.own) return {};
      unless_own = unless_own && place.messenger;
      if (place.outside) return place.text;
    }
    return {};
  }

 private:
  /// `outside_only`: the text is not asked for if all of it is the library's.
  Place look_up(uintptr_t return_address, bool outside_only) {
    // The call ends where it returns to, and the byte before still belongs to its line.
    const uintptr_t call = return_address - 1;
    Dwfl_Module* const module = module_of(call);
    if (module == nullptr) return {.text = describe_by_loader(return_address)};
    Dwarf_Addr bias = 0;
    Dwarf_Die* const unit = unit_of(module, call, &bias);
    if (unit != nullptr) {
      // In a source of the library there is nothing of the user's, whatever was inlined.
      const char* const source = ::dwarf_diename(unit);
      const bool librarys = source != nullptr && is_library_unit(module, source, call);
      if (librarys && outside_only) return {.messenger = is_messenger(source), .text = {}};
      // The C library has lines where its debug information is installed.
      if (outside_only && is_systems_module(module_file(module))) return {};
      if (Place place = by_lines(unit, call - bias, librarys); !place.text.empty()) {
        if (place.text.find(" (") == std::string::npos)
          if (const char* const name = ::dwfl_module_addrname(module, call))
            place.text += str(" (", short_function_name(name), ")");
        return place;
      }
    }
    GElf_Off offset = 0;
    GElf_Sym symbol = {};
    const char* const name =
        ::dwfl_module_addrinfo(module, call, &offset, &symbol, nullptr, nullptr, nullptr);
    if (name == nullptr) return {.text = describe_by_loader(return_address)};
    const char* const file = module_file(module);
    const bool users = is_users_symbol(name) && is_users_module(file);
    return {users, is_messengers_symbol(name), users, in_module(name, offset + 1, file)};
  }

  /// Objects that a compiler cache moved here name the place where they were made. There the
  /// namespace decides.
  static bool is_library_unit(Dwfl_Module* module, std::string_view source, uintptr_t address) {
    if (is_librarys(source) || !looks_librarys(source)) return is_librarys(source);
    const char* const name = ::dwfl_module_addrname(module, address);
    return name != nullptr && !is_users_symbol(name);
  }

  static Dwarf_Die* unit_of(Dwfl_Module* module, uintptr_t address, Dwarf_Addr* bias) {
    Dwarf_Die* unit = ::dwfl_module_addrdie(module, address, bias);
    // That looks into a table of addresses which Clang does not write, and takes code without lines
    // for part of the unit around it. In doubt every unit is asked.
    if (unit != nullptr && ::dwarf_haspc(unit, address - *bias) == 1) return unit;
    unit = nullptr;
    while ((unit = ::dwfl_module_nextcu(module, unit, bias)) != nullptr)
      if (::dwarf_haspc(unit, address - *bias) == 1) break;
    return unit;
  }

  /// "file:line (function)" of the nearest of the inlined calls around an address that is outside
  /// the library, else of the innermost. The function is left out where only a symbol names it.
  static Place by_lines(Dwarf_Die* unit, Dwarf_Addr address, bool librarys) {
    Dwarf_Line* const line = ::dwarf_getsrc_die(unit, address);
    int number = 0;
    const char* file = line != nullptr && ::dwarf_lineno(line, &number) == 0 && number != 0
                           ? ::dwarf_linesrc(line, nullptr, nullptr)
                           : nullptr;
    if (file == nullptr) return {};
    std::string innermost = str(file, ":", number);
    if (librarys) return {.text = std::move(innermost)};
    std::vector<Dwarf_Die> found = scopes_of(unit, address);
    const size_t count = found.size();
    bool messenger = is_messenger(file);
    for (size_t i = 0; i < count && !is_outside(file); ++i) {
      if (::dwarf_tag(&found[i]) == DW_TAG_subprogram) break;
      if (::dwarf_tag(&found[i]) != DW_TAG_inlined_subroutine) continue;
      if (!call_of(unit, &found[i], &file, &number)) break;
      if (is_outside(file)) {
        std::string text = str(file, ":", number);
        for (size_t k = i + 1; k < count; ++k)
          if (const int tag = ::dwarf_tag(&found[k]); tag == DW_TAG_inlined_subroutine) {
            text += function_of(&found[k]);
            break;
          } else if (tag == DW_TAG_subprogram) {
            break;
          }
        return {true, false, messenger, std::move(text)};
      }
      messenger = messenger && is_messenger(file);
    }
    if (!is_outside(file)) return {.messenger = messenger, .text = std::move(innermost)};
    for (size_t i = 0; i < count; ++i)
      if (const int tag = ::dwarf_tag(&found[i]); tag == DW_TAG_inlined_subroutine)
        return {true, false, true, innermost + function_of(&found[i])};
      else if (tag == DW_TAG_subprogram) break;
    return {true, false, true, std::move(innermost)};
  }

  /// What the code at an address was inlined into, innermost first.
  static std::vector<Dwarf_Die> scopes_of(Dwarf_Die* unit, Dwarf_Addr address) {
    using List = std::unique_ptr<Dwarf_Die, decltype(&std::free)>;
    Dwarf_Die* found = nullptr;
    if (::dwarf_getscopes(unit, address, &found) <= 0) return {};
    const List lexical(found, &std::free);
    // Behind an inlined function that list goes on with the scopes that it was written in, not with
    // those that it was inlined into.
    found = nullptr;
    const int count = ::dwarf_getscopes_die(&lexical.get()[0], &found);
    const List around(found, &std::free);
    return count <= 0 ? std::vector<Dwarf_Die>() : std::vector<Dwarf_Die>(found, found + count);
  }

  /// The place where an inlined function was called.
  static bool call_of(Dwarf_Die* unit, Dwarf_Die* inlined, const char** file, int* number) {
    Dwarf_Attribute attribute;
    Dwarf_Word index = 0, line = 0;
    Dwarf_Files* files = nullptr;
    if (::dwarf_formudata(::dwarf_attr(inlined, DW_AT_call_file, &attribute), &index) != 0 ||
        ::dwarf_formudata(::dwarf_attr(inlined, DW_AT_call_line, &attribute), &line) != 0 ||
        ::dwarf_getsrcfiles(unit, &files, nullptr) != 0)
      return false;
    const char* const name = ::dwarf_filesrc(files, index, nullptr, nullptr);
    if (name == nullptr) return false;
    *file = name;
    *number = static_cast<int>(line);
    return true;
  }

  static std::string function_of(Dwarf_Die* scope) {
    Dwarf_Attribute attribute;
    const char* mangled =
        ::dwarf_formstring(::dwarf_attr_integrate(scope, DW_AT_linkage_name, &attribute));
    const char* const name = mangled != nullptr ? mangled : ::dwarf_diename(scope);
    if (name == nullptr) return {};
    // A lambda has no mangled name here, and its own lists what it was instantiated with.
    const bool lambda = mangled == nullptr && std::string_view(name).starts_with("operator()");
    return lambda ? " (lambda)" : str(" (", short_function_name(name), ")");
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
  std::unordered_map<const void*, std::string> described_;
  std::unordered_map<const void*, Place> places_;
};

Symbolizer& symbolizer() {
  // Never destroyed: messages are also printed during static destruction.
  static Symbolizer& one = *new Symbolizer;
  return one;
}

/// Return addresses of this thread's stack, innermost first.
struct Stack {
  std::array<const void*, 128> addresses;
  size_t count = 0;

  static _Unwind_Reason_Code add(_Unwind_Context* context, void* self) {
    Stack& stack = *static_cast<Stack*>(self);
    if (stack.count == stack.addresses.size()) return _URC_END_OF_STACK;
    const uintptr_t address = ::_Unwind_GetIP(context);
    if (address != 0) stack.addresses[stack.count++] = reinterpret_cast<const void*>(address);
    return _URC_NO_REASON;
  }
};

}  // namespace

std::string describe_address(const void* return_address) {
  return symbolizer().describe(return_address);
}

namespace {
std::string describe_stack(bool unless_own) {
  Stack stack;
  ::_Unwind_Backtrace(&Stack::add, &stack);
  return symbolizer().first_outside({stack.addresses.data(), stack.count}, unless_own);
}
}  // namespace

std::string describe_caller() { return describe_stack(false); }
std::string describe_failure() { return describe_stack(true); }

}  // namespace grapnel::base
