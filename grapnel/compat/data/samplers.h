/// torch::data::samplers: which examples come next. Random orders come from the default generator, as
/// torch::manual_seed seeds it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "grapnel/compat/at.h"
#include "grapnel/compat/serialize.h"
#include "grapnel/ops/vectors.h"

namespace torch::data::samplers {

/// Says what the next batch is made of; nothing at the end of an epoch.
template <class BatchRequest = std::vector<size_t>>
class Sampler {
 public:
  using BatchRequestType = BatchRequest;
  virtual ~Sampler() = default;
  /// Begins a new epoch, of another size if it is given.
  virtual void reset(std::optional<size_t> new_size = {}) = 0;
  virtual std::optional<BatchRequest> next(size_t batch_size) = 0;
  /// Where it is in its epoch, to go on from there. A sampler without such a place has nothing to do.
  virtual void save(serialize::OutputArchive&) const {}
  virtual void load(serialize::InputArchive&) {}
};

namespace detail {
inline void save_index(serialize::OutputArchive& archive, size_t index) {
  archive.write("index", grapnel::tensor(static_cast<int64_t>(index)));
}
inline size_t load_index(serialize::InputArchive& archive) {
  grapnel::Tensor index;
  archive.read("index", index);
  return static_cast<size_t>(index.item<int64_t>());
}
}  // namespace detail

/// 0, 1, 2, ...
class SequentialSampler : public Sampler<> {
 public:
  explicit SequentialSampler(size_t size) : size_(size) {}
  void reset(std::optional<size_t> new_size = {}) override {
    size_ = new_size.value_or(size_);
    index_ = 0;
  }
  std::optional<std::vector<size_t>> next(size_t batch_size) override {
    const size_t count = std::min(batch_size, size_ - index_);
    if (count == 0) return std::nullopt;
    std::vector<size_t> out(count);
    for (size_t& i : out) i = index_++;
    return out;
  }
  void save(serialize::OutputArchive& archive) const override {
    detail::save_index(archive, index_);
  }
  void load(serialize::InputArchive& archive) override { index_ = detail::load_index(archive); }
  size_t index() const noexcept { return index_; }

 private:
  size_t size_, index_ = 0;
};

/// All examples in another order every epoch.
class RandomSampler : public Sampler<> {
 public:
  explicit RandomSampler(int64_t size, grapnel::ScalarType = grapnel::kInt64)
      : size_(static_cast<size_t>(size)) {
    draw();
  }
  void reset(std::optional<size_t> new_size = {}) override {
    size_ = new_size.value_or(size_);
    draw();
  }
  std::optional<std::vector<size_t>> next(size_t batch_size) override {
    const size_t count = std::min(batch_size, size_ - index_);
    if (count == 0) return std::nullopt;
    std::vector<size_t> out(count);
    for (size_t& i : out) i = static_cast<size_t>(order_[index_++]);
    return out;
  }
  void save(serialize::OutputArchive& archive) const override {
    detail::save_index(archive, index_);
    archive.write("order", grapnel::from_vector(order_));
  }
  void load(serialize::InputArchive& archive) override {
    index_ = detail::load_index(archive);
    grapnel::Tensor order;
    archive.read("order", order);
    order_ = grapnel::to_vector<int64_t>(order);
    size_ = order_.size();
  }
  size_t index() const noexcept { return index_; }

 private:
  void draw() {
    order_ = grapnel::to_vector<int64_t>(grapnel::randperm(static_cast<int64_t>(size_)));
    index_ = 0;
  }
  size_t size_, index_ = 0;
  std::vector<int64_t> order_;
};

/// The share of one of several processes: `num_replicas` of them get equally many examples each.
/// Without `allow_duplicates` the last few are left out where they do not divide evenly; with it
/// some are given twice.
template <class BatchRequest = std::vector<size_t>>
class DistributedSampler : public Sampler<BatchRequest> {
 public:
  explicit DistributedSampler(size_t size, size_t num_replicas = 1, size_t rank = 0,
                              bool allow_duplicates = true)
      : size_(size), num_replicas_(num_replicas), rank_(rank), allow_duplicates_(allow_duplicates) {
    grapnel::check(rank < num_replicas, "DistributedSampler: rank ", rank, " is not one of ",
                   num_replicas, " replicas.");
  }
  /// Another one for every epoch gives another order.
  void set_epoch(size_t epoch) { epoch_ = epoch; }
  size_t epoch() const { return epoch_; }

 protected:
  size_t local_sample_count() const {
    return allow_duplicates_ ? (size_ + num_replicas_ - 1) / num_replicas_ : size_ / num_replicas_;
  }
  size_t size_, num_replicas_, rank_, epoch_ = 0;
  bool allow_duplicates_;
};

namespace detail {
/// The share of a rank of some order of all examples: neighbours for the same rank.
template <bool random>
class DistributedOrder : public DistributedSampler<> {
 public:
  explicit DistributedOrder(size_t size, size_t num_replicas = 1, size_t rank = 0,
                            bool allow_duplicates = true)
      : DistributedSampler(size, num_replicas, rank, allow_duplicates) {
    draw();
  }
  void reset(std::optional<size_t> new_size = {}) override {
    size_ = new_size.value_or(size_);
    draw();
  }
  std::optional<std::vector<size_t>> next(size_t batch_size) override {
    const size_t count = std::min(batch_size, share_.size() - index_);
    if (count == 0) return std::nullopt;
    const auto from = share_.begin() + static_cast<ptrdiff_t>(index_);
    index_ += count;
    return std::vector<size_t>(from, from + static_cast<ptrdiff_t>(count));
  }
  void save(serialize::OutputArchive& archive) const override {
    save_index(archive, index_);
    archive.write("epoch", grapnel::tensor(static_cast<int64_t>(this->epoch())));
  }
  void load(serialize::InputArchive& archive) override {
    grapnel::Tensor epoch;
    archive.read("epoch", epoch);
    this->set_epoch(static_cast<size_t>(epoch.item<int64_t>()));
    draw();
    index_ = load_index(archive);
  }
  size_t index() const noexcept { return index_; }

 private:
  void draw() {
    std::vector<int64_t> order(size_);
    if constexpr (random) {
      // The same order on every rank, which are given their parts of it.
      grapnel::Generator generator(epoch_);
      order =
          grapnel::to_vector<int64_t>(grapnel::randperm(static_cast<int64_t>(size_), generator));
    } else {
      for (size_t i = 0; i < size_; ++i) order[i] = static_cast<int64_t>(i);
    }
    const size_t count = local_sample_count();
    share_.clear();
    for (size_t i = 0; i < count; ++i) {
      // Every so many examples for a random order, neighbours for one that is sequential.
      const size_t at = random ? i * num_replicas_ + rank_ : rank_ * count + i;
      share_.push_back(static_cast<size_t>(order[at % size_]));
    }
    index_ = 0;
  }
  std::vector<size_t> share_;
  size_t index_ = 0;
};
}  // namespace detail
using DistributedRandomSampler = detail::DistributedOrder<true>;
using DistributedSequentialSampler = detail::DistributedOrder<false>;

/// How many examples a batch of a stream holds.
struct BatchSize {
  explicit BatchSize(size_t n) : size(n) {}
  operator size_t() const noexcept { return size; }
  size_t size;
};
/// Asks a stream for as many examples as its epoch has.
class StreamSampler : public Sampler<BatchSize> {
 public:
  explicit StreamSampler(size_t epoch_size) : epoch_size_(epoch_size) {}
  void reset(std::optional<size_t> new_size = {}) override {
    epoch_size_ = new_size.value_or(epoch_size_);
    asked_ = 0;
  }
  std::optional<BatchSize> next(size_t batch_size) override {
    const size_t count = std::min(batch_size, epoch_size_ - asked_);
    if (count == 0) return std::nullopt;
    asked_ += count;
    return BatchSize(count);
  }
  void save(serialize::OutputArchive& archive) const override {
    detail::save_index(archive, asked_);
  }
  void load(serialize::InputArchive& archive) override { asked_ = detail::load_index(archive); }

 private:
  size_t epoch_size_, asked_ = 0;
};

}  // namespace torch::data::samplers
