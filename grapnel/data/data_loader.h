/// DataLoader: batches of a dataset, made ahead of time by worker threads, in an order that does
/// not depend on them.
///
///   data::DataLoader loader(dataset, {.batch_size = 64, .shuffle = true, .workers = 2});
///   for (int64_t epoch = 0; epoch < 2; ++epoch)
///     for (const data::Example& batch : loader.epoch(epoch)) train(batch.data, batch.target);
///
/// What an epoch holds depends on its number and the loader's seed only. A run that is resumed asks
/// for the rest of an epoch: `loader.epoch(epoch, batches_done)`.
#pragma once

#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>

#include "grapnel/data/dataset.h"
#include "grapnel/data/sampler.h"

namespace grapnel::data {

/// How a loader makes batches.
struct DataLoaderOptions {
  int64_t batch_size = 1;
  bool shuffle = false;
  /// Threads that make batches; 0 makes them when they are asked for.
  int64_t workers = 0;
  /// How many batches may wait ready; 0 stands for two per worker.
  int64_t prefetch = 0;
  /// Leaves out a last batch that is smaller than the others.
  bool drop_last = false;
  uint64_t seed = 0;
  /// Instead of `shuffle`: any order, such as a DistributedSampler.
  SamplerPtr sampler = nullptr;
};

/// One pass over the data under way. Ends its workers when it goes, also in the middle.
class Epoch {
 public:
  /// Goes from batch to batch.
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Example;
    using difference_type = ptrdiff_t;
    const Example& operator*() const { return epoch_->current_; }
    const Example* operator->() const { return &epoch_->current_; }
    Iterator& operator++() {
      epoch_->advance();
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return epoch_->finished_; }

   private:
    friend class Epoch;
    explicit Iterator(Epoch* epoch) : epoch_(epoch) {}
    Epoch* epoch_;
  };

  /// May be called once.
  Iterator begin();
  std::default_sentinel_t end() const { return {}; }
  /// Batches from the first one asked for to the last.
  int64_t size() const;
  ~Epoch();
  Epoch(Epoch&&) noexcept;

 private:
  friend class DataLoader;
  class Work;
  explicit Epoch(std::unique_ptr<Work> work);
  void advance();
  std::unique_ptr<Work> work_;
  Example current_;
  bool finished_ = false;
};

/// Batches of a data set, made ahead on threads, in an order that the seed decides.
class DataLoader {
 public:
  DataLoader(DatasetPtr dataset, const DataLoaderOptions& options = {});
  /// The batches of an epoch from `first_batch` on. An exception of the dataset is thrown where its
  /// batch is due.
  Epoch epoch(int64_t number, int64_t first_batch = 0) const;
  /// Batches per epoch.
  int64_t size() const;
  const DataLoaderOptions& options() const { return options_; }

 private:
  int64_t batches(size_t examples) const;
  DatasetPtr dataset_;
  DataLoaderOptions options_;
};

}  // namespace grapnel::data
