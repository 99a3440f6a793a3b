/// Datasets: numbered examples, and what is made of them.
///
///   struct Squares : data::Dataset {
///     int64_t size() const override { return 100; }
///     data::Example get(int64_t i, Generator&) const override {
///       return {full({1}, i), full({1}, i * i)};
///     }
///   };
///   auto noisy = data::map(std::make_shared<Squares>(),
///                          [](data::Example e, Generator& g) { return ...; });
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "grapnel/functions/generator.h"
#include "grapnel/tensor/tensor.h"

namespace grapnel::data {

/// One example, or a batch of them stacked along a new first dimension. The target may be
/// undefined.
struct Example {
  Tensor data;
  Tensor target = {};
};

/// Several threads read at the same time.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  /// Random changes to an example draw from `random`, which the loader derives from its seed, the
  /// epoch and the index: the same whatever the number of workers.
  virtual Example get(int64_t index, Generator& random) const = 0;
  /// A batch. Override it where the examples are at hand together; `randoms` has one generator per
  /// index.
  virtual Example get_batch(std::span<const int64_t> indices, std::span<Generator> randoms) const;

 protected:
  void check_index(int64_t index) const;
};
using DatasetPtr = std::shared_ptr<const Dataset>;

/// Rows of tensors that are in memory: row i of `data` belongs to row i of `target`.
class TensorDataset : public Dataset {
 public:
  explicit TensorDataset(Tensor data, Tensor target = {});
  int64_t size() const override { return data_.size(0); }
  Example get(int64_t index, Generator& random) const override;
  Example get_batch(std::span<const int64_t> indices, std::span<Generator> randoms) const override;
  const Tensor& data() const { return data_; }
  const Tensor& target() const { return target_; }

 private:
  Tensor data_, target_;
};

/// A dataset whose examples go through a function.
DatasetPtr map(DatasetPtr dataset, std::function<Example(Example, Generator&)> fn);
/// Some examples of a dataset, in the given order.
DatasetPtr subset(DatasetPtr dataset, std::vector<int64_t> indices);

}  // namespace grapnel::data
