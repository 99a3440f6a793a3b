/// The one call that every operation goes through: it asks where the call goes and makes the backward
/// node. The same in place; types of results; plain numbers as operands.
#include <utility>

#include "grapnel/base/per_thread.h"
#include "grapnel/ops/evaluator.h"
#include "grapnel/ops/number_operand.h"
#include "grapnel/ops/tape.h"

namespace grapnel {

namespace {

/// What an op without attributes is given, so that a reference to them refers to something.
const void* or_none(const void* attrs) {
  static constexpr char none = 0;
  return attrs ? attrs : &none;
}

bool any_tracks(Inputs inputs) {
  for (const Tensor* t : inputs)
    if (t->defined() && tape::tracks(*t)) return true;
  return false;
}

bool any_on_device(Inputs inputs) {
  bool any = false;
  for (const Tensor* t : inputs)
    if (const TensorImpl* impl = t->impl_ptr()) any |= !impl->storage->device().is_cpu();
  return any;
}

/// What the inputs of a call are, seen in one pass.
struct Facts {
  bool numbers;    ///< plain numbers, all of them, with their values at hand; arithmetic among them
                   ///< is never deferred
  bool may_track;  ///< a gradient may flow to one of them
  Device device;   ///< where the call is computed

  Facts(const Op& op, Inputs inputs) : numbers(!inputs.empty()), may_track(false) {
    bool on_device = false;
    for (const Tensor* t : inputs) {
      if (!t->defined()) {
        numbers = false;
        continue;
      }
      const TensorImpl& impl = t->impl();
      numbers = numbers && impl.wrapped_number && !impl.storage->pending();
      may_track |= impl.requires_grad | impl.differentiable_view;
      on_device |= !impl.storage->device().is_cpu();
    }
    if (on_device) [[unlikely]]
      device = device_of(op, inputs);
  }
};

/// Where a call goes.
inline Evaluator& evaluator_of(const Facts& facts) {
  return facts.numbers ? evaluator_of(Device()) : evaluator(facts.device);
}

/// The results' shapes and types, and where they are.
inline void infer(const Op& op, Inputs inputs, const void* attrs, const Facts& facts, Specs& out) {
  op.infer(inputs, attrs, out);
  if (!facts.device.is_cpu() && !op.crosses) [[unlikely]]
    for (TensorSpec& spec : out) spec.device = facts.device;
}

/// The operands of a call on a device: 0-dimensional ones are copied to it. Their gradients go back.
class OnDevice {
 public:
  OnDevice(const Op& op, Inputs inputs, Device device) : list_(inputs.begin(), inputs.end()) {
    copies_.reserve(inputs.size());
    for (const Tensor*& t : list_)
      if (!op.crosses && t->defined() && t->device() != device && !t->impl().wrapped_number)
        t = &copies_.emplace_back(t->to(device));
  }
  /// Whether one was elsewhere.
  bool moved() const { return !copies_.empty(); }
  operator Inputs() const { return {list_.data(), list_.size()}; }

 private:
  SmallVector<const Tensor*, 4> list_;
  SmallVector<Tensor, 2> copies_;
};

inline void finish(const Op& op, Inputs inputs, const void* attrs, const Facts& facts,
                   std::span<Tensor> out) {
  if (op.family == Family::pointwise && inputs[0]->impl().wrapped_number) [[unlikely]] {
    bool numbers = true;
    for (const Tensor* t : inputs) numbers &= t->impl().wrapped_number;
    out[0].impl().wrapped_number = numbers;
  }
  if (InferenceMode::is_enabled())
    for (Tensor& t : out) t.impl().inference = true;
  if (op.family == Family::view)
    for (Tensor& t : out) tape::mark_view(t, *inputs[0], out.size() > 1);
  if (facts.may_track && GradMode::is_enabled() && op.differentiable && any_tracks(inputs))
    tape::record(op, inputs, attrs, out);
}

/// Fails when elements of `self` share memory, so that writing one would change another.
void check_no_internal_overlap(const Tensor& self, std::string_view op) {
  const TensorImpl& t = self.impl();
  for (int i = 0; i < t.sizes.size(); ++i)
    check(t.sizes[i] <= 1 || t.strides[i] != 0, op,
          ": elements of the tensor to write share memory (it was expanded: shape ", t.sizes,
          ", strides ", t.strides, ").\nWrite to a clone() instead.");
}

}  // namespace

Device device_of(const Op& op, Inputs inputs) {
  size_t first = 0;
  while (first < inputs.size() && (!inputs[first]->defined() || inputs[first]->device().is_cpu()))
    ++first;
  if (first == inputs.size()) return {};
  const Device device = inputs[first]->device();
  for (size_t i = 0; i < inputs.size() && !op.crosses; ++i) {
    if (!inputs[i]->defined() || inputs[i]->device() == device) continue;
    const TensorImpl& t = inputs[i]->impl();
    if (inputs[i]->is_cpu() &&
        (t.wrapped_number || (op.family == Family::pointwise && t.sizes.empty())))
      continue;
    const auto name = [](size_t k) {
      return k < 26 ? std::string(1, static_cast<char>('a' + k)) : str("operand ", k);
    };
    fail(op.name, ": operands are on different devices: ", name(first), " is on ", device, ", ",
         name(i), " on ", inputs[i]->device(), ".\nMove one of them: ", name(i), ".to(",
         name(first), ".device()). (Numbers and 0-dimensional CPU tensors may stay.)");
  }
  return device;
}

Tensor apply(const Op& op, Inputs inputs, const void* attrs) {
  if (op.views) return std::move(apply_all(op, inputs, attrs)[0]);
  // One result, the usual case, needs no list.
  attrs = or_none(attrs);
  const Facts facts(op, inputs);
  if (!facts.device.is_cpu()) [[unlikely]]
    if (const OnDevice there(op, inputs, facts.device); there.moved())
      return apply(op, there, attrs);
  Evaluator& where = evaluator_of(facts);
  Specs specs;
  infer(op, inputs, attrs, facts, specs);
  GRAPNEL_ASSERT(specs.size() == 1, op.name, " has ", specs.size(), " results");
  Tensor out = where.empty(specs[0]);
  where.run(op, inputs, attrs, {&out, 1});
  finish(op, inputs, attrs, facts, {&out, 1});
  return out;
}

Outputs apply_all(const Op& op, Inputs inputs, const void* attrs) {
  attrs = or_none(attrs);
  const Facts facts(op, inputs);
  if (!facts.device.is_cpu()) [[unlikely]]
    if (const OnDevice there(op, inputs, facts.device); there.moved())
      return apply_all(op, there, attrs);
  Evaluator& where = evaluator_of(facts);
  Outputs out;
  if (op.views) {
    op.views(*inputs[0], attrs, out);
  } else {
    Specs specs;
    infer(op, inputs, attrs, facts, specs);
    for (const TensorSpec& spec : specs) out.push_back(where.empty(spec));
  }
  where.run(op, inputs, attrs, {out.data(), out.size()});
  finish(op, inputs, attrs, facts, {out.data(), out.size()});
  return out;
}

Tensor& apply_inplace(const Op& op, Inputs inputs, const void* attrs) {
  attrs = or_none(attrs);
  const Tensor& self = *inputs[0];
  Device device;
  if (any_on_device(inputs)) [[unlikely]] {
    device = device_of(op, inputs);
    check(op.crosses || self.device() == device, op.name, "_: the tensor to write is on ",
          self.device(), ", and another operand on ", device, ".\nMove one of them first.");
    if (const OnDevice there(op, inputs, device); there.moved())
      return apply_inplace(op, there, attrs);
  }
  const bool recording = GradMode::is_enabled() && op.differentiable && any_tracks(inputs);
  tape::check_inplace(self, recording, op.name);
  check_no_internal_overlap(self, op.name);

  Specs specs;
  op.infer(inputs, attrs, specs);
  check(specs[0].sizes == self.shape(), op.name, "_: the result has shape ", specs[0].sizes,
        " but the tensor to write has shape ", self.shape(),
        ".\nThe other operands must broadcast to it, not beyond it.");
  check(specs[0].dtype == self.dtype() || can_cast(specs[0].dtype, self.dtype()), op.name, "_: a result of type ", specs[0].dtype,
        " cannot be written into a tensor of type ", self.dtype(), ".");

  // The write goes through all that share memory with self. What the gradients need of them is kept
  // as it was, in copies that are recorded, since gradients can be differentiated again.
  SmallVector<const Tensor*, 4> kept(inputs.begin(), inputs.end());
  SmallVector<Tensor, 2> copies;
  if (recording) {
    copies.reserve(inputs.size());
    SaveMask wanted = 0;
    for (size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i]->defined() && tape::tracks(*inputs[i]))
        wanted |= op.saves_for(static_cast<int>(i));
    for (size_t i = 0; i < inputs.size(); ++i)
      if ((wanted & input(static_cast<int>(i))) && inputs[i]->defined() &&
          inputs[i]->is_alias_of(self))
        kept[i] = &copies.emplace_back(inputs[i]->clone());
  }

  Tensor target = self;
  evaluator(device).run(op, inputs, attrs, {&target, 1});
  self.impl().storage->bump_version();
  if (recording) tape::record_inplace(op, inputs, attrs, self, kept);
  return const_cast<Tensor&>(self);
}

DType result_type(Inputs inputs) {
  // Three ranks of say: tensors with dimensions, 0-dimensional tensors, plain numbers. A lower rank
  // counts only when its kind (bool, integer, floating) is above that of the ranks before it.
  auto kind = [](DType t) { return is_floating(t) ? 2 : t == DType::Bool ? 0 : 1; };
  int present[3] = {};
  DType types[3] = {};
  for (const Tensor* t : inputs) {
    if (!t->defined()) continue;
    const TensorImpl& impl = t->impl();
    const int rank = impl.wrapped_number ? 2 : impl.sizes.empty() ? 1 : 0;
    types[rank] = present[rank]++ ? promote_types(types[rank], impl.dtype) : impl.dtype;
  }
  // A number becomes the default type only beside a tensor; arithmetic among numbers keeps all
  // their digits.
  if (types[2] == DType::Float64 && present[2] && (present[0] || present[1]))
    types[2] = get_default_dtype();
  bool have = false;
  DType result = DType::Float32;
  for (int rank = 0; rank < 3; ++rank) {
    if (!present[rank]) continue;
    if (!have) result = types[rank];
    else if (kind(types[rank]) > kind(result)) result = promote_types(result, types[rank]);
    have = true;
  }
  return result;
}

// --- plain numbers ---

namespace {

void set_number(TensorImpl& impl, const Scalar& value) {
  impl.dtype = value.dtype();
  void* const data = impl.storage->host();
  if (value.is_bool()) *static_cast<bool*>(data) = value.to_bool();
  else if (value.is_integral()) *static_cast<int64_t*>(data) = value.to_int();
  else *static_cast<double*>(data) = value.to_double();
}

/// Where a number that nobody needs any more waits for the next one.
constinit thread_local base::PerThread<Tensor> spare_number [[gnu::tls_model("initial-exec")]];

}  // namespace

Tensor wrap_number(const Scalar& value) {
  Shape no_sizes;  // not {}, which would clear it
  Tensor t(
      TensorImpl::create(Storage::create(sizeof(double), kCPU), value.dtype(), no_sizes, no_sizes));
  t.impl().wrapped_number = true;
  set_number(t.impl(), value);
  return t;
}

NumberOperand::NumberOperand(const Scalar& value) {
  Tensor* const spare = spare_number.get_if();
  if (!spare || !spare->defined()) {
    tensor_ = wrap_number(value);
    return;
  }
  tensor_ = std::move(*spare);
  set_number(tensor_.impl(), value);
}

NumberOperand::~NumberOperand() {
  const TensorImpl& impl = tensor_.impl();
  if (!impl.refs.is_unique() || impl.storage->use_count() > 1) return;
  Tensor& spare = spare_number.get();
  if (!spare.defined()) spare = std::move(tensor_);
}

}  // namespace grapnel
