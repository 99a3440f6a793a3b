#include "grapnel/codegen/llvm/compile.h"

#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/TargetParser/Host.h>

#include <memory>
#include <mutex>
#include <vector>

#include "grapnel/codegen/llvm/guard.h"
#include "grapnel/codegen/llvm/kernel_ir.h"

namespace grapnel::codegen {
namespace {

using Machine = std::unique_ptr<llvm::TargetMachine>;

/// Code for a class of processors, not for this one: an object on disk serves all machines of the
/// class.
struct Processor {
  const char* name;
  const char* features;
};
Processor processor(base::Isa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case base::Isa::avx512: return {"x86-64-v4", ""};
    case base::Isa::avx2: return {"x86-64", "+avx2,+fma,+f16c,+bmi2"};
    case base::Isa::baseline: break;
  }
  return {"x86-64", ""};
#else
  (void)isa;
  return {"generic", ""};
#endif
}

Machine make_machine(base::Isa isa, std::string& problem) {
  static const bool initialised = [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    return true;
  }();
  (void)initialised;
  const std::string triple = llvm::sys::getProcessTriple();
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(triple, problem);
  if (!target) return nullptr;
  llvm::TargetOptions options;
  // Only what the IR writes as one operation is rounded once.
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  const auto [cpu, features] = processor(isa);
  // Level 0 would take a third of the time, but it gives every value a place of its own on the
  // stack: a long chain then fills the first-level cache with it. It would also keep no lanes of
  // reductions in registers from one turn of the loop to the next. Level 2 gains nothing over 1.
  Machine machine(target->createTargetMachine(triple, cpu, features, options, llvm::Reloc::PIC_,
                                              llvm::CodeModel::Small, llvm::CodeGenOptLevel::Less,
                                              /*JIT=*/true));
  if (!machine) problem = "there is no code generator for " + triple;
  return machine;
}

/// Machines are used by one thread at a time and kept for the next.
class MachinePool {
 public:
  Machine take(base::Isa isa, std::string& problem) {
    {
      const std::lock_guard lock(mutex_);
      auto& free = free_[static_cast<int>(isa)];
      if (!free.empty()) {
        Machine machine = std::move(free.back());
        free.pop_back();
        return machine;
      }
    }
    return make_machine(isa, problem);
  }
  void give_back(base::Isa isa, Machine machine) {
    const std::lock_guard lock(mutex_);
    free_[static_cast<int>(isa)].push_back(std::move(machine));
  }

 private:
  std::mutex mutex_;
  std::vector<Machine> free_[3];
};

MachinePool& pool() {
  static MachinePool* const all = new MachinePool;  // Threads may compile until the process ends.
  return *all;
}

bool compile(const ProgramView& program, base::Isa isa, llvm::TargetMachine& machine, Sink object,
             Sink error) {
  llvm::LLVMContext context;
  llvm::Module module("grapnel", context);
  module.setDataLayout(machine.createDataLayout());
  module.setTargetTriple(machine.getTargetTriple().str());
  build_kernel(program, isa, module);
#ifndef NDEBUG
  std::string complaint;
  llvm::raw_string_ostream complaints(complaint);
  if (llvm::verifyModule(module, &complaints))
    return fail(error, "the generated code is not well formed: " + complaint);
#endif
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager passes;
  if (machine.addPassesToEmitFile(passes, stream, nullptr, llvm::CodeGenFileType::ObjectFile,
                                  /*DisableVerify=*/true))
    return fail(error, "LLVM cannot write object files for this processor");
  passes.run(module);
  object.write(object.context, bytes.data(), bytes.size());
  return true;
}

}  // namespace

bool compile_program(const ProgramView& program, base::Isa isa, Sink object, Sink error) {
  return guarded(error, [&] {
    std::string problem;
    Machine machine = pool().take(isa, problem);
    if (!machine) return fail(error, problem);
    const bool ok = compile(program, isa, *machine, object, error);
    pool().give_back(isa, std::move(machine));
    return ok;
  });
}

bool print_program(const ProgramView& program, base::Isa isa, Sink text, Sink error) {
  return guarded(error, [&] {
    llvm::LLVMContext context;
    llvm::Module module("grapnel", context);
    build_kernel(program, isa, module);
    std::string out;
    llvm::raw_string_ostream stream(out);
    module.print(stream, nullptr);
    stream.flush();
    text.write(text.context, out.data(), out.size());
    return true;
  });
}

}  // namespace grapnel::codegen
