#include "grapnel/nn/checkpointed_call.h"

namespace grapnel::nn::detail {

void HookedValues::visit_tensors(const TensorVisitor& fn) {
  for (Value& v : args) v.visit_tensors(fn);
  for (auto& [name, v] : kwargs) v.visit_tensors(fn);
  result.visit_tensors(fn);
}

namespace {

/// What hooks left where they changed something. Tensors have no history here: the recomputed graph
/// is never run.
struct Kept {
  struct Mark {
    bool requires_grad = false;
    uint32_t version = 0;
  };
  HookedValues values;
  std::vector<Mark> marks;
};
struct CallAgain {};

template <class T>
bool equal(const Value& a, const Value& b) {
  return a.is<T>() && b.is<T>() && a.to<T>() == b.to<T>();
}
bool is_tensors(const Value& v) {
  return v.is_tensor() || v.is<Value::List>() || v.is<Value::Map>();
}
bool is_plain(const Value& v) {
  return v.is_none() || v.is<bool>() || v.is<int64_t>() || v.is<double>() || v.is<std::string>();
}

/// Whether every value is of a type of the library, down to the last element.
bool is_known(const Value& v) {
  return is_plain(v) || is_tensors(v) || (v.is_tuple() && std::ranges::all_of(v.tuple(), is_known));
}
bool is_known(const HookedValues& v) {
  return is_known(v.result) && std::ranges::all_of(v.args, [](const Value& a) { return is_known(a); }) &&
         std::ranges::all_of(v.kwargs, [](const auto& item) { return is_known(item.second); });
}

/// Whether two values are alike but for their tensors, which are compared elsewhere. Values of the
/// user's own types are taken for alike.
bool alike(const Value& a, const Value& b);
bool alike(const Args& a, const Args& b) {
  return std::ranges::equal(a, b, [](const Value& x, const Value& y) { return alike(x, y); });
}
bool alike(const Value& a, const Value& b) {
  if (a.is_tuple() || b.is_tuple())
    return a.is_tuple() && b.is_tuple() && alike(a.tuple(), b.tuple());
  if (is_plain(a) || is_plain(b))
    return (a.is_none() && b.is_none()) || equal<bool>(a, b) || equal<int64_t>(a, b) ||
           equal<double>(a, b) || equal<std::string>(a, b);
  return a.is_tensor() == b.is_tensor() && a.is<Value::List>() == b.is<Value::List>() &&
         a.is<Value::Map>() == b.is<Value::Map>();
}
bool alike(const HookedValues& a, const HookedValues& b) {
  return alike(a.args, b.args) && alike(a.result, b.result) &&
         std::ranges::equal(a.kwargs, b.kwargs, [](const auto& x, const auto& y) {
           return x.first == y.first && alike(x.second, y.second);
         });
}

std::vector<const TensorImpl*> tensors_of(HookedValues& values) {
  std::vector<const TensorImpl*> out;
  values.visit_tensors([&](const Tensor& t) { out.push_back(t.impl_ptr()); });
  return out;
}
std::vector<uint32_t> versions_of(HookedValues& values) {
  std::vector<uint32_t> out;
  values.visit_tensors([&](const Tensor& t) { out.push_back(t.defined() ? t._version() : 0); });
  return out;
}

}  // namespace

CheckpointedHooks::CheckpointedHooks(autograd::CheckpointRun& run, const void* key, HookedValues v)
    : values(std::move(v)), run_(run), key_(key), versions_(versions_of(values)) {}

void CheckpointedHooks::leave(HookedValues now) {
  if (alike(values, now) && tensors_of(values) == tensors_of(now) && versions_ == versions_of(now))
    return run_.leave(key_, {});
  if (!is_known(now)) return run_.leave(key_, CallAgain());
  Kept kept{std::move(now), {}};
  kept.values.visit_tensors([&](Tensor& t) {
    kept.marks.push_back(t.defined() ? Kept::Mark{t.requires_grad(), t._version()} : Kept::Mark{});
    if (t.defined()) t = t.detach();
  });
  run_.leave(key_, std::move(kept));
}

bool CheckpointedHooks::take() {
  const std::any left = run_.take(key_);
  if (std::any_cast<CallAgain>(&left)) return false;
  const auto* kept = std::any_cast<Kept>(&left);
  if (!kept) return true;
  values = kept->values;
  size_t i = 0;
  values.visit_tensors([&](Tensor& t) {
    const Kept::Mark& mark = kept->marks[i++];
    if (!t.defined()) return;
    check(t._version() == mark.version, "checkpoint: a tensor of shape ", t.shape(),
          " that a forward hook returned was changed by an in-place operation since, so the "
          "function cannot be run again on it.\nUse an out-of-place operation, or pass "
          "{.hooks_again = true} to checkpoint().");
    t = t.detach().set_requires_grad(mark.requires_grad);
  });
  return true;
}

}  // namespace grapnel::nn::detail
