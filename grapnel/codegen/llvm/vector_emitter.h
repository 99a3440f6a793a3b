/// Emits LLVM vector instructions, several vectors side by side.
///
/// One Value stands for `lanes` values: as many registers as they fill, and every operation is
/// emitted for all of them before the next one is. The processor then always has independent work,
/// and no type is wider than a register.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include <vector>

#include "grapnel/codegen/llvm/ir_value.h"
#include "grapnel/tensor/dtype.h"

namespace grapnel::codegen {

struct VectorShape {
  unsigned lanes;  ///< values per Value
  unsigned bits;   ///< width of a vector register
  bool can_round;
};

class VectorEmitter final : public Emitter {
 public:
  VectorEmitter(llvm::IRBuilder<>& builder, VectorShape shape) : b_(builder), shape_(shape) {}

  Ref constant(Type type, uint64_t pattern) override;
  Ref emit(Operation operation, Type type, Ref a, Ref b, Ref c) override;
  Ref lookup(const double* table, int count, Ref index) override;
  bool can_round() const override { return shape_.can_round; }

  /// All lanes from and to consecutive memory.
  Ref load(Type type, llvm::Value* address, llvm::Align alignment);
  /// The same, f32 from 1 or 2 bytes each.
  Ref load_narrow(DType stored, llvm::Value* address);
  void store(Type type, Ref value, llvm::Value* address, llvm::Align alignment);
  /// The same past the caches, to an address that is aligned to whole vectors. Other threads may
  /// see it only after a fence.
  void stream(Type type, Ref value, llvm::Value* address);
  /// A value that is `first` where the loop is entered from block `from`, at whose beginning we
  /// are; and that it is `next` when the loop closes.
  Ref enter_loop(Ref first, llvm::BasicBlock* from);
  void close_loop(Ref value, Ref next, llvm::BasicBlock* from);
  /// One number in all lanes.
  Ref broadcast(Type type, llvm::Value* number);

  llvm::Type* element(Type type) const;
  unsigned lanes() const { return shape_.lanes; }

 private:
  static constexpr unsigned kMostParts = 32;
  struct Packet {
    unsigned count = 0;
    llvm::Value* part[kMostParts] = {};
  };
  static unsigned size_of(Type type) { return type == Type::f32 || type == Type::i32 ? 4 : 8; }
  unsigned parts(Type type) const { return shape_.lanes * size_of(type) * 8 / shape_.bits; }
  llvm::Type* vector(Type type) const;
  Ref add(const Packet& packet);
  template <class Fn>
  Ref each(unsigned count, Fn&& fn);
  /// The same lanes in more or fewer parts.
  Packet split(const Packet& packet, unsigned count);
  llvm::Value* intrinsic(unsigned id, llvm::ArrayRef<llvm::Value*> arguments);
  llvm::Value* arithmetic(Operation operation, bool is_float, llvm::Value* a, llvm::Value* b,
                          llvm::Value* c);
  Ref convert(Type to, Type from, Ref value);

  llvm::IRBuilder<>& b_;
  VectorShape shape_;
  std::vector<Packet> values_;
  std::vector<std::pair<std::pair<unsigned, llvm::Type*>, llvm::Function*>> intrinsics_;
};

}  // namespace grapnel::codegen
