#include "grapnel/codegen/llvm/link.h"

#include <llvm/ExecutionEngine/JITLink/JITLinkMemoryManager.h>
#include <llvm/ExecutionEngine/Orc/Core.h>
#include <llvm/ExecutionEngine/Orc/ExecutorProcessControl.h>
#include <llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h>

#include <cmath>
#include <map>
#include <mutex>

#include "grapnel/codegen/llvm/guard.h"
#include "grapnel/codegen/llvm/kernel_ir.h"
#include "grapnel/codegen/op_names.h"

namespace grapnel::codegen {
namespace {

using llvm::orc::ExecutorAddr;

/// Where what the session reports on the side, beside the error it returns, is collected.
constinit thread_local std::string* reported = nullptr;

/// Everything linked in this process. Each kernel is a library of its own, so that it can go alone;
/// nothing else is visible to it than the eager kernels and the two functions that stand for a
/// missing instruction.
class Linker {
 public:
  static llvm::Expected<Linker*> get() {
    static std::mutex mutex;
    static Linker* linker = nullptr;  // Never destroyed: kernels may run until the process ends.
    const std::lock_guard lock(mutex);
    if (!linker) {
      auto control = llvm::orc::SelfExecutorProcessControl::Create(
          nullptr, std::make_unique<llvm::orc::InPlaceTaskDispatcher>());
      if (!control) return control.takeError();
      linker = new Linker(std::move(*control));
    }
    return linker;
  }

  llvm::Expected<llvm::orc::JITDylib*> add(llvm::StringRef object,
                                           const kernels::KernelTable& table) {
    auto symbols = symbols_of(table);
    if (!symbols) return symbols.takeError();
    llvm::orc::JITDylib& library = session_.createBareJITDylib("kernel" + std::to_string(count_++));
    library.addToLinkOrder(**symbols);
    if (auto error = layer_.add(library, llvm::MemoryBuffer::getMemBufferCopy(object, "kernel"))) {
      remove(library);
      return error;
    }
    return &library;
  }
  llvm::Expected<BlockFn> find(llvm::orc::JITDylib& library) {
    auto symbol = session_.lookup({&library}, session_.intern(kKernelSymbol));
    if (!symbol) return symbol.takeError();
    return symbol->getAddress().toPtr<BlockFn>();
  }
  void remove(llvm::orc::JITDylib& library) {
    llvm::consumeError(session_.removeJITDylib(library));
  }

 private:
  explicit Linker(std::unique_ptr<llvm::orc::ExecutorProcessControl> control)
      : session_(std::move(control)),
        layer_(session_, session_.getExecutorProcessControl().getMemMgr()) {
    session_.setErrorReporter(
        [](llvm::Error error) {
          const std::string text = llvm::toString(std::move(error)) + "\n";
          if (reported) *reported += text;
        });
  }

  llvm::Expected<llvm::orc::JITDylib*> symbols_of(const kernels::KernelTable& table) {
    const std::lock_guard lock(mutex_);
    llvm::orc::JITDylib*& library = symbols_[&table];
    if (library) return library;
    llvm::orc::SymbolMap map;
    auto define = [&](const std::string& name, auto* function) {
      if (function)
        map[session_.intern(name)] = {
            ExecutorAddr::fromPtr(function),
            llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable};
    };
    for (int op = 0; op < op_count(); ++op)
      for (Compute c : {Compute::F32, Compute::F64, Compute::I64})
        define(op_symbol(op, c), table.pointwise[op][static_cast<int>(c)]);
    define("fma", static_cast<double (*)(double, double, double)>(&::fma));
    define("fmaf", &::fmaf);
    llvm::orc::JITDylib& made = session_.createBareJITDylib("eager" + std::to_string(count_++));
    if (auto error = made.define(llvm::orc::absoluteSymbols(std::move(map)))) return error;
    return library = &made;
  }

  llvm::orc::ExecutionSession session_;
  llvm::orc::ObjectLinkingLayer layer_;
  std::mutex mutex_;
  std::map<const kernels::KernelTable*, llvm::orc::JITDylib*> symbols_;
  std::atomic<int> count_{0};
};

bool refuse(Sink error, llvm::Error problem) {
  const std::string message = llvm::toString(std::move(problem));
  return fail(error, reported->empty() ? message : message + ": " + *reported);
}

}  // namespace

bool link_object(const char* object, size_t size, const kernels::KernelTable& table, BlockFn* fn,
                 void** handle, Sink error) {
  return guarded(error, [&] {
    std::string text;
    struct Collect {
      explicit Collect(std::string& into) { reported = &into; }
      ~Collect() { reported = nullptr; }
    } collect(text);
    auto linker = Linker::get();
    if (!linker) return refuse(error, linker.takeError());
    auto library = (*linker)->add(llvm::StringRef(object, size), table);
    if (!library) return refuse(error, library.takeError());
    auto found = (*linker)->find(**library);
    if (!found) {
      (*linker)->remove(**library);
      return refuse(error, found.takeError());
    }
    *fn = *found;
    *handle = *library;
    return true;
  });
}

void unlink_object(void* handle) {
  const Sink nobody{nullptr, [](void*, const char*, size_t) {}};
  guarded(nobody, [&] {
    if (auto linker = Linker::get()) (*linker)->remove(*static_cast<llvm::orc::JITDylib*>(handle));
    else llvm::consumeError(linker.takeError());
    return true;
  });
}

}  // namespace grapnel::codegen
