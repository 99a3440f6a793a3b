#include "grapnel/codegen/op_names.h"

#include "grapnel/ops/pointwise_list.h"
#include "grapnel/ops/reduction_list.h"

namespace grapnel::codegen {
namespace {

struct Entry {
  std::string_view name;
  int arity;
  bool floating_only;
};
template <class... D>
constexpr std::array<Entry, sizeof...(D)> entries(OpList<D...>) {
  return {Entry{D::name, D::arity, D::type_rule == TypeRule::floating}...};
}
constexpr auto kOps = entries(PointwiseOps{});

template <class... D>
constexpr std::array<std::string_view, sizeof...(D)> names(OpList<D...>) {
  return {D::name...};
}
constexpr auto kReductions = names(ReductionOps{});

}  // namespace

int op_count() { return PointwiseOps::size; }
std::string_view op_name(int op) { return kOps[static_cast<size_t>(op)].name; }
int op_arity(int op) { return kOps[static_cast<size_t>(op)].arity; }
bool op_exists(int op, Compute compute) {
  return compute != Compute::I64 || !kOps[static_cast<size_t>(op)].floating_only;
}

std::string_view reduction_name(int reduction) {
  return kReductions[static_cast<size_t>(reduction)];
}

}  // namespace grapnel::codegen
