/// Samplers: the order of the examples, as a function of the epoch. Equal seeds give equal orders,
/// on every rank and after a restart.
#pragma once

#include <memory>
#include <vector>

#include "grapnel/tensor/tensor.h"

namespace grapnel::data {

/// The order in which samples are visited.
class Sampler {
 public:
  virtual ~Sampler() = default;
  /// Indices of all examples of this epoch.
  virtual std::vector<int64_t> order(int64_t epoch) const = 0;
};
using SamplerPtr = std::shared_ptr<const Sampler>;

/// 0, 1, 2, ...
class SequentialSampler : public Sampler {
 public:
  explicit SequentialSampler(int64_t size) : size_(size) {}
  std::vector<int64_t> order(int64_t epoch) const override;

 private:
  int64_t size_;
};

/// All examples in another order every epoch.
class RandomSampler : public Sampler {
 public:
  explicit RandomSampler(int64_t size, uint64_t seed = 0) : size_(size), seed_(seed) {}
  std::vector<int64_t> order(int64_t epoch) const override;

 private:
  int64_t size_;
  uint64_t seed_;
};

/// `count` draws with replacement; example i is drawn with a probability in proportion to
/// weights[i].
class WeightedRandomSampler : public Sampler {
 public:
  WeightedRandomSampler(std::vector<double> weights, int64_t count, uint64_t seed = 0);
  std::vector<int64_t> order(int64_t epoch) const override;

 private:
  std::vector<double> sums_;
  int64_t count_;
  uint64_t seed_;
};

/// The share of one rank: every world-th example of another sampler's order. All ranks get equally
/// many: the order is filled up from its beginning, or cut off if `drop_last`.
class DistributedSampler : public Sampler {
 public:
  DistributedSampler(SamplerPtr sampler, int64_t rank, int64_t world, bool drop_last = false);
  std::vector<int64_t> order(int64_t epoch) const override;

 private:
  SamplerPtr sampler_;
  int64_t rank_, world_;
  bool drop_last_;
};

/// A seed for part `n` of something with a seed: far from those of other parts.
uint64_t mix_seed(uint64_t seed, uint64_t n);

}  // namespace grapnel::data
