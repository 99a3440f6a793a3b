#include "grapnel/codegen/op_names.h"

#include "grapnel/ops/defs/reduction.h"
#include "grapnel/ops/pointwise_list.h"

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

uint32_t ops_fingerprint() {
  uint32_t hash = 0x811c9dc5u;
  const auto add = [&](std::string_view text) {
    for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x01000193u;
    hash = (hash ^ 0xffu) * 0x01000193u;
  };
  for (const Entry& op : kOps) add(op.name);
  for (const std::string_view op : kReductions) add(op);
  return hash;
}

}  // namespace grapnel::codegen
