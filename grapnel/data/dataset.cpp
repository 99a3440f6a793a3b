#include "grapnel/data/dataset.h"

#include <algorithm>

#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"
#include "grapnel/ops/vectors.h"

namespace grapnel::data {

Example Dataset::get_batch(std::span<const int64_t> indices, std::span<Generator> randoms) const {
  std::vector<Tensor> data, target;
  for (size_t i = 0; i < indices.size(); ++i) {
    Example e = get(indices[i], randoms[i]);
    check(e.data.defined(), "Dataset: example ", indices[i], " has no data.");
    data.push_back(std::move(e.data));
    if (e.target.defined()) target.push_back(std::move(e.target));
  }
  check(target.empty() || target.size() == data.size(), "Dataset: of ", data.size(),
        " examples in a batch only ", target.size(), " have a target.");
  return {stack(data), target.empty() ? Tensor() : stack(target)};
}

void Dataset::check_index(int64_t index) const {
  check(index >= 0 && index < size(), "Dataset: example ", index, " was asked for, but there are ",
        size(), ".");
}

TensorDataset::TensorDataset(Tensor data, Tensor target)
    : data_(std::move(data)), target_(std::move(target)) {
  check(data_.dim() >= 1 &&
            (!target_.defined() || (target_.dim() >= 1 && target_.size(0) == data_.size(0))),
        "TensorDataset: data and target need one row per example, got shapes ", data_.shape(),
        " and ", target_.defined() ? target_.shape() : Shape(), ".");
}

Example TensorDataset::get(int64_t index, Generator&) const {
  check_index(index);
  return {data_[index], target_.defined() ? target_[index] : Tensor()};
}

Example TensorDataset::get_batch(std::span<const int64_t> indices, std::span<Generator>) const {
  for (const int64_t i : indices) check_index(i);
  const Tensor rows =
      from_vector(std::vector<int64_t>(indices.begin(), indices.end())).to(data_.device());
  return {data_.index_select(0, rows),
          target_.defined() ? target_.index_select(0, rows) : Tensor()};
}

namespace {

class MapDataset : public Dataset {
 public:
  MapDataset(DatasetPtr inner, std::function<Example(Example, Generator&)> fn)
      : inner_(std::move(inner)), fn_(std::move(fn)) {}
  int64_t size() const override { return inner_->size(); }
  Example get(int64_t index, Generator& random) const override {
    return fn_(inner_->get(index, random), random);
  }

 private:
  DatasetPtr inner_;
  std::function<Example(Example, Generator&)> fn_;
};

class SubsetDataset : public Dataset {
 public:
  SubsetDataset(DatasetPtr inner, std::vector<int64_t> indices)
      : inner_(std::move(inner)), indices_(std::move(indices)) {
    for (const int64_t i : indices_)
      check(i >= 0 && i < inner_->size(), "subset: example ", i, " was asked for, but there are ",
            inner_->size(), ".");
  }
  int64_t size() const override { return static_cast<int64_t>(indices_.size()); }
  Example get(int64_t index, Generator& random) const override {
    check_index(index);
    return inner_->get(indices_[static_cast<size_t>(index)], random);
  }
  Example get_batch(std::span<const int64_t> indices, std::span<Generator> randoms) const override {
    std::vector<int64_t> inner;
    for (const int64_t i : indices) {
      check_index(i);
      inner.push_back(indices_[static_cast<size_t>(i)]);
    }
    return inner_->get_batch(inner, randoms);
  }

 private:
  DatasetPtr inner_;
  std::vector<int64_t> indices_;
};

}  // namespace

DatasetPtr map(DatasetPtr dataset, std::function<Example(Example, Generator&)> fn) {
  return std::make_shared<MapDataset>(std::move(dataset), std::move(fn));
}
DatasetPtr subset(DatasetPtr dataset, std::vector<int64_t> indices) {
  return std::make_shared<SubsetDataset>(std::move(dataset), std::move(indices));
}

}  // namespace grapnel::data
