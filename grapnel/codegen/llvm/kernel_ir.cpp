#include "grapnel/codegen/llvm/kernel_ir.h"

#include <llvm/IR/IRBuilder.h>

#include "grapnel/codegen/llvm/formulas.h"
#include "grapnel/codegen/llvm/vector_emitter.h"
#include "grapnel/codegen/op_names.h"

namespace grapnel::codegen {
namespace {

using Step = BlockProgram::Step;

/// What suits a class of processors.
struct Tuning {
  unsigned bits;         ///< width of a vector
  unsigned registers;    ///< for vectors
  unsigned interleaved;  ///< vectors of the widest type that are worked on side by side
  int long_formula;  ///< longer ones are not emitted: the kernel calls the eager kernel on what it
                     ///< has in registers
  bool can_round;
};
// Without fused multiplication (the plainest class) a long formula is thousands of instructions.
Tuning tuning(base::Isa isa) {
  switch (isa) {
    case base::Isa::avx512: return {512, 32, 4, 60, true};
    case base::Isa::avx2: return {256, 16, 4, 60, true};
    case base::Isa::baseline: break;
  }
#if defined(__x86_64__)
  return {128, 16, 8, 12, false};
#else
  return {128, 32, 4, 60, true};
#endif
}

Type type_of(Compute c) {
  return c == Compute::F32 ? Type::f32 : c == Compute::F64 ? Type::f64 : Type::i64;
}

class KernelBuilder {
 public:
  KernelBuilder(const ProgramView& program, base::Isa isa, llvm::Module& module)
      : p_(program),
        first_(program.input_count + program.scalar_count),
        tuning_(tuning(isa)),
        lanes_stay_(lanes_fit()),
        module_(module),
        b_(module.getContext()),
        emitter_(b_, shape()),
        pointer_(b_.getPtrTy()) {
    find_live();
    make_function(isa);
  }

  void build() {
    const Emitter::Scope scope(emitter_);
    auto* entry = block("entry");
    auto* loop = block("loop");
    auto* done = block("done");
    auto* exit = block("exit");
    b_.SetInsertPoint(entry);
    load_arguments();
    make_call_buffers();
    if (lanes_stay_) load_lanes();
    b_.CreateCondBr(b_.CreateICmpSGT(n_, b_.getInt64(0)), loop, exit);

    b_.SetInsertPoint(loop);
    auto* i = b_.CreatePHI(b_.getInt64Ty(), 2);
    i->addIncoming(b_.getInt64(0), entry);
    if (lanes_stay_) enter_lanes(entry);
    // Everything is loaded before anything is stored: an output may lie over an input.
    for (int k = 0; k < p_.input_count; ++k)
      if (live_[static_cast<size_t>(k)])
        refs_[static_cast<size_t>(k)] = load(k, b_.CreateAnd(i, walks_[static_cast<size_t>(k)]));
    for (int s = 0; s < p_.step_count; ++s)
      if (live_[static_cast<size_t>(first_ + s)])
        refs_[static_cast<size_t>(first_ + s)] = emit_step(p_.steps[s]);
    for (int o = 0; o < stored_count(); ++o) {
      const int reg = p_.outputs[o];
      llvm::Value* address = element_at(out_[static_cast<size_t>(o)], reg, i);
      if (p_.streams) emitter_.stream(type(reg), refs_[static_cast<size_t>(reg)], address);
      else
        emitter_.store(type(reg), refs_[static_cast<size_t>(reg)], address, element_alignment(reg));
    }
    lanes_stay_ ? combine_lanes() : combine_lanes_in_memory(i);
    llvm::Value* next = b_.CreateNSWAdd(i, b_.getInt64(emitter_.lanes()));
    i->addIncoming(next, loop);
    b_.CreateCondBr(b_.CreateICmpSLT(next, n_), loop, done);

    b_.SetInsertPoint(done);
    if (lanes_stay_) store_lanes();
    b_.CreateBr(exit);

    b_.SetInsertPoint(exit);
    // Such stores are ordered by nothing else, and the caller tells other threads that the values
    // are there.
    if (p_.streams) b_.CreateFence(llvm::AtomicOrdering::SequentiallyConsistent);
    b_.CreateRetVoid();
  }

 private:
  VectorShape shape() const {
    bool wide = false;
    for (int i = 0; i < p_.input_count; ++i) wide |= p_.inputs[i] != Compute::F32;
    for (int i = 0; i < p_.step_count; ++i) wide |= p_.steps[i].compute != Compute::F32;
    const auto lanes = static_cast<unsigned>(kLanes);
    return {lanes_stay_ ? lanes : tuning_.interleaved * tuning_.bits / (wide ? 64 : 32),
            tuning_.bits, tuning_.can_round};
  }

  /// Whether the lanes of reductions are best kept in registers from round to round: as long as
  /// that leaves room for the steps. Else every round loads and stores its own, and may be as short
  /// as it is without reductions.
  bool lanes_fit() const {
    if (p_.reduction_count == 0) return false;
    const auto vectors = [&](Compute c) {
      return static_cast<unsigned>(kLanes * element_size(dtype_of(c))) * 8 / tuning_.bits;
    };
    unsigned lanes = 0;
    for (int k = 0; k < p_.reduction_count; ++k) lanes += vectors(compute(reduced(k)));
    const auto steps = static_cast<unsigned>(p_.step_count);
    return steps <= 1 || lanes + steps * vectors(Compute::F32) / 2 < tuning_.registers;
  }

  void find_live() {
    live_.assign(static_cast<size_t>(first_ + p_.step_count), false);
    refs_.assign(live_.size(), -1);
    for (int o = 0; o < p_.output_count; ++o) live_[static_cast<size_t>(p_.outputs[o])] = true;
    for (int s = p_.step_count - 1; s >= 0; --s)
      if (live_[static_cast<size_t>(first_ + s)])
        for (int k = 0; k < p_.steps[s].arity; ++k)
          live_[static_cast<size_t>(p_.steps[s].operands[k])] = true;
  }

  void make_function(base::Isa isa) {
    auto* signature = llvm::FunctionType::get(
        b_.getVoidTy(), {pointer_, pointer_, pointer_, pointer_, b_.getInt64Ty()}, false);
    function_ =
        llvm::Function::Create(signature, llvm::Function::ExternalLinkage, kKernelSymbol, module_);
    function_->addFnAttr(llvm::Attribute::NoUnwind);
    // The register allocator finds out too late that it has vectors to put on the stack, and leaves
    // them where they cross the lines of the cache: some kernels took twice the time, whenever the
    // caller's stack happened to lie that way.
    function_->addFnAttr(llvm::Attribute::getWithStackAlignment(module_.getContext(),
                                                                llvm::Align(tuning_.bits / 8)));
    if (isa == base::Isa::avx512) {
      function_->addFnAttr("prefer-vector-width", "512");
      function_->addFnAttr("min-legal-vector-width", "512");
    }
    n_ = function_->getArg(4);
  }

  llvm::BasicBlock* block(const char* name) {
    return llvm::BasicBlock::Create(module_.getContext(), name, function_);
  }
  Compute compute(int reg) const {
    return reg < p_.input_count ? p_.inputs[reg]
           : reg < first_       ? p_.scalars[reg - p_.input_count]
                                : p_.steps[reg - first_].compute;
  }
  Type type(int reg) const { return type_of(compute(reg)); }
  llvm::Align element_alignment(int reg) const {
    return llvm::Align(element_size(dtype_of(compute(reg))));
  }
  llvm::Value* element_at(llvm::Value* start, int reg, llvm::Value* i) {
    return b_.CreateInBoundsGEP(emitter_.element(type(reg)), start, i);
  }

  Ref load(int input, llvm::Value* i) {
    llvm::Value* start = in_[static_cast<size_t>(input)];
    const DType wide = dtype_of(p_.inputs[input]), stored = p_.stored ? p_.stored[input] : wide;
    if (stored == wide)
      return emitter_.load(type(input), element_at(start, input, i), element_alignment(input));
    llvm::Type* element = stored == DType::BFloat16 ? b_.getInt16Ty() : b_.getInt8Ty();
    return emitter_.load_narrow(stored, b_.CreateInBoundsGEP(element, start, i));
  }

  void load_arguments() {
    auto words = [&](llvm::Type* word, unsigned argument, int count,
                     std::vector<llvm::Value*>& to) {
      for (int k = 0; k < count; ++k)
        to.push_back(
            b_.CreateLoad(word, b_.CreateConstInBoundsGEP1_64(word, function_->getArg(argument),
                                                              static_cast<uint64_t>(k))));
    };
    words(pointer_, 0, p_.input_count, in_);
    words(b_.getInt64Ty(), 1, p_.input_count, walks_);
    words(pointer_, 2, p_.output_count, out_);
    for (int k = 0; k < p_.scalar_count; ++k) {
      const int reg = p_.input_count + k;
      if (!live_[static_cast<size_t>(reg)]) continue;
      llvm::Value* address = b_.CreateConstInBoundsGEP1_64(b_.getInt64Ty(), function_->getArg(3),
                                                           static_cast<uint64_t>(k));
      refs_[static_cast<size_t>(reg)] =
          emitter_.broadcast(type(reg), b_.CreateLoad(emitter_.element(type(reg)), address));
    }
  }

  /// Lanes of reductions: from memory to registers, through the loop and back.
  void load_lanes() {
    for (int k = 0; k < p_.reduction_count; ++k)
      lanes_.push_back(
          emitter_.load(type(reduced(k)), lanes_in_memory(k), element_alignment(reduced(k))));
  }
  void enter_lanes(llvm::BasicBlock* from) {
    for (Ref& lane : lanes_) lane = emitter_.enter_loop(lane, from);
  }
  void combine_lanes() {
    for (int k = 0; k < p_.reduction_count; ++k) {
      const int reg = reduced(k);
      const Ref before = lanes_[static_cast<size_t>(k)];
      Ref& lane = lanes_[static_cast<size_t>(k)];
      lane = emit_combine(p_.reductions[k], compute(reg), before, refs_[static_cast<size_t>(reg)]);
      emitter_.close_loop(before, lane, b_.GetInsertBlock());
    }
  }
  /// The same with lanes that stay in memory: those of the elements from i on.
  void combine_lanes_in_memory(llvm::Value* i) {
    llvm::Value* first = b_.CreateAnd(i, b_.getInt64(kLanes - 1));
    for (int k = 0; k < p_.reduction_count; ++k) {
      const int reg = reduced(k);
      llvm::Value* address = element_at(lanes_in_memory(k), reg, first);
      const Ref before = emitter_.load(type(reg), address, element_alignment(reg));
      const Ref lane =
          emit_combine(p_.reductions[k], compute(reg), before, refs_[static_cast<size_t>(reg)]);
      emitter_.store(type(reg), lane, address, element_alignment(reg));
    }
  }
  void store_lanes() {
    for (int k = 0; k < p_.reduction_count; ++k)
      emitter_.store(type(reduced(k)), lanes_[static_cast<size_t>(k)], lanes_in_memory(k),
                     element_alignment(reduced(k)));
  }
  int stored_count() const { return p_.output_count - p_.reduction_count; }
  int reduced(int k) const { return p_.outputs[stored_count() + k]; }
  llvm::Value* lanes_in_memory(int k) const {
    return out_[static_cast<size_t>(stored_count() + k)];
  }

  bool is_called(const Step& step) const {
    return step.kind == Step::Kind::op && op_cost(step.op, step.compute) > tuning_.long_formula;
  }

  /// Memory for the operands of called kernels, and the list of its addresses that they expect.
  void make_call_buffers() {
    int most = 0;
    for (int s = 0; s < p_.step_count; ++s)
      if (live_[static_cast<size_t>(first_ + s)] && is_called(p_.steps[s]))
        most = std::max<int>(most, p_.steps[s].arity);
    if (most == 0) return;
    auto* block_type = llvm::ArrayType::get(b_.getInt64Ty(), emitter_.lanes());
    operand_list_ = b_.CreateAlloca(llvm::ArrayType::get(pointer_, static_cast<uint64_t>(most)));
    for (int k = 0; k < most; ++k) {
      auto* buffer = b_.CreateAlloca(block_type);
      buffer->setAlignment(llvm::Align(64));
      buffers_.push_back(buffer);
      b_.CreateStore(
          buffer, b_.CreateConstInBoundsGEP1_64(pointer_, operand_list_, static_cast<uint64_t>(k)));
    }
  }

  Ref emit_step(const Step& step) {
    Ref operands[4] = {};
    for (int k = 0; k < step.arity; ++k) operands[k] = refs_[static_cast<size_t>(step.operands[k])];
    if (step.kind == Step::Kind::convert)
      return emit_convert(step.from, step.via, step.compute, operands[0]);
    return is_called(step) ? emit_call(step, operands) : emit_op(step.op, step.compute, operands);
  }

  Ref emit_call(const Step& step, const Ref* operands) {
    const Type t = type_of(step.compute);
    for (int k = 0; k < step.arity; ++k)
      emitter_.store(t, operands[k], buffers_[static_cast<size_t>(k)], llvm::Align(64));
    auto* signature =
        llvm::FunctionType::get(b_.getVoidTy(), {pointer_, pointer_, b_.getInt64Ty()}, false);
    llvm::FunctionCallee callee =
        module_.getOrInsertFunction(op_symbol(step.op, step.compute), signature);
    llvm::cast<llvm::Function>(callee.getCallee())->addFnAttr(llvm::Attribute::NoUnwind);
    b_.CreateCall(callee, {operand_list_, buffers_[0], b_.getInt64(emitter_.lanes())});
    return emitter_.load(t, buffers_[0], llvm::Align(64));
  }

  const ProgramView& p_;
  const int first_;  // the first step's register
  const Tuning tuning_;
  const bool lanes_stay_;  // in registers, those of reductions
  llvm::Module& module_;
  llvm::IRBuilder<> b_;
  VectorEmitter emitter_;
  llvm::Type* pointer_;
  llvm::Function* function_ = nullptr;
  llvm::Value* n_ = nullptr;
  std::vector<bool> live_;
  std::vector<Ref> refs_;
  std::vector<Ref> lanes_;  // of reductions
  std::vector<llvm::Value*> in_, walks_, out_, buffers_;
  llvm::Value* operand_list_ = nullptr;
};

}  // namespace

std::string op_symbol(int op, Compute compute) {
  constexpr const char* types[] = {"f32", "f64", "i64"};
  return "grapnel." + std::string(op_name(op)) + "." + types[static_cast<int>(compute)];
}

void build_kernel(const ProgramView& program, base::Isa isa, llvm::Module& module) {
  KernelBuilder(program, isa, module).build();
}

}  // namespace grapnel::codegen
