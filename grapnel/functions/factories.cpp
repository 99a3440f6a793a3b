#include "grapnel/functions/factories.h"

#include <cmath>
#include <cstring>

#include "grapnel/functions/random.h"
#include "grapnel/math/convert.h"
#include "grapnel/math/scalar.h"
#include "grapnel/ops/attr_check.h"
#include "grapnel/ops/evaluator.h"
#include "grapnel/ops/number_operand.h"
#include "grapnel/ops/op_site.h"
#include "grapnel/ops/record.h"
#include "grapnel/ops/tape.h"

namespace grapnel {

namespace {

/// The last step of every factory: marks the result as its options and the mode of this thread ask.
Tensor finish(Tensor t, const TensorOptions& options) {
  if (InferenceMode::is_enabled()) t.impl().inference = true;
  if (options.requires_grad()) t.set_requires_grad(true);
  return t;
}

Tensor fresh(IntArrayRef sizes, DType dtype, Device device) {
  return Tensor(TensorImpl::empty(Shape(sizes), dtype, device));
}

/// Memory that the caller fills at once, by an op.
Tensor fresh_for_op(IntArrayRef sizes, DType dtype, Device device) {
  return evaluator(device).empty({Shape(sizes), dtype, device});
}

Tensor filled(IntArrayRef sizes, DType dtype, Device device, const Scalar& value) {
  const Tensor t = fresh_for_op(sizes, dtype, device);
  copy_elements(t, NumberOperand(value));
  return t;
}

/// The last step for values that were written on the CPU.
Tensor moved(const Tensor& values, const TensorOptions& options) {
  return finish(values.to(options.device()), options);
}

DType natural_dtype(const Scalar& value) {
  return value.is_floating() ? get_default_dtype() : value.dtype();
}
TensorOptions like(const Tensor& x, const TensorOptions& options) {
  return options.dtype(options.dtype_or(x.dtype())).device(options.device_or(x.device()));
}
Generator* pointer(std::optional<Generator>& generator) {
  return generator ? &*generator : nullptr;
}

template <class T>
T element_of(const Scalar& value) {
  return value.is_floating() ? convert<T>(value.to_double()) : convert<T>(value.to_int());
}

/// How many elements of memory a tensor of these sizes and strides reaches over.
int64_t span_of(const char* what, IntArrayRef sizes, IntArrayRef strides) {
  check(sizes.size() == strides.size(), what, ": ", sizes.size(), " sizes ", sizes, " but ",
        strides.size(), " strides ", strides, ".");
  int64_t elements = checked_numel(sizes, what) > 0 ? 1 : 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    check(strides[i] >= 0, what, ": strides must not be negative, got ", strides,
          ".\nUse flip() to walk backwards.");
    check(strides[i] <= attrs::kFarthest, what, ": stride ", strides[i],
          " is larger than any memory.");
    if (elements > 0)
      elements = checked_add(elements, checked_mul(sizes[i] - 1, strides[i], what), what);
  }
  return elements;
}

/// Elements i = 0, 1, ... of a one-dimensional tensor as fn(i), computed in f64 or i64 and rounded
/// once.
template <class Fn>
Tensor by_rule(int64_t count, DType dtype, Fn fn) {
  const Tensor t = fresh({count}, dtype, kCPU);
  visit_dtype(dtype, [&]<class T>() {
    T* out = t.data_ptr<T>();
    for (int64_t i = 0; i < count; ++i) out[i] = convert<T>(fn(i));
  });
  return t;
}

}  // namespace

Tensor tensor(const NestedValues& values, const TensorOptions& options) {
  const Tensor t = fresh(values.shape(), options.dtype_or(values.dtype()), kCPU);
  visit_dtype(t.dtype(), [&]<class T>() {
    T* out = t.data_ptr<T>();
    values.for_each([&](const Scalar& value) { *out++ = element_of<T>(value); });
  });
  return moved(t, options);
}

Tensor empty(IntArrayRef sizes, const TensorOptions& options) {
  return finish(fresh(sizes, options.dtype(), options.device()), options);
}

Tensor empty_strided(IntArrayRef sizes, IntArrayRef strides, const TensorOptions& options) {
  const int64_t elements = span_of("empty_strided", sizes, strides);
  const Tensor memory = fresh({elements}, options.dtype(), options.device());
  return finish(Tensor(TensorImpl::create(memory.impl().storage, options.dtype(), Shape(sizes),
                                          Shape(strides))),
                options);
}

Tensor zeros(IntArrayRef sizes, const TensorOptions& options) {
  GRAPNEL_CALL_SITE;
  return finish(filled(sizes, options.dtype(), options.device(), 0), options);
}
Tensor ones(IntArrayRef sizes, const TensorOptions& options) {
  GRAPNEL_CALL_SITE;
  return finish(filled(sizes, options.dtype(), options.device(), 1), options);
}
Tensor full(IntArrayRef sizes, const Scalar& value, const TensorOptions& options) {
  GRAPNEL_CALL_SITE;
  return finish(filled(sizes, options.dtype_or(natural_dtype(value)), options.device(), value),
                options);
}
Tensor scalar_tensor(const Scalar& value, const TensorOptions& options) {
  GRAPNEL_CALL_SITE;
  return finish(filled({}, options.dtype(), options.device(), value), options);
}

Tensor arange(const Scalar& end, const TensorOptions& options) {
  GRAPNEL_CALL_SITE;
  return arange(0, end, 1, options);
}
Tensor arange(const Scalar& start, const Scalar& end, const TensorOptions& options) {
  GRAPNEL_CALL_SITE;
  return arange(start, end, 1, options);
}
Tensor arange(const Scalar& start, const Scalar& end, const Scalar& step,
              const TensorOptions& options) {
  GRAPNEL_CALL_SITE;
  const bool whole = start.is_integral() && end.is_integral() && step.is_integral();
  const DType dtype = options.dtype_or(whole ? kInt64 : get_default_dtype());
  const double from = start.to_double(), to = end.to_double(), by = step.to_double();
  check(by != 0 && std::isfinite(from) && std::isfinite(to) && std::isfinite(by), "arange: from ",
        start, " to ", end, " in steps of ", step, " is no finite sequence.");
  check(by > 0 ? from <= to : from >= to, "arange: steps of ", step, " lead from ", start,
        " away from ", end, ".");
  if (whole) {
    const int64_t first = start.to_int(), stride = step.to_int();
    // Unsigned and wrapping, because the distance of two numbers may not fit in 63 bits.
    const uint64_t distance =
        stride > 0 ? static_cast<uint64_t>(end.to_int()) - static_cast<uint64_t>(first)
                   : static_cast<uint64_t>(first) - static_cast<uint64_t>(end.to_int());
    const uint64_t pace =
        stride > 0 ? static_cast<uint64_t>(stride) : -static_cast<uint64_t>(stride);
    const auto count = checked_cast<int64_t>(distance / pace + (distance % pace != 0), "arange");
    const auto at = [=](int64_t i) { return (wrapping(first) + wrapping(i) * wrapping(stride)).v; };
    return moved(by_rule(count, dtype, at), options);
  }
  const double count = std::ceil((to - from) / by);
  check(count < 9.2e18, "arange: from ", start, " to ", end, " in steps of ", step,
        " has too many elements.");
  return moved(by_rule(static_cast<int64_t>(count), dtype,
                       [=](int64_t i) { return from + static_cast<double>(i) * by; }),
               options);
}

Tensor linspace(const Scalar& start, const Scalar& end, int64_t steps,
                const TensorOptions& options) {
  GRAPNEL_CALL_SITE;
  check(steps >= 0, "linspace: the number of steps must not be negative, got ", steps, ".");
  const double from = start.to_double(), to = end.to_double();
  const double by = steps > 1 ? (to - from) / static_cast<double>(steps - 1) : 0;
  // From the nearer end, so that the last number is `end` exactly and the sequence is symmetric.
  return moved(by_rule(steps, options.dtype(),
                       [=](int64_t i) {
                         return i < (steps + 1) / 2 ? from + static_cast<double>(i) * by
                                                    : to - static_cast<double>(steps - 1 - i) * by;
                       }),
               options);
}

Tensor eye(int64_t n, const TensorOptions& options) {
  GRAPNEL_CALL_SITE;
  return eye(n, n, options);
}
Tensor eye(int64_t rows, int64_t columns, const TensorOptions& options) {
  GRAPNEL_CALL_SITE;
  const record::Suspend at_once;
  const Tensor t = zeros({rows, columns}, TensorOptions(options.dtype()).device(kCPU));
  visit_dtype(t.dtype(), [&]<class T>() {
    for (int64_t i = 0; i < std::min(rows, columns); ++i)
      t.data_ptr<T>()[i * columns + i] = convert<T>(int64_t{1});
  });
  return moved(t, options);
}

// --- random ---

Tensor rand(IntArrayRef sizes, const TensorOptions& options) {
  GRAPNEL_CALL_SITE;
  return rand(sizes, std::nullopt, options);
}
Tensor rand(IntArrayRef sizes, std::optional<Generator> generator, const TensorOptions& options) {
  GRAPNEL_CALL_SITE;
  return finish(random::uniform_(fresh_for_op(sizes, options.dtype(), options.device()), 0, 1,
                                 pointer(generator)),
                options);
}
Tensor randn(IntArrayRef sizes, const TensorOptions& options) {
  GRAPNEL_CALL_SITE;
  return randn(sizes, std::nullopt, options);
}
Tensor randn(IntArrayRef sizes, std::optional<Generator> generator, const TensorOptions& options) {
  GRAPNEL_CALL_SITE;
  return finish(random::normal_(fresh_for_op(sizes, options.dtype(), options.device()), 0, 1,
                                pointer(generator)),
                options);
}
Tensor randint(int64_t high, IntArrayRef sizes, const TensorOptions& options) {
  GRAPNEL_CALL_SITE;
  return randint(0, high, sizes, options);
}
Tensor randint(int64_t low, int64_t high, IntArrayRef sizes, const TensorOptions& options) {
  GRAPNEL_CALL_SITE;
  return randint(low, high, sizes, std::nullopt, options);
}
Tensor randint(int64_t low, int64_t high, IntArrayRef sizes, std::optional<Generator> generator,
               const TensorOptions& options) {
  GRAPNEL_CALL_SITE;
  return finish(random::random_(fresh_for_op(sizes, options.dtype_or(kInt64), options.device()),
                                low, high, pointer(generator)),
                options);
}
Tensor randperm(int64_t n, const TensorOptions& options) {
  GRAPNEL_CALL_SITE;
  return randperm(n, std::nullopt, options);
}
Tensor randperm(int64_t n, std::optional<Generator> generator, const TensorOptions& options) {
  GRAPNEL_CALL_SITE;
  return finish(random::shuffle_(fresh_for_op({n}, options.dtype_or(kInt64), options.device()),
                                 pointer(generator)),
                options);
}

// --- like another tensor ---

Tensor empty_like(const Tensor& x, const TensorOptions& options) {
  return empty(x.sizes(), like(x, options));
}
Tensor zeros_like(const Tensor& x, const TensorOptions& options) {
  GRAPNEL_CALL_SITE;
  return zeros(x.sizes(), like(x, options));
}
Tensor ones_like(const Tensor& x, const TensorOptions& options) {
  GRAPNEL_CALL_SITE;
  return ones(x.sizes(), like(x, options));
}
Tensor full_like(const Tensor& x, const Scalar& value, const TensorOptions& options) {
  GRAPNEL_CALL_SITE;
  return full(x.sizes(), value, like(x, options));
}
Tensor rand_like(const Tensor& x, const TensorOptions& options) {
  GRAPNEL_CALL_SITE;
  return rand(x.sizes(), like(x, options));
}
Tensor randn_like(const Tensor& x, const TensorOptions& options) {
  GRAPNEL_CALL_SITE;
  return randn(x.sizes(), like(x, options));
}
Tensor randint_like(const Tensor& x, int64_t high, const TensorOptions& options) {
  GRAPNEL_CALL_SITE;
  return randint(0, high, x.sizes(), like(x, options));
}
Tensor randint_like(const Tensor& x, int64_t low, int64_t high, const TensorOptions& options) {
  GRAPNEL_CALL_SITE;
  return randint(low, high, x.sizes(), like(x, options));
}

// --- memory of the caller ---

Tensor from_blob(void* data, IntArrayRef sizes, const TensorOptions& options) {
  return from_blob(data, sizes, Deleter(), options);
}
Tensor from_blob(void* data, IntArrayRef sizes, const Deleter& deleter,
                 const TensorOptions& options) {
  checked_numel(sizes, "from_blob");
  return from_blob(data, sizes, contiguous_strides(Shape(sizes)), deleter, options);
}
Tensor from_blob(void* data, IntArrayRef sizes, IntArrayRef strides, const TensorOptions& options) {
  return from_blob(data, sizes, strides, Deleter(), options);
}
Tensor from_blob(void* data, IntArrayRef sizes, IntArrayRef strides, const Deleter& deleter,
                 const TensorOptions& options) {
  const int64_t elements = span_of("from_blob", sizes, strides);
  check(data || elements == 0, "from_blob: the memory is null, but a tensor of shape ", sizes,
        " has elements.");
  const size_t bytes =
      checked_mul(static_cast<size_t>(elements), element_size(options.dtype()), "from_blob");
  return finish(
      Tensor(TensorImpl::create(Storage::borrow(data, bytes, deleter, options.device_or(kCPU)),
                                options.dtype(), Shape(sizes), Shape(strides))),
      options);
}

void declare_stable(const Tensor& t) {
  check(
      t.defined(),
      "declare_stable: the tensor is undefined, so there is no memory to promise anything about.");
  t.impl().storage->declare_stable();
}

}  // namespace grapnel
