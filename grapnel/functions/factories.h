/// Making tensors: from values, by rule, at random, or over memory that exists already. LibTorch's
/// names and arguments.
///
///   tensor({{1.0, 2.0}, {3.0, 4.0}})     zeros({2, 3})
///   ones({2}, requires_grad())           randn({8}, kFloat64)
#pragma once

#include <functional>
#include <optional>

#include "grapnel/functions/generator.h"
#include "grapnel/functions/nested_values.h"
#include "grapnel/tensor/tensor.h"

namespace grapnel {

/// A tensor of the values written down. Unless `options` says otherwise, integers give i64, bools
/// bool, float and double the default floating type, u8 and the half types their own; mixed types
/// are promoted.
Tensor tensor(const NestedValues& values, const TensorOptions& options = {});

/// Uninitialised memory.
Tensor empty(IntArrayRef sizes, const TensorOptions& options = {});
/// Uninitialised memory with the strides named.
Tensor empty_strided(IntArrayRef sizes, IntArrayRef strides, const TensorOptions& options = {});
/// Zeros.
Tensor zeros(IntArrayRef sizes, const TensorOptions& options = {});
/// Ones.
Tensor ones(IntArrayRef sizes, const TensorOptions& options = {});
/// Unless told otherwise the type follows `value`, as in tensor().
Tensor full(IntArrayRef sizes, const Scalar& value, const TensorOptions& options = {});
/// A 0-dimensional tensor.
Tensor scalar_tensor(const Scalar& value, const TensorOptions& options = {});
/// start, start + step, ... up to and without end. i64 if all three are integers.
Tensor arange(const Scalar& end, const TensorOptions& options = {});
Tensor arange(const Scalar& start, const Scalar& end, const TensorOptions& options = {});
Tensor arange(const Scalar& start, const Scalar& end, const Scalar& step,
              const TensorOptions& options = {});
/// `steps` evenly spaced numbers, both ends included.
Tensor linspace(const Scalar& start, const Scalar& end, int64_t steps,
                const TensorOptions& options = {});
/// Powers of `base` with evenly spaced exponents, from base^start to base^end.
Tensor logspace(const Scalar& start, const Scalar& end, int64_t steps, double base = 10,
                const TensorOptions& options = {});
/// Ones on the diagonal.
Tensor eye(int64_t n, const TensorOptions& options = {});
Tensor eye(int64_t rows, int64_t columns, const TensorOptions& options = {});

/// Uniform in [0, 1).
Tensor rand(IntArrayRef sizes, const TensorOptions& options = {});
Tensor rand(IntArrayRef sizes, std::optional<Generator> generator,
            const TensorOptions& options = {});
/// Normal, mean 0 and variance 1.
Tensor randn(IntArrayRef sizes, const TensorOptions& options = {});
Tensor randn(IntArrayRef sizes, std::optional<Generator> generator,
             const TensorOptions& options = {});
/// Whole numbers in [low, high), as i64 unless told otherwise.
Tensor randint(int64_t high, IntArrayRef sizes, const TensorOptions& options = {});
Tensor randint(int64_t low, int64_t high, IntArrayRef sizes, const TensorOptions& options = {});
Tensor randint(int64_t low, int64_t high, IntArrayRef sizes, std::optional<Generator> generator,
               const TensorOptions& options = {});
/// The numbers 0 to n - 1 in random order.
Tensor randperm(int64_t n, const TensorOptions& options = {});
Tensor randperm(int64_t n, std::optional<Generator> generator, const TensorOptions& options = {});

/// Contiguous tensors with the shape of `x`, and its type unless told otherwise.
Tensor empty_like(const Tensor& x, const TensorOptions& options = {});
/// Zeros in the shape of `x`.
Tensor zeros_like(const Tensor& x, const TensorOptions& options = {});
/// Ones in the shape of `x`.
Tensor ones_like(const Tensor& x, const TensorOptions& options = {});
/// `value` in the shape of `x`.
Tensor full_like(const Tensor& x, const Scalar& value, const TensorOptions& options = {});
/// Uniform in [0, 1), in the shape of `x`.
Tensor rand_like(const Tensor& x, const TensorOptions& options = {});
/// Normal, in the shape of `x`.
Tensor randn_like(const Tensor& x, const TensorOptions& options = {});
/// Whole numbers in [low, high), in the shape of `x`.
Tensor randint_like(const Tensor& x, int64_t high, const TensorOptions& options = {});
Tensor randint_like(const Tensor& x, int64_t low, int64_t high, const TensorOptions& options = {});

/// A tensor over the caller's memory, which must live as long as the tensor and its views;
/// `deleter` runs after the last.
using Deleter = std::function<void(void*)>;
/// A tensor over memory of the caller; see Deleter for how long that has to live.
Tensor from_blob(void* data, IntArrayRef sizes, const TensorOptions& options = {});
Tensor from_blob(void* data, IntArrayRef sizes, const Deleter& deleter,
                 const TensorOptions& options = {});
Tensor from_blob(void* data, IntArrayRef sizes, IntArrayRef strides,
                 const TensorOptions& options = {});
Tensor from_blob(void* data, IntArrayRef sizes, IntArrayRef strides, const Deleter& deleter,
                 const TensorOptions& options = {});
/// The owner of the memory of `t`, which came from from_blob, promises that nobody else changes it
/// from the moment a recorded op sees it until the recorded calls have run. A compiled function then
/// reads the memory where it lies; without the promise it reads a copy, made at every call.
void declare_stable(const Tensor& t);

}  // namespace grapnel
