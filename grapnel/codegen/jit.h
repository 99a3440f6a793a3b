/// Machine code for block programs: made once per program, kept in memory and on disk.
///
/// `kernel_for` is all a caller needs. LLVM lives in a module, libgrapnel_llvm.so, that is loaded
/// when the first program is compiled. Whatever goes wrong (no module, a full disk, a fault inside
/// LLVM), the kernel still runs, interpreted and with the same bits, and says why in `error()`.
///
/// On disk: $GRAPNEL_CACHE_DIR, or grapnel/ in the XDG cache; an empty GRAPNEL_CACHE_DIR keeps
/// nothing. Entries are named by a hash of the program's text, the instruction set and the identity
/// of the module, are checked before they are believed, and appear atomically, so any number of
/// processes may share the folder.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "grapnel/base/cpu.h"
#include "grapnel/codegen/block_program.h"

namespace grapnel::codegen {

/// A program and, as soon as there is some, its machine code. Usable from any thread.
class Kernel {
 public:
  enum class State : uint8_t { pending, ready, failed };

  const BlockProgram& program() const { return program_; }
  /// Null while there is no machine code; `interpret` does the same then. For multiples of kLanes.
  BlockFn fn() const noexcept { return fn_.load(std::memory_order_acquire); }
  State state() const noexcept { return state_.load(std::memory_order_acquire); }
  /// Returns when the state is no longer pending.
  void wait() const;
  /// Why it failed, what that means and what to do; empty otherwise.
  std::string error() const { return state() == State::failed ? error_ : std::string(); }

  /// Runs the best there is at the moment, for any n. Arguments as BlockFn.
  void run(const void* const* in, void* const* out, const void* scalars, int64_t n) const;

  ~Kernel();
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

 private:
  friend class KernelMaker;
  Kernel(const BlockProgram& program, base::Isa isa) : program_(program), isa_(isa) {}
  void finish(State state);

  const BlockProgram program_;
  const base::Isa isa_;
  std::atomic<BlockFn> fn_{nullptr};
  std::atomic<State> state_{State::pending};
  std::string error_;     // written before state_
  void* code_ = nullptr;  // likewise
};

enum class Compile {
  now,            ///< kernel_for returns when the machine code is there, or has failed
  in_background,  ///< it returns at once, and a thread of its own makes the code
};

/// The kernel of a program; equal programs share one. Throws only if the program itself is
/// ill-formed.
std::shared_ptr<const Kernel> kernel_for(const BlockProgram& program, Compile when = Compile::now);

struct JitStats {
  int64_t compiled = 0;       ///< programs turned into machine code by LLVM
  int64_t memory_hits = 0;    ///< calls of kernel_for that found their kernel
  int64_t disk_hits = 0;      ///< kernels linked from the cache on disk
  int64_t disk_writes = 0;    ///< entries written
  int64_t disk_rejected = 0;  ///< damaged or foreign entries, compiled anew
  int64_t failed = 0;         ///< kernels that will be interpreted for good
  int64_t dropped = 0;        ///< kernels that nobody used any more, to make room
  double compile_ms = 0;      ///< spent in LLVM's code generation
  double link_ms = 0;         ///< spent in bringing objects into memory
  int64_t object_bytes = 0;   ///< of all objects brought into memory
};
JitStats jit_stats();

/// A program as LLVM's text for an instruction set that this processor need not have; throws what
/// kept it from being made.
std::string ir_of(const BlockProgram& program, base::Isa isa);

// --- for tests ---

/// Forgets all kernels (those in use live on) once they are made, and sets the statistics to zero.
/// What is on disk stays.
void reset_jit_for_testing();

/// How many kernels may be in memory before those that nobody uses are dropped; 0: as usual.
void set_jit_room_for_testing(size_t kernels);

/// A step that fails until told otherwise.
enum class JitFault : uint8_t { none, load, compile, link, disk_read, disk_write };
void set_jit_fault_for_testing(JitFault fault);

}  // namespace grapnel::codegen
