#include "grapnel/codegen/llvm/guard.h"

#include <llvm/Support/ErrorHandling.h>

#include <atomic>
#include <cstdio>

namespace grapnel::codegen {
namespace {

thread_local std::jmp_buf* escape = nullptr;
thread_local char reason[512];
std::atomic<bool> broken{false};

void on_fatal_error(void*, const char* message, bool) {
  if (!escape) return;  // Not ours; LLVM goes on to end the process.
  std::snprintf(reason, sizeof reason, "%s", message);
  std::longjmp(*escape, 1);
}

/// Small and without objects, since it is returned to twice.
bool escapable(bool (*body)(void*), void* context, std::jmp_buf& here, bool& escaped) {
  if (setjmp(here) == 0) return body(context);
  escaped = true;
  return false;
}

}  // namespace

bool guarded(bool (*body)(void* context), void* context, Sink error) {
  static const bool installed = [] {
    llvm::install_fatal_error_handler(&on_fatal_error);
    llvm::install_bad_alloc_error_handler(&on_fatal_error);
    return true;
  }();
  (void)installed;
  if (broken.load())
    return fail(error, "LLVM met an internal error earlier in this process and is not used again");
  std::jmp_buf here;
  std::jmp_buf* const before = escape;
  escape = &here;
  bool escaped = false, ok = false;
  try {
    ok = escapable(body, context, here, escaped);
  } catch (const std::exception& e) {
    fail(error, e.what());
  } catch (...) {
    fail(error, "an unknown exception");
  }
  escape = before;
  if (!escaped) return ok;
  broken.store(true);
  return fail(error, std::string("LLVM met an internal error: ") + reason);
}

}  // namespace grapnel::codegen
