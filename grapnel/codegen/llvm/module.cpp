/// What libgrapnel_llvm.so offers.
#include <elf.h>
#include <link.h>
#include <llvm/ADT/StringExtras.h>
#include <llvm/Config/llvm-config.h>
#include <llvm/Support/ErrorHandling.h>

#include "grapnel/codegen/llvm/api.h"
#include "grapnel/codegen/llvm/compile.h"
#include "grapnel/codegen/llvm/guard.h"
#include "grapnel/codegen/llvm/link.h"

// The start of this module in memory, where its ELF header lies; defined by the linker.
extern "C" __attribute__((visibility("hidden"))) const char __ehdr_start[];

// LLVM's static objects, which it makes as it goes, are never destroyed: a kernel may still be in
// the making when the program ends, and no order of exit handlers would be right for objects that
// come into being after it was chosen.
extern "C" __attribute__((visibility("hidden"))) int __cxa_atexit(void (*)(void*), void*, void*) {
  return 0;
}

namespace grapnel::codegen {
namespace {

/// The build id, which the linker computes from all that the module contains.
std::string build_id() {
  const char* start = __ehdr_start;
  const auto& header = *reinterpret_cast<const ElfW(Ehdr)*>(start);
  const auto* segments = reinterpret_cast<const ElfW(Phdr)*>(start + header.e_phoff);
  auto padded = [](size_t size) { return (size + 3) / 4 * 4; };
  for (int i = 0; i < header.e_phnum; ++i) {
    if (segments[i].p_type != PT_NOTE) continue;
    const char* at = start + segments[i].p_vaddr;
    const char* const end = at + segments[i].p_memsz;
    while (at + sizeof(ElfW(Nhdr)) <= end) {
      const auto& note = *reinterpret_cast<const ElfW(Nhdr)*>(at);
      const char* description = at + sizeof note + padded(note.n_namesz);
      if (note.n_type == NT_GNU_BUILD_ID)
        return llvm::toHex(llvm::StringRef(description, note.n_descsz), true);
      at = description + padded(note.n_descsz);
    }
  }
  return "unknown";
}

bool provoke(Sink error) {
  return guarded(error, []() -> bool { llvm::report_fatal_error("provoked"); });
}

}  // namespace
}  // namespace grapnel::codegen

extern "C" __attribute__((visibility("default"))) const grapnel::codegen::LlvmApi* grapnel_llvm_api(
    uint32_t version) {
  using namespace grapnel::codegen;
  static const std::string* const identity = new std::string(build_id());
  static const LlvmApi api{LLVM_VERSION_STRING, identity->c_str(), &compile_program, &print_program,
                           &link_object,        &unlink_object,    &provoke};
  return version == llvm_api_version() ? &api : nullptr;
}
