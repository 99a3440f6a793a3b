#include "grapnel/tensor/tensor.h"

#include <atomic>
#include <new>

#include "grapnel/base/foreign.h"
#include "grapnel/base/pool.h"

namespace grapnel {

IntrusivePtr<TensorImpl> TensorImpl::create_from(StoragePtr storage, DType dtype,
                                                 std::span<const int64_t> sizes,
                                                 std::span<const int64_t> strides,
                                                 int64_t offset) {
  auto* t = new (base::pool_allocate(sizeof(TensorImpl))) TensorImpl;
  t->dtype = dtype;
  t->offset = offset;
  t->storage = std::move(storage);
  t->sizes.assign(sizes.data(), static_cast<int>(sizes.size()));
  t->strides.assign(strides.data(), static_cast<int>(strides.size()));
  int64_t n = 1;
  for (int64_t s : sizes) n *= s;
  t->numel = n;
  return IntrusivePtr<TensorImpl>::adopt(t);
}

[[gnu::flatten]] IntrusivePtr<TensorImpl> TensorImpl::create(StoragePtr storage, DType dtype,
                                                              const Shape& sizes,
                                                              const Shape& strides,
                                                              int64_t offset) {
  return create_from(std::move(storage), dtype, {sizes.begin(), sizes.end()},
                     {strides.begin(), strides.end()}, offset);
}

/// Contiguous, over a storage that `make` makes.
[[gnu::always_inline]] inline IntrusivePtr<TensorImpl> TensorImpl::fresh(
    StoragePtr (*make)(size_t, Device), const Shape& sizes, DType dtype, Device device) {
  int64_t n = 1, bytes = 0;
  bool odd = false;
  for (int64_t size : sizes) odd |= size <= 0 || __builtin_mul_overflow(n, size, &n);
  if (odd) [[unlikely]]
    n = checked_numel(sizes, "empty");  // nothing to store, or it says what is wrong
  check(!__builtin_mul_overflow(n, static_cast<int64_t>(element_size(dtype)), &bytes),
        "empty: ", sizes, " of ", dtype, " does not fit in memory.");
  StoragePtr storage = make(static_cast<size_t>(bytes), device);
  auto* t = new (base::pool_allocate(sizeof(TensorImpl))) TensorImpl;
  t->dtype = dtype;
  t->storage = std::move(storage);
  t->numel = n;
  t->sizes.assign(sizes.begin(), sizes.size());
  t->strides.assign_contiguous(sizes);
  return IntrusivePtr<TensorImpl>::adopt(t);
}

IntrusivePtr<TensorImpl> TensorImpl::empty(const Shape& sizes, DType dtype, Device device) {
  return fresh(&Storage::create, sizes, dtype, device);
}
IntrusivePtr<TensorImpl> TensorImpl::lazy(const Shape& sizes, DType dtype, Device device) {
  return fresh(&Storage::create_lazy, sizes, dtype, device);
}

void TensorImpl::destroy() const noexcept {
  if (wrapper) [[unlikely]]
    base::let_go_of_wrapper(wrapper);
  if (autograd) release_autograd_meta(autograd);
  this->~TensorImpl();
  base::pool_deallocate(const_cast<TensorImpl*>(this), sizeof(TensorImpl));
}

void Tensor::undefined() {
  fail(
      "this tensor is undefined: it was default-constructed, moved from, or stands for an absent "
      "gradient.\n"
      "Ask defined() before using it.");
}

int64_t Tensor::size(int64_t dim) const {
  check(this->dim() > 0, "size: a 0-dimensional tensor has no sizes.");
  return impl().sizes[wrap_dim(dim, static_cast<int>(this->dim()), "size")];
}
int64_t Tensor::stride(int64_t dim) const {
  check(this->dim() > 0, "stride: a 0-dimensional tensor has no strides.");
  return impl().strides[wrap_dim(dim, static_cast<int>(this->dim()), "stride")];
}
TensorOptions Tensor::options() const { return TensorOptions(dtype()).device(device()); }

void* Tensor::data_ptr() const {
  before_raw_access(*impl().storage);
  return impl().address();
}

namespace {
constinit thread_local uint64_t registered = 0;
}  // namespace
uint64_t hooks_registered() { return registered; }

uint64_t next_hook_id() {
  ++registered;
  // Small numbers are list positions in LibTorch; starting above them turns a mix-up into an error.
  static std::atomic<uint64_t> counter{1000};
  return counter.fetch_add(1, std::memory_order_relaxed);
}

std::string_view name(HookKind kind) {
  switch (kind) {
    case HookKind::tensor: return "tensor hook";
    case HookKind::retain_grad: return "retain-grad hook";
    case HookKind::capture: return "capture hook";
    case HookKind::node_pre: return "node pre-hook";
    case HookKind::unpack: return "unpack hook";
    case HookKind::post_accumulate: return "post-accumulate hook";
    case HookKind::node_post: return "node post-hook";
    case HookKind::end_of_pass: return "end-of-pass callback";
    case HookKind::pack: return "pack hook";
    case HookKind::multi_grad: return "multi-gradient hook";
    case HookKind::multi_post_accumulate: return "multi-leaf post-accumulate hook";
    case HookKind::forward_pre: return "forward pre-hook";
    case HookKind::forward: return "forward hook";
    case HookKind::full_backward_pre: return "full backward pre-hook";
    case HookKind::full_backward: return "full backward hook";
    case HookKind::state_dict_pre: return "state_dict pre-hook";
    case HookKind::state_dict_post: return "state_dict post-hook";
    case HookKind::load_state_dict_pre: return "load_state_dict pre-hook";
    case HookKind::load_state_dict_post: return "load_state_dict post-hook";
    case HookKind::registration: return "registration hook";
    case HookKind::step_pre: return "step pre-hook";
    case HookKind::step_post: return "step post-hook";
    case HookKind::comm: return "comm hook";
    case HookKind::after_reduction: return "after-reduction hook";
  }
  return "";
}

void check_options(HookKind kind, const HookOptions& options) {
  const bool in_passes = kind <= HookKind::multi_post_accumulate || kind >= HookKind::comm;
  const char* const wrong =
      options.prepend && in_passes ? "prepend: its hooks fire in the order of registration"
      : options.always_call && kind != HookKind::forward ? "always_call, which is for forward hooks"
      : options.after_parameters && kind != HookKind::full_backward
          ? "after_parameters, which is for full backward hooks"
          : nullptr;
  check(wrong == nullptr, "a ", name(kind), " has no option ", wrong, ".");
}

}  // namespace grapnel
