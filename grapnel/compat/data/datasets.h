/// torch::data::datasets: numbered examples, batches of them, and MNIST.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "grapnel/compat/data/example.h"
#include "grapnel/compat/serialize.h"
#include "grapnel/data/idx.h"

namespace torch::data::datasets {

template <class SourceDataset, class AppliedTransform>
class MapDataset;

template <class Source, class Transform>
MapDataset<std::decay_t<Source>, std::decay_t<Transform>> map(Source&& dataset,
                                                              Transform&& transform) {
  return {std::forward<Source>(dataset), std::forward<Transform>(transform)};
}

/// Gives a batch for a request: for a list of indices, usually.
template <class Self, class Batch, class BatchRequest = c10::ArrayRef<size_t>>
class BatchDataset {
 public:
  using SelfType = Self;
  using BatchType = Batch;
  using BatchRequestType = BatchRequest;
  static constexpr bool is_stateful = false;

  virtual ~BatchDataset() = default;
  virtual Batch get_batch(BatchRequest request) = 0;
  /// Nothing where nobody knows.
  virtual std::optional<size_t> size() const = 0;

  /// This dataset with each batch changed by a transform.
  template <class Transform>
  auto map(Transform transform) & {
    return datasets::map(static_cast<Self&>(*this), std::move(transform));
  }
  template <class Transform>
  auto map(Transform transform) && {
    return datasets::map(std::move(static_cast<Self&>(*this)), std::move(transform));
  }
};

/// Gives an example for an index; a batch is a list of them.
template <class Self, class SingleExample = Example<>>
class Dataset : public BatchDataset<Self, std::vector<SingleExample>> {
 public:
  using ExampleType = SingleExample;
  virtual ExampleType get(size_t index) = 0;
  std::vector<ExampleType> get_batch(c10::ArrayRef<size_t> indices) override {
    std::vector<ExampleType> out;
    out.reserve(indices.size());
    for (const size_t i : indices) out.push_back(get(i));
    return out;
  }
};

/// Gives the next so many examples.
template <class Self, class Batch = std::vector<Example<>>>
using StreamDataset = BatchDataset<Self, Batch, size_t>;

/// A dataset that remembers how far it has been read: the loader asks it alone, and starts it again
/// for every epoch.
template <class Self, class Batch = std::vector<Example<>>, class BatchRequest = size_t>
class StatefulDataset : public BatchDataset<Self, std::optional<Batch>, BatchRequest> {
 public:
  static constexpr bool is_stateful = true;
  virtual void reset() = 0;
  /// Where it is in its epoch, to go on from there. A dataset without such a place has nothing to do.
  virtual void save(serialize::OutputArchive&) const {}
  virtual void load(serialize::InputArchive&) {}
};

/// The rows of one tensor.
class TensorDataset : public Dataset<TensorDataset, TensorExample> {
 public:
  explicit TensorDataset(const std::vector<grapnel::Tensor>& tensors)
      : TensorDataset(grapnel::stack(tensors)) {}
  explicit TensorDataset(grapnel::Tensor rows) : tensor(std::move(rows)) {}
  TensorExample get(size_t index) override { return {tensor[static_cast<int64_t>(index)]}; }
  std::optional<size_t> size() const override { return static_cast<size_t>(tensor.size(0)); }

  grapnel::Tensor tensor;
};

/// One dataset that all copies share, as those of the workers are.
template <class Shared>
class SharedBatchDataset
    : public BatchDataset<SharedBatchDataset<Shared>, typename Shared::BatchType,
                          typename Shared::BatchRequestType> {
 public:
  static constexpr bool is_stateful = Shared::is_stateful;
  SharedBatchDataset(std::shared_ptr<Shared> dataset) : dataset_(std::move(dataset)) {}
  typename Shared::BatchType get_batch(typename Shared::BatchRequestType request) override {
    return dataset_->get_batch(std::move(request));
  }
  std::optional<size_t> size() const override { return dataset_->size(); }
  void reset()
    requires(Shared::is_stateful)
  {
    dataset_->reset();
  }
  Shared& operator*() { return *dataset_; }
  const Shared& operator*() const { return *dataset_; }
  Shared* operator->() { return dataset_.get(); }
  const Shared* operator->() const { return dataset_.get(); }

 private:
  std::shared_ptr<Shared> dataset_;
};
template <class Shared, class... A>
SharedBatchDataset<Shared> make_shared_dataset(A&&... arguments) {
  return {std::make_shared<Shared>(std::forward<A>(arguments)...)};
}

namespace detail {
template <class T>
struct WithoutOptional {
  using type = T;
};
template <class T>
struct WithoutOptional<std::optional<T>> {
  using type = T;
};
}  // namespace detail

/// A dataset, and what is done to each of its batches.
template <class SourceDataset, class AppliedTransform>
class MapDataset : public BatchDataset<
                       MapDataset<SourceDataset, AppliedTransform>,
                       std::conditional_t<SourceDataset::is_stateful,
                                          std::optional<typename AppliedTransform::OutputBatchType>,
                                          typename AppliedTransform::OutputBatchType>,
                       typename SourceDataset::BatchRequestType> {
 public:
  using DatasetType = SourceDataset;
  using TransformType = AppliedTransform;
  using BatchRequestType = typename SourceDataset::BatchRequestType;
  using OutputBatchType =
      std::conditional_t<SourceDataset::is_stateful,
                         std::optional<typename AppliedTransform::OutputBatchType>,
                         typename AppliedTransform::OutputBatchType>;
  static constexpr bool is_stateful = SourceDataset::is_stateful;

  MapDataset(SourceDataset dataset, AppliedTransform transform)
      : dataset_(std::move(dataset)), transform_(std::move(transform)) {}
  OutputBatchType get_batch(BatchRequestType request) override {
    if constexpr (is_stateful) {
      auto batch = dataset_.get_batch(std::move(request));
      if (!batch) return std::nullopt;
      return transform_.apply_batch(*std::move(batch));
    } else {
      return transform_.apply_batch(dataset_.get_batch(std::move(request)));
    }
  }
  std::optional<size_t> size() const override { return dataset_.size(); }
  void reset()
    requires(is_stateful)
  {
    dataset_.reset();
  }
  const SourceDataset& dataset() const { return dataset_; }
  const AppliedTransform& transform() const { return transform_; }

 private:
  SourceDataset dataset_;
  AppliedTransform transform_;
};

/// The handwritten digits: data f32 [1, 28, 28] in [0, 1], target i64. Files as they are published,
/// plain or with `.gz` at their end; Fashion-MNIST has the same names.
class MNIST : public Dataset<MNIST> {
 public:
  enum class Mode { kTrain, kTest };
  explicit MNIST(const std::string& root, Mode mode = Mode::kTrain)
      : images_(read(root, mode, "-images-idx3-ubyte", 3)),
        targets_(read(root, mode, "-labels-idx1-ubyte", 1).to(grapnel::kInt64)),
        train_(mode == Mode::kTrain) {
    grapnel::check(images_.size(0) == targets_.size(0), root, ": there are ", images_.size(0),
                   " images and ", targets_.size(0), " labels; one label per image is needed.");
    images_ = images_.unsqueeze(1).to(grapnel::kFloat32) / 255;
  }
  Example<> get(size_t index) override {
    const auto i = static_cast<int64_t>(index);
    return {images_[i], targets_[i]};
  }
  std::optional<size_t> size() const override { return static_cast<size_t>(images_.size(0)); }
  bool is_train() const noexcept { return train_; }
  /// All of them: f32 [count, 1, 28, 28].
  const grapnel::Tensor& images() const { return images_; }
  const grapnel::Tensor& targets() const { return targets_; }

 private:
  static grapnel::Tensor read(const std::string& root, Mode mode, const char* rest, size_t dims) {
    std::filesystem::path path = std::filesystem::path(root) /
                                 ((mode == Mode::kTrain ? "train" : "t10k") + std::string(rest));
    if (!std::filesystem::exists(path)) path += ".gz";
    grapnel::data::IdxArray array = grapnel::data::read_idx(path);
    grapnel::check(array.sizes.size() == dims, path.string(), ": has ", array.sizes.size(),
                   " dimensions, expected ", dims, ".");
    return grapnel::from_blob(array.bytes.data(), array.sizes, grapnel::kUInt8).clone();
  }
  grapnel::Tensor images_, targets_;
  bool train_;
};

}  // namespace torch::data::datasets
