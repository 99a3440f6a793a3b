#include "grapnel/data/data_loader.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "grapnel/autograd/grad_mode.h"
#include "grapnel/base/checked.h"
#include "grapnel/base/context.h"
#include "grapnel/base/on_this_thread.h"
#include "grapnel/base/threads.h"

namespace grapnel::data {

/// Workers take the numbers of batches in order and may run ahead of the reader by `prefetch`; the
/// reader takes results in order.
class Epoch::Work {
 public:
  Work(DatasetPtr dataset, const DataLoaderOptions& options, int64_t epoch,
       std::vector<int64_t> order, int64_t first, int64_t end)
      : dataset_(std::move(dataset)),
        batch_size_(options.batch_size),
        seed_(mix_seed(options.seed, static_cast<uint64_t>(epoch))),
        order_(std::move(order)),
        next_(first),
        wanted_(first),
        end_(end),
        workers_(std::min(options.workers, end - first)),
        ahead_(std::min(options.prefetch > 0 ? options.prefetch : 2 * workers_, end - first)) {}

  ~Work() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    room_.notify_all();
    for (std::thread& t : threads_) base::join(t, home_);
  }
  bool has_threads_elsewhere() const { return !threads_.empty() && home_.is_elsewhere(); }

  void start() {
    for (int64_t i = 0; i < workers_; ++i)
      threads_.push_back(base::start_thread([this] { work(); }));
  }
  int64_t left() const { return end_ - wanted_; }

  /// The next batch, or nothing at the end.
  std::optional<Example> take() {
    if (wanted_ >= end_) return std::nullopt;
    if (threads_.empty() || home_.is_elsewhere()) return make(wanted_++);
    std::unique_lock lock(mutex_);
    const int64_t number = wanted_++;
    room_.notify_one();
    done_.wait(lock, [&] { return results_.contains(number); });
    Result result = std::move(results_.extract(number).mapped());
    lock.unlock();
    if (result.error) std::rethrow_exception(result.error);
    return std::move(result.batch);
  }

 private:
  struct Result {
    Example batch;
    std::exception_ptr error;
  };

  Example make(int64_t number) const {
    // Loading is not part of any graph, whatever the caller's mode.
    NoGradGuard no_grad;
    const auto begin = static_cast<size_t>(number * batch_size_),
               end = std::min(begin + static_cast<size_t>(batch_size_), order_.size());
    const std::span<const int64_t> indices(order_.data() + begin, end - begin);
    std::vector<Generator> randoms;
    for (size_t i = begin; i < end; ++i) randoms.emplace_back(mix_seed(seed_, i));
    return dataset_->get_batch(indices, randoms);
  }

  void work() {
    // The pool is the training loop's.
    const base::OnThisThread scope;
    const ModesScope as_reader(modes_);
    for (;;) {
      int64_t number;
      {
        std::unique_lock lock(mutex_);
        room_.wait(lock, [&] { return stopped_ || next_ >= end_ || next_ < wanted_ + ahead_; });
        if (stopped_ || next_ >= end_) return;
        number = next_++;
      }
      Result result;
      try {
        result.batch = make(number);
      } catch (...) {
        result.error = std::current_exception();
      }
      {
        const std::lock_guard lock(mutex_);
        results_.emplace(number, std::move(result));
      }
      done_.notify_one();
    }
  }

  const base::HomeProcess home_;
  const Modes modes_ = this_context.modes;
  const DatasetPtr dataset_;
  const int64_t batch_size_;
  const uint64_t seed_;
  const std::vector<int64_t> order_;
  std::mutex mutex_;
  std::condition_variable room_, done_;
  int64_t next_, wanted_;
  const int64_t end_, workers_, ahead_;
  bool stopped_ = false;
  std::map<int64_t, Result> results_;
  std::vector<std::thread> threads_;
};

Epoch::Epoch(std::unique_ptr<Work> work) : work_(std::move(work)) {}
Epoch::~Epoch() {
  // See Note [Threads and forks].
  if (work_ && work_->has_threads_elsewhere()) (void)work_.release();
}
Epoch::Epoch(Epoch&&) noexcept = default;
int64_t Epoch::size() const { return work_->left(); }

Epoch::Iterator Epoch::begin() {
  work_->start();
  advance();
  return Iterator(this);
}

void Epoch::advance() {
  current_ = {};
  std::optional<Example> next = work_->take();
  finished_ = !next;
  if (next) current_ = *std::move(next);
}

DataLoader::DataLoader(DatasetPtr dataset, const DataLoaderOptions& options)
    : dataset_(std::move(dataset)), options_(options) {
  check(dataset_ != nullptr, "DataLoader: there is no dataset.");
  check(options.batch_size > 0 && options.workers >= 0 && options.prefetch >= 0,
        "DataLoader: batch_size must be positive, workers and prefetch not negative, got ",
        options.batch_size, ", ", options.workers, " and ", options.prefetch, ".");
  check(!options.sampler || !options.shuffle,
        "DataLoader: a sampler decides the order itself; leave out shuffle.");
  if (options_.sampler) return;
  if (options_.shuffle)
    options_.sampler = std::make_shared<RandomSampler>(dataset_->size(), options_.seed);
  else options_.sampler = std::make_shared<SequentialSampler>(dataset_->size());
}

int64_t DataLoader::batches(size_t examples) const {
  const auto n = static_cast<int64_t>(examples);
  return options_.drop_last ? n / options_.batch_size : ceil_div(n, options_.batch_size);
}

int64_t DataLoader::size() const { return batches(options_.sampler->order(0).size()); }

Epoch DataLoader::epoch(int64_t number, int64_t first_batch) const {
  std::vector<int64_t> order = options_.sampler->order(number);
  const int64_t end = batches(order.size());
  check(first_batch >= 0 && first_batch <= end, "DataLoader: batch ", first_batch,
        " was asked for, but an epoch has ", end, ".");
  return Epoch(std::make_unique<Epoch::Work>(dataset_, options_, number, std::move(order),
                                             first_batch, end));
}

}  // namespace grapnel::data
