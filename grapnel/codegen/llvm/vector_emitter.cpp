#include "grapnel/codegen/llvm/vector_emitter.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/DerivedTypes.h>
#include <llvm/IR/GlobalVariable.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/Module.h>

#include <numeric>

namespace grapnel::codegen {

using llvm::Intrinsic::ID;

llvm::Type* VectorEmitter::element(Type type) const {
  switch (type) {
    case Type::f32: return b_.getFloatTy();
    case Type::f64: return b_.getDoubleTy();
    case Type::i32: return b_.getInt32Ty();
    case Type::i64: return b_.getInt64Ty();
  }
  __builtin_unreachable();
}
llvm::Type* VectorEmitter::vector(Type type) const {
  return llvm::FixedVectorType::get(element(type), shape_.lanes / parts(type));
}

Ref VectorEmitter::add(const Packet& packet) {
  values_.push_back(packet);
  return static_cast<Ref>(values_.size() - 1);
}

template <class Fn>
Ref VectorEmitter::each(unsigned count, Fn&& fn) {
  Packet result;
  result.count = count;
  for (unsigned i = 0; i < count; ++i) result.part[i] = fn(i);
  return add(result);
}

VectorEmitter::Packet VectorEmitter::split(const Packet& packet, unsigned count) {
  if (packet.count == count) return packet;
  Packet result;
  result.count = count;
  const unsigned width = shape_.lanes / count;  // of a part, afterwards
  llvm::SmallVector<int, 64> order(width);
  for (unsigned i = 0; i < count; ++i) {
    if (count > packet.count) {
      const unsigned ratio = count / packet.count;
      std::iota(order.begin(), order.end(), static_cast<int>(i % ratio * width));
      result.part[i] = b_.CreateShuffleVector(packet.part[i / ratio], order);
    } else {
      // Pairs are enough: sizes differ by a factor of two.
      std::iota(order.begin(), order.end(), 0);
      result.part[i] = b_.CreateShuffleVector(packet.part[2 * i], packet.part[2 * i + 1], order);
    }
  }
  return result;
}

Ref VectorEmitter::constant(Type type, uint64_t pattern) {
  llvm::Constant* number;
  switch (type) {
    case Type::f32:
      number = llvm::ConstantFP::get(
          b_.getContext(), llvm::APFloat(std::bit_cast<float>(static_cast<uint32_t>(pattern))));
      break;
    case Type::f64:
      number =
          llvm::ConstantFP::get(b_.getContext(), llvm::APFloat(std::bit_cast<double>(pattern)));
      break;
    default: number = llvm::ConstantInt::get(element(type), pattern); break;
  }
  const unsigned count = parts(type);
  number =
      llvm::ConstantVector::getSplat(llvm::ElementCount::getFixed(shape_.lanes / count), number);
  return each(count, [&](unsigned) { return number; });
}

llvm::Value* VectorEmitter::intrinsic(unsigned id, llvm::ArrayRef<llvm::Value*> arguments) {
  // Looking a declaration up by its mangled name costs more than all else here.
  llvm::Type* type = arguments[0]->getType();
  llvm::Function* found = nullptr;
  for (const auto& [key, function] : intrinsics_)
    if (key.first == id && key.second == type) found = function;
  if (!found) {
    found = llvm::Intrinsic::getDeclaration(b_.GetInsertBlock()->getModule(), static_cast<ID>(id),
                                            {type});
    intrinsics_.push_back({{id, type}, found});
  }
  return b_.CreateCall(found, arguments);
}

llvm::Value* VectorEmitter::arithmetic(Operation operation, bool is_float, llvm::Value* a,
                                       llvm::Value* b, llvm::Value* c) {
  switch (operation) {
    case Operation::add: return is_float ? b_.CreateFAdd(a, b) : b_.CreateAdd(a, b);
    case Operation::sub: return is_float ? b_.CreateFSub(a, b) : b_.CreateSub(a, b);
    case Operation::mul: return is_float ? b_.CreateFMul(a, b) : b_.CreateMul(a, b);
    case Operation::div: return is_float ? b_.CreateFDiv(a, b) : b_.CreateSDiv(a, b);
    case Operation::neg: return b_.CreateFNeg(a);
    case Operation::abs: return intrinsic(llvm::Intrinsic::fabs, {a});
    case Operation::sqrt: return intrinsic(llvm::Intrinsic::sqrt, {a});
    case Operation::fma: return intrinsic(llvm::Intrinsic::fma, {a, b, c});
    case Operation::fmod: return b_.CreateFRem(a, b);
    case Operation::floor: return intrinsic(llvm::Intrinsic::floor, {a});
    case Operation::ceil: return intrinsic(llvm::Intrinsic::ceil, {a});
    case Operation::trunc: return intrinsic(llvm::Intrinsic::trunc, {a});
    case Operation::round_even: return intrinsic(llvm::Intrinsic::roundeven, {a});
    case Operation::bit_and:
    case Operation::mask_and: return b_.CreateAnd(a, b);
    case Operation::bit_or:
    case Operation::mask_or: return b_.CreateOr(a, b);
    case Operation::bit_xor:
    case Operation::mask_xor: return b_.CreateXor(a, b);
    case Operation::mask_not: return b_.CreateNot(a);
    case Operation::shift_left: return b_.CreateShl(a, b);
    case Operation::shift_right: return b_.CreateAShr(a, b);
    case Operation::shift_right_logical: return b_.CreateLShr(a, b);
    // Comparisons with NaN are false, except that NaN differs from everything.
    case Operation::lt: return is_float ? b_.CreateFCmpOLT(a, b) : b_.CreateICmpSLT(a, b);
    case Operation::gt: return is_float ? b_.CreateFCmpOGT(a, b) : b_.CreateICmpSGT(a, b);
    case Operation::le: return is_float ? b_.CreateFCmpOLE(a, b) : b_.CreateICmpSLE(a, b);
    case Operation::ge: return is_float ? b_.CreateFCmpOGE(a, b) : b_.CreateICmpSGE(a, b);
    case Operation::eq: return is_float ? b_.CreateFCmpOEQ(a, b) : b_.CreateICmpEQ(a, b);
    case Operation::ne: return is_float ? b_.CreateFCmpUNE(a, b) : b_.CreateICmpNE(a, b);
    case Operation::select: return b_.CreateSelect(a, b, c);
    case Operation::bits:
    case Operation::from_bits:
    case Operation::to_f32:
    case Operation::to_f64:
    case Operation::to_i32:
    case Operation::to_i64: break;  // convert
  }
  __builtin_unreachable();
}

Ref VectorEmitter::convert(Type to, Type from, Ref value) {
  // The wide side decides into how many parts the work is cut.
  const unsigned count = std::max(parts(to), parts(from));
  const Packet source = split(values_[static_cast<size_t>(value)], count);
  llvm::Type* type = llvm::FixedVectorType::get(element(to), shape_.lanes / count);
  const bool to_float = to <= Type::f64, from_float = from <= Type::f64;
  Packet result;
  result.count = count;
  for (unsigned i = 0; i < count; ++i) {
    llvm::Value* x = source.part[i];
    result.part[i] = to_float && from_float ? b_.CreateFPCast(x, type)
                     : to_float             ? b_.CreateSIToFP(x, type)
                     : from_float           ? b_.CreateFPToSI(x, type)
                                            : b_.CreateSExtOrTrunc(x, type);
  }
  return add(split(result, parts(to)));
}

Ref VectorEmitter::emit(Operation operation, Type type, Ref a, Ref b, Ref c) {
  switch (operation) {
    case Operation::to_f32: return convert(Type::f32, type, a);
    case Operation::to_f64: return convert(Type::f64, type, a);
    case Operation::to_i32: return convert(Type::i32, type, a);
    case Operation::to_i64: return convert(Type::i64, type, a);
    case Operation::bits:
    case Operation::from_bits: {
      constexpr Type other[] = {Type::i32, Type::i64, Type::f32, Type::f64};
      llvm::Type* target = vector(other[static_cast<int>(type)]);
      const Packet x = values_[static_cast<size_t>(a)];
      return each(x.count, [&](unsigned i) { return b_.CreateBitCast(x.part[i], target); });
    }
    default: break;
  }
  auto operand = [&](Ref ref) { return ref < 0 ? Packet{} : values_[static_cast<size_t>(ref)]; };
  Packet x = operand(a), y = operand(b);
  const Packet z = operand(c);
  // A mask is cut like the values it was compared from, which may be half as wide as those it
  // meets.
  if (operation == Operation::select) x = split(x, y.count);
  if (operation == Operation::mask_and || operation == Operation::mask_or ||
      operation == Operation::mask_xor)
    y = split(y, x.count);
  return each(x.count, [&](unsigned i) {
    return arithmetic(operation, type <= Type::f64, x.part[i], y.part[i], z.part[i]);
  });
}

Ref VectorEmitter::lookup(const double* table, int count, Ref index) {
  llvm::Constant* data = llvm::ConstantDataArray::get(
      b_.getContext(), llvm::ArrayRef<double>(table, static_cast<size_t>(count)));
  llvm::Module& module = *b_.GetInsertBlock()->getModule();
  auto* global = new llvm::GlobalVariable(module, data->getType(), true,
                                          llvm::GlobalValue::PrivateLinkage, data);
  const Packet at = values_[static_cast<size_t>(index)];
  return each(at.count, [&](unsigned i) {
    return b_.CreateMaskedGather(
        vector(Type::f64), b_.CreateGEP(b_.getDoubleTy(), global, at.part[i]), llvm::Align(8));
  });
}

Ref VectorEmitter::load(Type type, llvm::Value* address, llvm::Align alignment) {
  llvm::Type* vec = vector(type);
  return each(parts(type), [&](unsigned i) {
    return b_.CreateAlignedLoad(vec, b_.CreateConstInBoundsGEP1_64(vec, address, i), alignment);
  });
}

Ref VectorEmitter::load_narrow(DType stored, llvm::Value* address) {
  const unsigned count = parts(Type::f32);
  const bool half = stored == DType::BFloat16;
  llvm::Type* vec =
      llvm::FixedVectorType::get(half ? b_.getInt16Ty() : b_.getInt8Ty(), shape_.lanes / count);
  return each(count, [&](unsigned i) {
    llvm::Value* x = b_.CreateAlignedLoad(vec, b_.CreateConstInBoundsGEP1_64(vec, address, i),
                                          llvm::Align(half ? 2 : 1));
    x = b_.CreateZExt(x, vector(Type::i32));
    if (!half) return b_.CreateSIToFP(x, vector(Type::f32));
    // The upper half of a float.
    return b_.CreateBitCast(b_.CreateShl(x, 16), vector(Type::f32));
  });
}

void VectorEmitter::store(Type type, Ref value, llvm::Value* address, llvm::Align alignment) {
  llvm::Type* vec = vector(type);
  const Packet x = values_[static_cast<size_t>(value)];
  for (unsigned i = 0; i < x.count; ++i)
    b_.CreateAlignedStore(x.part[i], b_.CreateConstInBoundsGEP1_64(vec, address, i), alignment);
}

void VectorEmitter::stream(Type type, Ref value, llvm::Value* address) {
  llvm::Type* vec = vector(type);
  llvm::MDNode* past_caches =
      llvm::MDNode::get(b_.getContext(), llvm::ConstantAsMetadata::get(b_.getInt32(1)));
  const Packet x = values_[static_cast<size_t>(value)];
  for (unsigned i = 0; i < x.count; ++i)
    b_.CreateAlignedStore(x.part[i], b_.CreateConstInBoundsGEP1_64(vec, address, i),
                          llvm::Align(shape_.bits / 8))
        ->setMetadata(llvm::LLVMContext::MD_nontemporal, past_caches);
}

Ref VectorEmitter::enter_loop(Ref first, llvm::BasicBlock* from) {
  const Packet x = values_[static_cast<size_t>(first)];
  return each(x.count, [&](unsigned i) {
    auto* phi = b_.CreatePHI(x.part[i]->getType(), 2);
    phi->addIncoming(x.part[i], from);
    return phi;
  });
}

void VectorEmitter::close_loop(Ref value, Ref next, llvm::BasicBlock* from) {
  const Packet &phi = values_[static_cast<size_t>(value)], &x = values_[static_cast<size_t>(next)];
  for (unsigned i = 0; i < x.count; ++i)
    llvm::cast<llvm::PHINode>(phi.part[i])->addIncoming(x.part[i], from);
}

Ref VectorEmitter::broadcast(Type type, llvm::Value* number) {
  const unsigned count = parts(type);
  llvm::Value* splat = b_.CreateVectorSplat(shape_.lanes / count, number);
  return each(count, [&](unsigned) { return splat; });
}

}  // namespace grapnel::codegen
