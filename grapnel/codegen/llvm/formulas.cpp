#include "grapnel/codegen/llvm/formulas.h"

#include <array>

#include "grapnel/codegen/llvm/convert_formula.h"
#include "grapnel/ops/defs/reduction.h"
#include "grapnel/ops/pointwise_list.h"

namespace grapnel::codegen {
namespace {

using Formula = Ref (*)(const Ref* operands);

template <class D, class T, size_t... I>
Ref call(const Ref* operands, std::index_sequence<I...>) {
  return D::template scalar<Value<T>>(Value<T>::from(operands[I])...).ref;
}
template <class D, class T>
constexpr Formula formula() {
  if constexpr (std::is_integral_v<T> && D::type_rule == TypeRule::floating) return nullptr;
  else
    return [](const Ref* operands) {
      return call<D, T>(operands, std::make_index_sequence<D::arity>{});
    };
}
template <class... D>
constexpr std::array<std::array<Formula, 3>, sizeof...(D)> all_formulas(OpList<D...>) {
  return {{{formula<D, float>(), formula<D, double>(), formula<D, int64_t>()}...}};
}
constexpr auto kFormulas = all_formulas(PointwiseOps{});

using Combine = Ref (*)(Ref a, Ref b);

template <class D, class T>
Ref combine(Ref a, Ref b) {
  return D::template combine<Value<T>>(Value<T>::from(a), Value<T>::from(b)).ref;
}
template <class... D>
constexpr std::array<std::array<Combine, 3>, sizeof...(D)> all_combines(OpList<D...>) {
  return {{{&combine<D, float>, &combine<D, double>, &combine<D, int64_t>}...}};
}
constexpr auto kCombines = all_combines(ReductionOps{});

template <class From>
Ref convert(DType via, Compute to, Ref operand) {
  const Value<From> x = Value<From>::from(operand);
  switch (to) {
    case Compute::F32: return through<float>(x, via).ref;
    case Compute::F64: return through<double>(x, via).ref;
    case Compute::I64: return through<int64_t>(x, via).ref;
  }
  __builtin_unreachable();
}

/// Counts instead of emitting. Values of 64 bits take twice the instructions; what has no vector
/// instruction takes many.
class Counter final : public Emitter {
 public:
  Ref constant(Type, uint64_t) override { return 0; }
  Ref emit(Operation operation, Type type, Ref, Ref, Ref) override {
    const bool is_wide = type == Type::f64 || type == Type::i64;
    const bool one_by_one =
        operation == Operation::fmod || (operation == Operation::div && type >= Type::i32);
    if (operation != Operation::bits && operation != Operation::from_bits)
      total += (is_wide ? 2 : 1) * (one_by_one ? 1000 : 1);
    return 0;
  }
  Ref lookup(const double*, int, Ref) override { return total += 32, 0; }
  bool can_round() const override { return true; }
  int total = 0;
};

}  // namespace

Ref emit_op(int op, Compute compute, const Ref* operands) {
  return kFormulas[static_cast<size_t>(op)][static_cast<size_t>(compute)](operands);
}

Ref emit_convert(Compute from, DType via, Compute to, Ref operand) {
  switch (from) {
    case Compute::F32: return convert<float>(via, to, operand);
    case Compute::F64: return convert<double>(via, to, operand);
    case Compute::I64: return convert<int64_t>(via, to, operand);
  }
  __builtin_unreachable();
}

Ref emit_combine(int reduction, Compute compute, Ref a, Ref b) {
  return kCombines[static_cast<size_t>(reduction)][static_cast<size_t>(compute)](a, b);
}

int op_cost(int op, Compute compute) {
  Counter counter;
  const Emitter::Scope scope(counter);
  const Ref operands[4] = {0, 0, 0, 0};
  emit_op(op, compute, operands);
  return counter.total;
}

}  // namespace grapnel::codegen
