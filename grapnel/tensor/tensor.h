/// Tensor: a view (shape, strides, dtype) of shared storage, maybe with a place in the graph.
///
/// A Tensor is a counted handle; copying one copies the handle. Names, argument order and meaning
/// follow LibTorch. Methods are declared here and defined where their meaning lives: views and
/// arithmetic in ops/, gradients in autograd/.
#pragma once

#include <concepts>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "grapnel/base/error.h"
#include "grapnel/base/intrusive_ptr.h"
#include "grapnel/base/source_site.h"
#include "grapnel/tensor/device.h"
#include "grapnel/tensor/dtype.h"
#include "grapnel/tensor/hook.h"
#include "grapnel/tensor/op_list.h"
#include "grapnel/tensor/scalar_value.h"
#include "grapnel/tensor/shape.h"
#include "grapnel/tensor/storage.h"
#include "grapnel/tensor/tensor_impl.h"
#include "grapnel/tensor/tensor_options.h"

namespace grapnel {

class Tensor;
template <class T, size_t N>
class TensorAccessor;
class IndexList;
class IndexTensor;
using TensorPair = std::tuple<Tensor, Tensor>;

/// A counted handle of a view (shape, strides, type) of shared storage, maybe with a place in the
/// backward graph.
class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(IntrusivePtr<TensorImpl> impl) : impl_(std::move(impl)) {}
  Tensor(const Tensor&) = default;
  Tensor(Tensor&&) noexcept = default;
  ~Tensor() = default;
  /// What has a name becomes another handle of `other`.
  Tensor& operator=(const Tensor& other) & noexcept = default;
  Tensor& operator=(Tensor&& other) & noexcept = default;
  /// A temporary is written to: `x[0] = y` and `x.index({mask}) = 1` change x, as copy_, fill_ and
  /// index_put_ do. See Note [Assignment to a temporary] in functions/assign.cpp.
  Tensor& operator=(const Tensor& values) &&;
  Tensor& operator=(const Scalar& value) &&;

  // --- What it is ---
  bool defined() const { return static_cast<bool>(impl_); }
  explicit operator bool() const = delete;
  int64_t dim() const { return impl().sizes.size(); }
  int64_t ndimension() const { return dim(); }
  const Shape& shape() const { return impl().sizes; }
  IntArrayRef sizes() const { return impl().sizes; }
  IntArrayRef strides() const { return impl().strides; }
  int64_t size(int64_t dim) const;
  int64_t stride(int64_t dim) const;
  int64_t numel() const { return impl().numel; }
  int64_t storage_offset() const { return impl().offset; }
  DType dtype() const { return impl().dtype; }
  DType scalar_type() const { return impl().dtype; }
  Device device() const { return impl().storage->device(); }
  bool is_cpu() const { return device().is_cpu(); }
  bool is_cuda() const { return device().is_cuda(); }
  /// The number of its CUDA device; -1 on the CPU.
  int64_t get_device() const { return is_cuda() ? device().index() : -1; }
  MemoryLayout layout() const { return MemoryLayout::Strided; }
  size_t element_size() const { return grapnel::element_size(dtype()); }
  size_t itemsize() const { return element_size(); }
  int64_t nbytes() const { return numel() * static_cast<int64_t>(element_size()); }
  TensorOptions options() const;
  bool is_floating_point() const { return is_floating(dtype()); }
  bool is_contiguous() const { return impl().is_contiguous(); }
  bool is_same(const Tensor& other) const { return impl_ == other.impl_; }
  bool is_alias_of(const Tensor& other) const { return impl().storage == other.impl().storage; }
  uint32_t _version() const { return impl().storage->version(); }
  /// How many handles share this tensor.
  size_t use_count() const { return impl_ ? impl_->refs.use_count() : 0; }
  void reset() { impl_.reset(); }

  // --- Its values ---
  /// Raw memory of the first element, on the tensor's device. The caller vouches for bounds; writes
  /// through it are not seen by autograd.
  void* data_ptr() const;
  template <class T>
  T* data_ptr() const;
  template <class T>
  const T* const_data_ptr() const {
    return data_ptr<T>();
  }
  template <class T, size_t N>
  TensorAccessor<T, N> accessor() const;
  /// The one element of a one-element tensor.
  Scalar item() const;
  template <class T>
  [[gnu::noinline]] T item() const {
    const base::CallSiteScope caller(__builtin_return_address(0));
    return item().to<T>();
  }
  bool equal(const Tensor& other) const;
  bool allclose(const Tensor& other, double rtol = 1e-5, double atol = 1e-8,
                bool equal_nan = false) const;
  /// Readable text with values, shape and type.
  std::string str() const;

  // --- Views and copies (functions/views.cpp) ---
  Tensor view(IntArrayRef sizes) const;
  Tensor view_as(const Tensor& other) const;
  Tensor reshape(IntArrayRef sizes) const;
  Tensor reshape_as(const Tensor& other) const;
  Tensor flatten(int64_t start_dim = 0, int64_t end_dim = -1) const;
  Tensor unflatten(int64_t dim, IntArrayRef sizes) const;
  Tensor transpose(int64_t dim0, int64_t dim1) const;
  Tensor t() const;
  Tensor mT() const { return transpose(-2, -1); }
  Tensor permute(IntArrayRef dims) const;
  Tensor movedim(int64_t source, int64_t destination) const;
  Tensor expand(IntArrayRef sizes) const;
  Tensor expand_as(const Tensor& other) const;
  Tensor squeeze() const;
  Tensor squeeze(int64_t dim) const;
  Tensor unsqueeze(int64_t dim) const;
  Tensor slice(int64_t dim = 0, std::optional<int64_t> start = {}, std::optional<int64_t> end = {},
               int64_t step = 1) const;
  Tensor select(int64_t dim, int64_t index) const;
  Tensor narrow(int64_t dim, int64_t start, int64_t length) const;
  Tensor diagonal(int64_t offset = 0, int64_t dim1 = 0, int64_t dim2 = 1) const;
  Tensor as_strided(IntArrayRef size, IntArrayRef stride,
                    std::optional<int64_t> storage_offset = {}) const;
  std::vector<Tensor> unbind(int64_t dim = 0) const;
  std::vector<Tensor> split(int64_t split_size, int64_t dim = 0) const;
  std::vector<Tensor> split_with_sizes(IntArrayRef sizes, int64_t dim = 0) const;
  std::vector<Tensor> chunk(int64_t chunks, int64_t dim = 0) const;
  std::vector<Tensor> split(IntArrayRef sizes, int64_t dim = 0) const {
    return split_with_sizes(sizes, dim);
  }
  Tensor swapaxes(int64_t axis0, int64_t axis1) const { return transpose(axis0, axis1); }
  Tensor swapdims(int64_t dim0, int64_t dim1) const { return transpose(dim0, dim1); }
  Tensor unfold(int64_t dim, int64_t size, int64_t step) const;
  Tensor diag(int64_t diagonal = 0) const;
  Tensor operator[](int64_t index) const { return select(0, index); }
  Tensor operator[](const IndexTensor& indices) const;
  Tensor index(const IndexList& indices) const;
  Tensor& index_put_(const IndexList& indices, const Tensor& values) const;
  Tensor& index_put_(const IndexList& indices, const Scalar& value) const;
  /// Adds instead of writing if `accumulate`: every time that a position is given.
  Tensor& index_put_(const IndexList& indices, const Tensor& values, bool accumulate) const;
  Tensor contiguous() const;
  Tensor clone() const;
  Tensor to(DType dtype) const;
  Tensor to(const TensorOptions& options) const;
  /// The same values on another device; gradients go back. This very tensor if it is there.
  Tensor to(Device device) const;
  Tensor to(DeviceType device) const { return to(Device(device)); }
  Tensor to(Device device, DType dtype) const { return to(dtype).to(device); }
  /// In the type and on the device of another tensor.
  Tensor to(const Tensor& other) const { return to(other.device(), other.dtype()); }
  // With LibTorch's flags. Nothing is asynchronous here; `copy` asks for fresh memory in any case.
  Tensor to(DType dtype, bool non_blocking, bool copy = false) const {
    return to(TensorOptions(dtype), non_blocking, copy);
  }
  Tensor to(Device device, DType dtype, bool non_blocking, bool copy = false) const {
    return to(TensorOptions(dtype).device(device), non_blocking, copy);
  }
  Tensor to(const Tensor& other, bool non_blocking, bool copy = false) const {
    return to(other.device(), other.dtype(), non_blocking, copy);
  }
  Tensor to(const TensorOptions& options, bool non_blocking, bool copy = false) const;
  Tensor type_as(const Tensor& other) const { return to(other.dtype()); }
  Tensor toType(DType dtype) const { return to(dtype); }
  Tensor cpu() const { return to(Device(kCPU)); }
  Tensor cuda() const { return to(Device(kCUDA)); }
  Tensor repeat(IntArrayRef repeats) const;
  Tensor tile(IntArrayRef dims) const;
  Tensor repeat_interleave(int64_t repeats, std::optional<int64_t> dim = {}) const;
  Tensor repeat_interleave(const Tensor& repeats, std::optional<int64_t> dim = {}) const;
  Tensor flip(IntArrayRef dims) const;
  Tensor roll(int64_t shift, int64_t dim) const;

  // --- Other sizes in place, for tensors that need no gradient (functions/resize.cpp) ---
  Tensor& unsqueeze_(int64_t dim) const;
  Tensor& squeeze_() const;
  Tensor& squeeze_(int64_t dim) const;
  Tensor& t_() const;
  Tensor& transpose_(int64_t dim0, int64_t dim1) const;
  /// The same memory in other sizes; a larger tensor gets new memory, with the old values in front.
  Tensor& resize_(IntArrayRef sizes) const;
  Tensor& resize_as_(const Tensor& other) const;

  // --- Others of the same type, on the same device (functions/factories.cpp) ---
  Tensor new_empty(IntArrayRef sizes, const TensorOptions& options = {}) const;
  Tensor new_zeros(IntArrayRef sizes, const TensorOptions& options = {}) const;
  Tensor new_ones(IntArrayRef sizes, const TensorOptions& options = {}) const;
  Tensor new_full(IntArrayRef sizes, const Scalar& value, const TensorOptions& options = {}) const;

  // --- Pointwise (functions/functions.cpp) ---
#define GRAPNEL_DECLARE(name, Def) \
  Tensor name() const;             \
  Tensor& name##_() const;
  GRAPNEL_UNARY_OPS(GRAPNEL_DECLARE)
#undef GRAPNEL_DECLARE
#define GRAPNEL_DECLARE(name, Def) Tensor name() const;
  GRAPNEL_UNARY_TEST_OPS(GRAPNEL_DECLARE)
#undef GRAPNEL_DECLARE
#define GRAPNEL_DECLARE(name, Def)        \
  Tensor name(const Tensor& other) const; \
  Tensor& name##_(const Tensor& other) const;
  GRAPNEL_BINARY_OPS(GRAPNEL_DECLARE)
  GRAPNEL_BINARY_TENSOR_OPS(GRAPNEL_DECLARE)
#undef GRAPNEL_DECLARE
#define GRAPNEL_DECLARE(name, Def)        \
  Tensor name(const Scalar& other) const; \
  Tensor& name##_(const Scalar& other) const;
  GRAPNEL_BINARY_OPS(GRAPNEL_DECLARE)
#undef GRAPNEL_DECLARE
#define GRAPNEL_DECLARE(name, Def)        \
  Tensor name(const Tensor& other) const; \
  Tensor name(const Scalar& other) const;
  GRAPNEL_COMPARE_OPS(GRAPNEL_DECLARE)
#undef GRAPNEL_DECLARE
  Tensor add(const Tensor& other, const Scalar& alpha = 1) const;
  Tensor add(const Scalar& other, const Scalar& alpha = 1) const;
  Tensor& add_(const Tensor& other, const Scalar& alpha = 1) const;
  Tensor& add_(const Scalar& other, const Scalar& alpha = 1) const;
  Tensor sub(const Tensor& other, const Scalar& alpha = 1) const;
  Tensor sub(const Scalar& other, const Scalar& alpha = 1) const;
  Tensor& sub_(const Tensor& other, const Scalar& alpha = 1) const;
  Tensor& sub_(const Scalar& other, const Scalar& alpha = 1) const;
  Tensor clamp(const std::optional<Scalar>& min = {}, const std::optional<Scalar>& max = {}) const;
  Tensor& clamp_(const std::optional<Scalar>& min = {},
                 const std::optional<Scalar>& max = {}) const;
  Tensor& clamp_min_(const Scalar& min) const { return clamp_(min, {}); }
  Tensor& clamp_max_(const Scalar& max) const { return clamp_({}, max); }
  Tensor clamp_min(const Scalar& min) const { return clamp(min, {}); }
  Tensor clamp_max(const Scalar& max) const { return clamp({}, max); }
  Tensor where(const Tensor& condition, const Tensor& other) const;
  Tensor masked_fill(const Tensor& mask, const Scalar& value) const;
  Tensor& masked_fill_(const Tensor& mask, const Scalar& value) const;
  Tensor lerp(const Tensor& end, const Scalar& weight) const;
  Tensor& lerp_(const Tensor& end, const Scalar& weight) const;
  Tensor addcmul(const Tensor& tensor1, const Tensor& tensor2, const Scalar& value = 1) const;
  Tensor& addcmul_(const Tensor& tensor1, const Tensor& tensor2, const Scalar& value = 1) const;
  Tensor addcdiv(const Tensor& tensor1, const Tensor& tensor2, const Scalar& value = 1) const;
  Tensor& addcdiv_(const Tensor& tensor1, const Tensor& tensor2, const Scalar& value = 1) const;
  Tensor& fill_(const Scalar& value) const;
  Tensor& fill_(const Tensor& value) const;
  Tensor& zero_() const;
  Tensor& copy_(const Tensor& source) const;
  Tensor& uniform_(double low = 0, double high = 1) const;
  Tensor& normal_(double mean = 0, double std = 1) const;
  Tensor& random_(int64_t low, int64_t high) const;
  /// Whole numbers in [0, high).
  Tensor& random_(int64_t high) const;
  /// All whole numbers of the type; those up to 2^53 and the like for floating-point types.
  Tensor& random_() const;
  Tensor& bernoulli_(double p = 0.5) const;
  Tensor bernoulli() const;
  Tensor multinomial(int64_t num_samples, bool replacement = false) const;
  Tensor nan_to_num(std::optional<double> nan = {}, std::optional<double> posinf = {},
                    std::optional<double> neginf = {}) const;
  Tensor isclose(const Tensor& other, double rtol = 1e-5, double atol = 1e-8,
                 bool equal_nan = false) const;
  Tensor& exponential_(double lambda = 1) const;

  // --- Reductions (functions/reductions.cpp) ---
  Tensor sum(std::optional<DType> dtype = {}) const;
  Tensor sum(IntArrayRef dims, bool keepdim = false, std::optional<DType> dtype = {}) const;
  Tensor mean(std::optional<DType> dtype = {}) const;
  Tensor mean(IntArrayRef dims, bool keepdim = false, std::optional<DType> dtype = {}) const;
  Tensor prod() const;
  Tensor prod(int64_t dim, bool keepdim = false) const;
  Tensor amax(IntArrayRef dims = {}, bool keepdim = false) const;
  Tensor amin(IntArrayRef dims = {}, bool keepdim = false) const;
  Tensor max() const;
  Tensor min() const;
  Tensor max(const Tensor& other) const { return maximum(other); }
  Tensor min(const Tensor& other) const { return minimum(other); }
  Tensor median() const;
  TensorPair median(int64_t dim, bool keepdim = false) const;
  Tensor count_nonzero(IntArrayRef dims = {}) const;
  TensorPair max(int64_t dim, bool keepdim = false) const;
  TensorPair min(int64_t dim, bool keepdim = false) const;
  Tensor argmax(std::optional<int64_t> dim = {}, bool keepdim = false) const;
  Tensor argmin(std::optional<int64_t> dim = {}, bool keepdim = false) const;
  Tensor any() const;
  Tensor any(int64_t dim, bool keepdim = false) const;
  Tensor all() const;
  Tensor all(int64_t dim, bool keepdim = false) const;
  Tensor var() const { return var(IntArrayRef{}); }
  template <std::same_as<bool> B>
  Tensor var(B unbiased) const {
    return var(IntArrayRef{}, unbiased);
  }
  Tensor var(IntArrayRef dims, bool unbiased = true, bool keepdim = false) const;
  Tensor std() const { return std(IntArrayRef{}); }
  template <std::same_as<bool> B>
  Tensor std(B unbiased) const {
    return std(IntArrayRef{}, unbiased);
  }
  Tensor std(IntArrayRef dims, bool unbiased = true, bool keepdim = false) const;
  Tensor norm(const Scalar& p = 2) const;
  Tensor norm(const Scalar& p, IntArrayRef dims, bool keepdim = false) const;
  Tensor logsumexp(IntArrayRef dims, bool keepdim = false) const;
  Tensor cumsum(int64_t dim) const;
  Tensor cumprod(int64_t dim) const;
  Tensor softmax(int64_t dim) const;
  Tensor log_softmax(int64_t dim) const;
  Tensor softmax(int64_t dim, DType dtype) const { return to(dtype).softmax(dim); }
  Tensor log_softmax(int64_t dim, DType dtype) const { return to(dtype).log_softmax(dim); }
  Tensor sum_to_size(IntArrayRef sizes) const;

  // --- Products, indexing, sorting ---
  Tensor matmul(const Tensor& other) const;
  Tensor mm(const Tensor& other) const;
  Tensor bmm(const Tensor& other) const;
  Tensor mv(const Tensor& vector) const;
  Tensor dot(const Tensor& other) const;
  Tensor outer(const Tensor& other) const;
  Tensor addmm(const Tensor& a, const Tensor& b, const Scalar& beta = 1,
               const Scalar& alpha = 1) const;
  Tensor gather(int64_t dim, const Tensor& index) const;
  Tensor scatter(int64_t dim, const Tensor& index, const Tensor& source) const;
  Tensor scatter(int64_t dim, const Tensor& index, const Scalar& value) const;
  Tensor& scatter_(int64_t dim, const Tensor& index, const Tensor& source) const;
  Tensor& scatter_(int64_t dim, const Tensor& index, const Scalar& value) const;
  Tensor scatter_add(int64_t dim, const Tensor& index, const Tensor& source) const;
  Tensor& scatter_add_(int64_t dim, const Tensor& index, const Tensor& source) const;
  Tensor index_select(int64_t dim, const Tensor& index) const;
  Tensor index_add(int64_t dim, const Tensor& index, const Tensor& source) const;
  Tensor& index_add_(int64_t dim, const Tensor& index, const Tensor& source) const;
  Tensor masked_select(const Tensor& mask) const;
  Tensor nonzero() const;
  TensorPair sort(int64_t dim = -1, bool descending = false) const;
  Tensor argsort(int64_t dim = -1, bool descending = false) const;
  TensorPair topk(int64_t k, int64_t dim = -1, bool largest = true, bool sorted = true) const;
  Tensor tril(int64_t diagonal = 0) const;
  Tensor triu(int64_t diagonal = 0) const;

  // --- Gradients (autograd/) ---
  bool requires_grad() const;
  /// Only for leaves; throws for results of recorded ops.
  Tensor& set_requires_grad(bool requires_grad = true) const;
  Tensor& requires_grad_(bool requires_grad = true) const {
    return set_requires_grad(requires_grad);
  }
  bool is_leaf() const;
  /// The node that made this tensor; null for leaves. Brings the node of a stale view up to date.
  IntrusivePtr<Node> grad_fn() const;
  int output_nr() const;
  /// The accumulated gradient; undefined before the first backward pass.
  const Tensor& grad() const;
  Tensor& mutable_grad() const;
  void set_grad(Tensor grad) const;
  void reset_grad() const;
  void zero_grad(bool set_to_none = true) const;
  void backward(const Tensor& gradient = {}, std::optional<bool> retain_graph = {},
                bool create_graph = false,
                std::optional<std::span<const Tensor>> inputs = {}) const;
  void backward(const Tensor& gradient, std::optional<bool> retain_graph, bool create_graph,
                const std::vector<Tensor>& inputs) const;
  /// Keeps the gradient of a non-leaf in grad().
  void retain_grad() const;
  bool retains_grad() const;
  /// The same values without history. Shares memory and version counter.
  Tensor detach() const;
  Tensor& detach_() const;
  Tensor data() const { return detach(); }
  Tensor tensor_data() const { return detach(); }
  /// Makes this tensor use the memory, shape and type of `other`; hooks and identity stay.
  void set_data(const Tensor& other) const;
  bool is_view() const;
  /// The tensor this one is a differentiable view of; itself otherwise.
  Tensor _base() const;
  const std::string& name() const;
  void set_name(std::string name) const;
  bool is_inference() const { return impl().inference; }

  /// Calls `hook(grad)` or `hook(grad, context)` when this tensor's gradient is complete. A
  /// returned tensor replaces the gradient; returning nothing keeps it.
  template <class F>
  HookHandle register_hook(F&& hook, HookOptions options = {}) const;
  template <class F, HookName N>
  HookHandle register_hook(F&& hook, N&& name,
                           base::SourceLine site = std::source_location::current()) const {
    return register_hook(std::forward<F>(hook),
                         HookOptions{.name = std::forward<N>(name), .site = site});
  }
  /// Calls `hook(leaf)` after this leaf's grad() was updated. The hook returns nothing.
  template <class F>
  HookHandle register_post_accumulate_grad_hook(F&& hook, HookOptions options = {}) const;
  template <class F, HookName N>
  HookHandle register_post_accumulate_grad_hook(
      F&& hook, N&& name, base::SourceLine site = std::source_location::current()) const {
    return register_post_accumulate_grad_hook(
        std::forward<F>(hook), HookOptions{.name = std::forward<N>(name), .site = site});
  }
  void remove_hook(const HookHandle& handle) const;

  // --- For the library ---
  TensorImpl& impl() const {
    if (!impl_) [[unlikely]]
      undefined();
    return *impl_;
  }
  TensorImpl* impl_ptr() const { return impl_.get(); }
  const IntrusivePtr<TensorImpl>& handle() const { return impl_; }

 private:
  [[noreturn]] static void undefined();
  HookHandle add_tensor_hook(std::shared_ptr<TensorHook> hook, HookOptions options) const;
  HookHandle add_post_accumulate_hook(std::shared_ptr<PostAccumulateGradHook> hook,
                                      HookOptions options) const;
  friend struct HookAccess;

  IntrusivePtr<TensorImpl> impl_;
};

using TensorList = std::span<const Tensor>;
using Variable = Tensor;

std::ostream& operator<<(std::ostream& out, const Tensor& t);

/// What stands in the brackets of x[t] and x.index({...}). As a temporary of the call it lives
/// until the end of the expression, and knows until then of which part of x the result is a copy:
/// an assignment to the result is meant for x. See Note [Assignment to a temporary] in
/// functions/assign.cpp.
class IndexArgument {
 public:
  IndexArgument() = default;
  ~IndexArgument() {
    if (copied_ != nullptr) [[unlikely]]
      forget();
  }
  IndexArgument(const IndexArgument&) = delete;
  IndexArgument& operator=(const IndexArgument&) = delete;

  /// `copy` holds the rows of `view` at `positions`, counted through the dimensions `dims`.
  void remember(const Tensor& copy, Tensor view, const Shape& dims, Tensor positions) const;

 private:
  void forget() noexcept;
  mutable struct CopiedRows* copied_ = nullptr;
};

/// The tensor of positions, or the mask, in x[t].
class IndexTensor : public IndexArgument {
 public:
  IndexTensor(const Tensor& t) : tensor(t) {}
  const Tensor& tensor;
};

template <class T>
T* Tensor::data_ptr() const {
  check(dtype() == dtype_v<T>, "data_ptr: the tensor holds ", dtype(), ", asked for ", dtype_v<T>,
        ".\nConvert it first: t.to(", dtype_v<T>, ").");
  return static_cast<T*>(data_ptr());
}

/// A tensor's elements by index, without per-element checks. Valid while the tensor lives.
template <class T, size_t N>
class TensorAccessor {
 public:
  TensorAccessor(T* data, const int64_t* sizes, const int64_t* strides)
      : data_(data), sizes_(sizes), strides_(strides) {}
  int64_t size(int64_t dim) const { return sizes_[dim]; }
  int64_t stride(int64_t dim) const { return strides_[dim]; }
  IntArrayRef sizes() const { return {sizes_, N}; }
  T* data() const { return data_; }
  decltype(auto) operator[](int64_t i) const {
    if constexpr (N == 1) return (data_[i * strides_[0]]);
    else return TensorAccessor<T, N - 1>(data_ + i * strides_[0], sizes_ + 1, strides_ + 1);
  }

 private:
  T* data_;
  const int64_t* sizes_;
  const int64_t* strides_;
};

template <class T, size_t N>
TensorAccessor<T, N> Tensor::accessor() const {
  check(static_cast<size_t>(dim()) == N, "accessor: the tensor has ", dim(),
        " dimensions, asked for ", N, ".");
  check(is_cpu(), "accessor: these values are on ", device(), ".\nCopy them first: t.cpu().");
  return {data_ptr<T>(), impl().sizes.begin(), impl().strides.begin()};
}

}  // namespace grapnel

#include "grapnel/tensor/hook_callable.h"
