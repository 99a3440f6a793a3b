/// Programs run by the eager kernels, step by step on pieces that stay in the first-level cache.
#include <algorithm>
#include <cstring>

#include "grapnel/base/allocator.h"
#include "grapnel/base/small_vector.h"
#include "grapnel/codegen/block_program.h"
#include "grapnel/cpu/kernels/table.h"

namespace grapnel::codegen {
namespace {

/// Values per piece. Kernels cost some nanoseconds a call, which this many values outweigh.
constexpr int64_t kPiece = 512;
constexpr size_t kSlotBytes = kPiece * 8;
constexpr int32_t kNever = -1, kAtTheEnd = INT32_MAX;

using Ints = SmallVector<int32_t, 64>;

/// Memory for registers. One that was read for the last time makes room for the next.
class Slots {
 public:
  int32_t take() {
    if (free_.empty()) return count_++;
    const int32_t slot = free_.back();
    free_.pop_back();
    return slot;
  }
  void give_back(int32_t slot) { free_.push_back(slot); }
  int32_t count() const { return count_; }

 private:
  Ints free_;
  int32_t count_ = 0;
};

struct Scratch {
  explicit Scratch(size_t size) : bytes(size), memory(static_cast<char*>(base::allocate(size))) {}
  ~Scratch() { base::deallocate(memory, bytes); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  size_t bytes;
  char* memory;
};

size_t width(Compute c) { return element_size(dtype_of(c)); }

class Interpreter {
 public:
  Interpreter(const BlockProgram& program, const void* const* in, void* const* out)
      : p_(program),
        in_(in),
        out_(out),
        blocks_(p_.inputs.size()),
        first_(blocks_ + p_.scalars.size()),
        registers_(first_ + p_.steps.size()) {
    find_last_uses();
    assign_places();
  }

  void run(const void* scalars, int64_t n) {
    // One slot more than the registers need, for the narrow form of a conversion.
    const Scratch scratch(static_cast<size_t>(slots_.count() + 1) * kSlotBytes);
    narrow_ = scratch.memory + static_cast<size_t>(slots_.count()) * kSlotBytes;
    SmallVector<char*, 64> at(registers_);
    for (size_t r = 0; r < registers_; ++r)
      if (slot_[r] >= 0) at[r] = scratch.memory + static_cast<size_t>(slot_[r]) * kSlotBytes;
    for (size_t r = blocks_; r < first_; ++r) {
      const char* value = static_cast<const char*>(scalars) + (r - blocks_) * 8;
      load(type(r), dtype_of(type(r)))(value, 0, at[r], std::min(kPiece, n));
    }
    for (int64_t begin = 0; begin < n; begin += kPiece)
      run_piece(at, begin, std::min(kPiece, n - begin));
  }

 private:
  void find_last_uses() {
    last_use_ = Ints(registers_, kNever);
    for (size_t i = 0; i < p_.steps.size(); ++i)
      for (int k = 0; k < p_.steps[i].arity; ++k)
        last_use_[static_cast<size_t>(p_.steps[i].operands[k])] = static_cast<int32_t>(i);
    for (int32_t reg : p_.outputs) last_use_[static_cast<size_t>(reg)] = kAtTheEnd;
  }

  /// A register lives in a slot, or, if nothing later reads an input that lies there, in the output
  /// block it is meant for.
  void assign_places() {
    slot_ = Ints(registers_, -1);
    direct_ = Ints(registers_, -1);
    // An output that is an input is copied last; if outputs lie over inputs it must be saved before
    // they are written.
    for (size_t r = 0; r < blocks_; ++r)
      if (is_narrow(r) || (last_use_[r] == kAtTheEnd && is_output(in_[r])))
        slot_[r] = slots_.take();
    for (size_t r = blocks_; r < first_; ++r) slot_[r] = slots_.take();
    for (size_t i = 0; i < p_.steps.size(); ++i) {
      const size_t reg = first_ + i;
      // Operands that end here may share their slot with the result: kernels read a value before
      // they write its place.
      for (int k = 0; k < p_.steps[i].arity; ++k) {
        const size_t operand = static_cast<size_t>(p_.steps[i].operands[k]);
        const bool again = std::count(p_.steps[i].operands, p_.steps[i].operands + k,
                                      static_cast<int32_t>(operand)) > 0;
        if (operand >= first_ && last_use_[operand] == static_cast<int32_t>(i) &&
            slot_[operand] >= 0 && !again)
          slots_.give_back(slot_[operand]);
      }
      direct_[reg] = direct_output(reg, static_cast<int32_t>(i));
      if (direct_[reg] < 0) slot_[reg] = slots_.take();
      if (last_use_[reg] == kNever) slots_.give_back(slot_[reg]);
    }
  }

  bool is_narrow(size_t input) const {
    return !p_.stored.empty() && p_.stored[input] != dtype_of(type(input));
  }
  bool is_output(const void* block) const {
    return std::find(out_, out_ + p_.outputs.size(), block) != out_ + p_.outputs.size();
  }

  int32_t direct_output(size_t reg, int32_t step) const {
    for (size_t o = 0; o < p_.outputs.size(); ++o) {
      if (static_cast<size_t>(p_.outputs[o]) != reg) continue;
      bool free = true;
      for (size_t r = 0; r < blocks_; ++r)
        if (in_[r] == out_[o] && last_use_[r] > step && slot_[r] < 0) free = false;
      if (free) return static_cast<int32_t>(o);
    }
    return -1;
  }

  void run_piece(SmallVector<char*, 64>& at, int64_t begin, int64_t n) {
    auto block = [&](const void* start, size_t reg) {
      return static_cast<char*>(const_cast<void*>(start)) +
             static_cast<size_t>(begin) * width(type(reg));
    };
    for (size_t r = 0; r < blocks_; ++r) {
      if (is_narrow(r))
        load(type(r), p_.stored[r])(static_cast<const char*>(in_[r]) +
                                        static_cast<size_t>(begin) * element_size(p_.stored[r]),
                                    1, at[r], n);
      else if (slot_[r] >= 0)
        std::memcpy(at[r], block(in_[r], r), static_cast<size_t>(n) * width(type(r)));
      else at[r] = block(in_[r], r);
    }
    for (size_t i = 0; i < p_.steps.size(); ++i) {
      const size_t reg = first_ + i;
      if (direct_[reg] >= 0) at[reg] = block(out_[direct_[reg]], reg);
      run_step(p_.steps[i], at, at[reg], n);
    }
    for (size_t o = 0; o < p_.outputs.size(); ++o) {
      const size_t reg = static_cast<size_t>(p_.outputs[o]);
      char* to = block(out_[o], reg);
      if (to != at[reg]) std::memcpy(to, at[reg], static_cast<size_t>(n) * width(type(reg)));
    }
  }

  void run_step(const BlockProgram::Step& step, const SmallVector<char*, 64>& at, char* to,
                int64_t n) const {
    if (step.kind == BlockProgram::Step::Kind::convert) {
      store(step.from, step.via)(at[static_cast<size_t>(step.operands[0])], narrow_, 1, n);
      load(step.compute, step.via)(narrow_, 1, to, n);
      return;
    }
    const void* operands[4] = {};
    for (int k = 0; k < step.arity; ++k) operands[k] = at[static_cast<size_t>(step.operands[k])];
    table_.pointwise[step.op][static_cast<int>(step.compute)](operands, to, n);
  }

  Compute type(size_t reg) const { return p_.type_of(static_cast<int32_t>(reg)); }
  kernels::LoadFn load(Compute c, DType via) const {
    return table_.load[static_cast<int>(via)][static_cast<int>(c)];
  }
  kernels::StoreFn store(Compute c, DType via) const {
    return table_.store[static_cast<int>(via)][static_cast<int>(c)];
  }

  const BlockProgram& p_;
  const void* const* in_;
  void* const* out_;
  const kernels::KernelTable& table_ = kernels::table();
  size_t blocks_, first_, registers_;  // the first scalar, the first step's result, the end
  Ints last_use_, slot_, direct_;
  Slots slots_;
  char* narrow_ = nullptr;
};

}  // namespace

void interpret(const BlockProgram& program, const void* const* in, void* const* out,
               const void* scalars, int64_t n) {
  if (n > 0) Interpreter(program, in, out).run(scalars, n);
}

}  // namespace grapnel::codegen
