/// torch::data::transforms: what `dataset.map(...)` does to the examples of a batch.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "grapnel/compat/data/example.h"

namespace torch::data::transforms {

/// From a batch to a batch.
template <class InputBatch, class OutputBatch>
class BatchTransform {
 public:
  using InputBatchType = InputBatch;
  using OutputBatchType = OutputBatch;
  virtual ~BatchTransform() = default;
  virtual OutputBatch apply_batch(InputBatch input_batch) = 0;
};

/// From an example to an example.
template <class Input, class Output>
class Transform : public BatchTransform<std::vector<Input>, std::vector<Output>> {
 public:
  using InputType = Input;
  using OutputType = Output;
  virtual Output apply(Input input) = 0;
  std::vector<Output> apply_batch(std::vector<Input> input_batch) override {
    std::vector<Output> out;
    out.reserve(input_batch.size());
    for (Input& input : input_batch) out.push_back(apply(std::move(input)));
    return out;
  }
};

/// A function from a batch to a batch.
template <class Input, class Output = Input>
class BatchLambda : public BatchTransform<Input, Output> {
 public:
  using FunctionType = std::function<Output(Input)>;
  explicit BatchLambda(FunctionType function) : function_(std::move(function)) {}
  Output apply_batch(Input input_batch) override { return function_(std::move(input_batch)); }

 private:
  FunctionType function_;
};

/// A function from an example to an example.
template <class Input, class Output = Input>
class Lambda : public Transform<Input, Output> {
 public:
  using FunctionType = std::function<Output(Input)>;
  explicit Lambda(FunctionType function) : function_(std::move(function)) {}
  Output apply(Input input) override { return function_(std::move(input)); }

 private:
  FunctionType function_;
};

/// Changes the data of an example and leaves its target.
template <class Target = grapnel::Tensor>
class TensorTransform
    : public Transform<Example<grapnel::Tensor, Target>, Example<grapnel::Tensor, Target>> {
 public:
  using E = Example<grapnel::Tensor, Target>;
  virtual grapnel::Tensor operator()(grapnel::Tensor input) = 0;
  E apply(E input) override {
    input.data = (*this)(std::move(input.data));
    return input;
  }
};

/// A function of the data.
template <class Target = grapnel::Tensor>
class TensorLambda : public TensorTransform<Target> {
 public:
  using FunctionType = std::function<grapnel::Tensor(grapnel::Tensor)>;
  explicit TensorLambda(FunctionType function) : function_(std::move(function)) {}
  grapnel::Tensor operator()(grapnel::Tensor input) override { return function_(std::move(input)); }

 private:
  FunctionType function_;
};

/// Subtracts a mean and divides by a standard deviation: one number each, or one for every channel.
template <class Target = grapnel::Tensor>
class Normalize : public TensorTransform<Target> {
 public:
  Normalize(const std::vector<double>& mean, const std::vector<double>& stddev)
      : mean_(column(mean)), stddev_(column(stddev)) {}
  Normalize(std::initializer_list<double> mean, std::initializer_list<double> stddev)
      : Normalize(std::vector<double>(mean), std::vector<double>(stddev)) {}
  Normalize(double mean, double stddev)
      : Normalize(std::vector<double>{mean}, std::vector<double>{stddev}) {}
  grapnel::Tensor operator()(grapnel::Tensor input) override {
    return (input - mean_.to(input.dtype())) / stddev_.to(input.dtype());
  }

 private:
  static grapnel::Tensor column(const std::vector<double>& numbers) {
    return grapnel::tensor(numbers, grapnel::kFloat64).view({-1, 1, 1});
  }
  grapnel::Tensor mean_, stddev_;
};

/// From a list of examples to one.
template <class T, class BatchType = std::vector<T>>
using Collation = BatchTransform<BatchType, T>;
template <class T, class BatchType = std::vector<T>>
using Collate = BatchLambda<BatchType, T>;

/// Examples as one, stacked along a new first dimension.
template <class T = Example<>>
class Stack;
template <>
class Stack<Example<>> : public Collation<Example<>> {
 public:
  Example<> apply_batch(std::vector<Example<>> examples) override {
    std::vector<grapnel::Tensor> data, targets;
    for (Example<>& e : examples) {
      data.push_back(std::move(e.data));
      targets.push_back(std::move(e.target));
    }
    return {grapnel::stack(data), grapnel::stack(targets)};
  }
};
template <>
class Stack<TensorExample> : public Collation<TensorExample> {
 public:
  TensorExample apply_batch(std::vector<TensorExample> examples) override {
    std::vector<grapnel::Tensor> data;
    for (TensorExample& e : examples) data.push_back(std::move(e.data));
    return {grapnel::stack(data)};
  }
};

}  // namespace torch::data::transforms
