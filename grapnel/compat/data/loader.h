/// torch::data::make_data_loader: batches of a dataset in the order of a sampler, made ahead by
/// threads if there are workers.
///
/// Batches come in the sampler's order in any case: what a program prints does not depend on which
/// worker was faster, so `enforce_ordering` changes nothing. Every worker has a copy of the dataset, as
/// in LibTorch.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <future>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "grapnel/base/threads.h"
#include "grapnel/compat/data/datasets.h"
#include "grapnel/compat/data/samplers.h"

namespace torch::data {

/// How batches are made.
struct DataLoaderOptions {
  DataLoaderOptions() = default;
  DataLoaderOptions(size_t batch_size) : batch_size_(batch_size) {}
  GRAPNEL_ARG(size_t, batch_size) = 1;
  /// Threads that make batches; none makes them when they are asked for.
  GRAPNEL_ARG(size_t, workers) = 0;
  /// Batches that are made ahead at most; two for each worker unless told otherwise.
  GRAPNEL_ARG(std::optional<size_t>, max_jobs);
  /// How long to wait for a batch.
  GRAPNEL_ARG(std::optional<std::chrono::milliseconds>, timeout);
  GRAPNEL_ARG(bool, enforce_ordering) = true;
  /// Leaves out a last batch that is smaller than the others.
  GRAPNEL_ARG(bool, drop_last) = false;
};

/// An exception of a dataset, thrown where its batch was due.
struct WorkerException : std::exception {
  explicit WorkerException(std::exception_ptr original) : original_exception(std::move(original)) {
    try {
      std::rethrow_exception(original_exception);
    } catch (const std::exception& e) {
      message = std::string("Caught exception in DataLoader worker thread. Original message: ") +
                e.what();
    } catch (...) {
      message = "Caught exception in DataLoader worker thread.";
    }
  }
  const char* what() const noexcept override { return message.c_str(); }
  std::exception_ptr original_exception;
  std::string message;
};

namespace detail {

/// Threads that each work on a copy of one thing, job by job in the order in which they are given.
template <class Resource>
class Workers {
 public:
  using Job = std::function<void(Resource&)>;
  Workers(size_t count, const Resource& resource) {
    for (size_t i = 0; i < count; ++i)
      threads_.push_back(
          grapnel::base::start_user_thread([this, mine = resource]() mutable { run(mine); }));
  }
  ~Workers() {
    if (!home_.is_elsewhere()) {  // in a child by fork a thread that is gone may hold the lock
      const std::lock_guard guard(mutex_);
      ended_ = true;
      jobs_.clear();
    }
    wake_.notify_all();
    for (std::thread& t : threads_) grapnel::base::join(t, home_);
  }
  void add(Job job) {
    {
      const std::lock_guard guard(mutex_);
      jobs_.push_back(std::move(job));
    }
    wake_.notify_one();
  }

 private:
  void run(Resource& resource) {
    for (;;) {
      Job job;
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [&] { return ended_ || !jobs_.empty(); });
        if (ended_) return;
        job = std::move(jobs_.front());
        jobs_.pop_front();
      }
      job(resource);
    }
  }
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Job> jobs_;
  bool ended_ = false;
  grapnel::base::HomeProcess home_;
  std::vector<std::thread> threads_;
};

/// What a dataset gives as its batches, without the optional of those with a state.
template <class Dataset>
using BatchOf = typename datasets::detail::WithoutOptional<typename Dataset::BatchType>::type;

}  // namespace detail

/// Goes from batch to batch. Going on changes what `*` refers to.
template <class Batch>
class Iterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = Batch;
  using difference_type = std::ptrdiff_t;
  using pointer = Batch*;
  using reference = Batch&;
  using Next = std::function<std::optional<Batch>()>;

  /// The end.
  Iterator() = default;
  explicit Iterator(Next next) : next_(std::make_shared<Next>(std::move(next))) { ++*this; }
  Batch& operator*() const { return **batch_; }
  Batch* operator->() const { return &**batch_; }
  Iterator& operator++() {
    batch_ = std::make_shared<std::optional<Batch>>((*next_)());
    return *this;
  }
  bool operator==(const Iterator& other) const { return at_end() == other.at_end(); }

 private:
  bool at_end() const { return !batch_ || !batch_->has_value(); }
  std::shared_ptr<Next> next_;
  std::shared_ptr<std::optional<Batch>> batch_;
};

/// What the loaders have in common: an epoch at a time, begun by begin().
template <class Dataset, class Batch, class BatchRequest>
class DataLoaderBase {
 public:
  using BatchType = Batch;
  using BatchRequestType = BatchRequest;
  explicit DataLoaderBase(DataLoaderOptions options) : options_(std::move(options)) {
    grapnel::check(options_.batch_size() > 0, "make_data_loader: batch_size must be positive.");
  }
  virtual ~DataLoaderBase() = default;

  Iterator<Batch> begin() {
    grapnel::check(pending_.empty(),
                   "DataLoader: attempted to get a new DataLoader iterator while ",
                   "another iterator is not yet exhausted.");
    reset();
    exhausted_ = false;
    return Iterator<Batch>([this] { return next(); });
  }
  Iterator<Batch> end() { return {}; }
  const DataLoaderOptions& options() const noexcept { return options_; }
  /// Ends the workers. There are no batches after that.
  void join() {
    pending_.clear();
    exhausted_ = true;
    workers_.reset();
  }

 protected:
  virtual void reset() = 0;
  virtual std::optional<BatchRequest> next_request() = 0;
  virtual std::optional<Batch> batch_of(Dataset& dataset, BatchRequest request) = 0;

  void start(Dataset dataset) {
    if (options_.workers() == 0) own_.emplace(std::move(dataset));
    else workers_ = std::make_unique<detail::Workers<Dataset>>(options_.workers(), dataset);
  }

 private:
  std::optional<Batch> next() {
    if (own_) {
      std::optional<BatchRequest> request = next_request();
      return request ? batch_of(*own_, *std::move(request)) : std::nullopt;
    }
    fill();
    if (pending_.empty()) return std::nullopt;
    std::future<std::optional<Batch>> first = std::move(pending_.front());
    pending_.pop_front();
    if (options_.timeout() && first.wait_for(*options_.timeout()) == std::future_status::timeout) {
      pending_.clear();
      grapnel::fail("DataLoader: no batch after ", options_.timeout()->count(), " milliseconds.");
    }
    std::optional<Batch> batch;
    try {
      batch = first.get();
    } catch (...) {
      throw WorkerException(std::current_exception());
    }
    if (!batch) pending_.clear(), exhausted_ = true;
    fill();
    return batch;
  }
  /// Has as many batches in the making as there may be.
  void fill() {
    const size_t most = options_.max_jobs().value_or(2 * options_.workers());
    while (!exhausted_ && workers_ && pending_.size() < std::max<size_t>(1, most)) {
      std::optional<BatchRequest> request = next_request();
      if (!request) {
        exhausted_ = true;
        return;
      }
      auto task = std::make_shared<std::packaged_task<std::optional<Batch>(Dataset&)>>(
          [this, wanted = *std::move(request)](Dataset& d) { return batch_of(d, wanted); });
      pending_.push_back(task->get_future());
      workers_->add([task](Dataset& d) { (*task)(d); });
    }
  }

  DataLoaderOptions options_;
  bool exhausted_ = false;
  std::optional<Dataset> own_;
  std::deque<std::future<std::optional<Batch>>> pending_;
  // Last, so that they end before what they work for.
  std::unique_ptr<detail::Workers<Dataset>> workers_;
};

/// Batches of a dataset, in the order of a sampler.
template <class Dataset, class Sampler>
class StatelessDataLoader final : public DataLoaderBase<Dataset, typename Dataset::BatchType,
                                                        typename Sampler::BatchRequestType> {
 public:
  using Base =
      DataLoaderBase<Dataset, typename Dataset::BatchType, typename Sampler::BatchRequestType>;
  using typename Base::BatchRequestType;
  using typename Base::BatchType;
  StatelessDataLoader(Dataset dataset, Sampler sampler, DataLoaderOptions options)
      : Base(std::move(options)), sampler_(std::move(sampler)) {
    this->start(std::move(dataset));
  }
  ~StatelessDataLoader() override { this->join(); }

 private:
  void reset() override { sampler_.reset(); }
  std::optional<BatchRequestType> next_request() override {
    const size_t size = this->options().batch_size();
    std::optional<BatchRequestType> request = sampler_.next(size);
    if (request && this->options().drop_last() && count_of(*request) < size) return std::nullopt;
    return request;
  }
  std::optional<BatchType> batch_of(Dataset& dataset, BatchRequestType request) override {
    return dataset.get_batch(std::move(request));
  }
  static size_t count_of(const BatchRequestType& request) {
    if constexpr (requires { request.size(); }) return request.size();
    else return static_cast<size_t>(request);
  }
  Sampler sampler_;
};

/// Batches of a dataset that knows itself what comes next.
template <class Dataset>
class StatefulDataLoader final
    : public DataLoaderBase<Dataset, detail::BatchOf<Dataset>, typename Dataset::BatchRequestType> {
 public:
  using Base =
      DataLoaderBase<Dataset, detail::BatchOf<Dataset>, typename Dataset::BatchRequestType>;
  using typename Base::BatchRequestType;
  using typename Base::BatchType;
  // One thread at most: others would have copies that know nothing of each other.
  StatefulDataLoader(Dataset dataset, DataLoaderOptions options)
      : Base(std::move(options.workers(0))), dataset_(dataset) {
    this->start(std::move(dataset));
  }
  ~StatefulDataLoader() override { this->join(); }

 private:
  void reset() override { dataset_.reset(); }
  std::optional<BatchRequestType> next_request() override {
    return static_cast<BatchRequestType>(this->options().batch_size());
  }
  std::optional<BatchType> batch_of(Dataset&, BatchRequestType request) override {
    return dataset_.get_batch(std::move(request));
  }
  Dataset dataset_;
};

/// A loader with this sampler.
template <class Dataset, class Sampler>
  requires(!Dataset::is_stateful && requires { typename Sampler::BatchRequestType; })
std::unique_ptr<StatelessDataLoader<Dataset, Sampler>> make_data_loader(
    Dataset dataset, Sampler sampler, DataLoaderOptions options = {}) {
  return std::make_unique<StatelessDataLoader<Dataset, Sampler>>(
      std::move(dataset), std::move(sampler), std::move(options));
}
/// A loader whose sampler is made from the dataset's size: by default another order every epoch.
template <class Sampler = samplers::RandomSampler, class Dataset>
  requires(!Dataset::is_stateful)
std::unique_ptr<StatelessDataLoader<Dataset, Sampler>> make_data_loader(
    Dataset dataset, DataLoaderOptions options = {}) {
  const std::optional<size_t> size = dataset.size();
  grapnel::check(size.has_value(), "make_data_loader: the dataset does not know its size.\n",
                 "Pass a sampler that needs none, for example StreamSampler.");
  return make_data_loader(std::move(dataset), Sampler(*size), std::move(options));
}
/// A loader for a dataset that knows itself what comes next.
template <class Dataset>
  requires(Dataset::is_stateful)
std::unique_ptr<StatefulDataLoader<Dataset>> make_data_loader(Dataset dataset,
                                                              DataLoaderOptions options = {}) {
  return std::make_unique<StatefulDataLoader<Dataset>>(std::move(dataset), std::move(options));
}

}  // namespace torch::data
