/// The storages of one run: those from outside, those somebody waits for, and scratch that lives
/// from first to last use.
#pragma once

#include "grapnel/capture/trace.h"

namespace grapnel::compiler {

class Memory {
 public:
  explicit Memory(capture::Trace& trace) : trace_(trace) {}

  const StoragePtr& storage(capture::SlotId slot) {
    StoragePtr& held = trace_.held[slot];
    if (!held) held = Storage::create(trace_.slots[slot].bytes, trace_.slots[slot].device);
    // Results that somebody waits for are lazy. They get their memory here: threads of one kernel
    // that found none would each make some.
    held->make_ready();
    return held;
  }
  /// A tensor header for a value.
  Tensor tensor(capture::ValueId id);
  /// The slot is not needed any more by this run.
  void release(capture::SlotId slot) {
    if (!trace_.slots[slot].live) trace_.held[slot].reset();
  }

 private:
  capture::Trace& trace_;
};

/// The tensors that a call reads, and pointers to them.
struct Operands {
  /// Operand number `without` gets no memory.
  Operands(const capture::Trace& trace, const capture::Instruction& call, Memory& memory,
           int without = -1);
  SmallVector<Tensor, 4> tensors;
  SmallVector<const Tensor*, 4> pointers;
};

/// For catch blocks: throws on what a call threw, with the place where it was called.
[[noreturn]] void rethrow_from(const capture::Trace& trace, const capture::Instruction& call);

/// Computes one call with the eager kernels. Errors name the op and where it was called.
void run_call(const capture::Trace& trace, const capture::Instruction& call, Memory& memory);

}  // namespace grapnel::compiler
