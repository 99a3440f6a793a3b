#include "grapnel/data/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "grapnel/functions/factories.h"
#include "grapnel/ops/vectors.h"

namespace grapnel::data {

/// The finaliser of SplitMix64.
uint64_t mix_seed(uint64_t seed, uint64_t n) {
  uint64_t x = seed + 0x9E3779B97F4A7C15 * (n + 1);
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

namespace {
Generator generator_of(uint64_t seed, int64_t epoch) {
  return Generator(mix_seed(seed, static_cast<uint64_t>(epoch)));
}
}  // namespace

std::vector<int64_t> SequentialSampler::order(int64_t) const {
  std::vector<int64_t> out(static_cast<size_t>(size_));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

std::vector<int64_t> RandomSampler::order(int64_t epoch) const {
  return to_vector<int64_t>(randperm(size_, generator_of(seed_, epoch)));
}

WeightedRandomSampler::WeightedRandomSampler(std::vector<double> weights, int64_t count,
                                             uint64_t seed)
    : sums_(std::move(weights)), count_(count), seed_(seed) {
  for (const double w : sums_)
    check(w >= 0 && std::isfinite(w), "WeightedRandomSampler: weights must not be negative, got ",
          w, ".");
  std::partial_sum(sums_.begin(), sums_.end(), sums_.begin());
  check(!sums_.empty() && sums_.back() > 0,
        "WeightedRandomSampler: at least one weight must be positive.");
}

std::vector<int64_t> WeightedRandomSampler::order(int64_t epoch) const {
  const Tensor draws = rand({count_}, generator_of(seed_, epoch), kFloat64);
  const std::vector<double> p = to_vector<double>(draws);
  std::vector<int64_t> out;
  for (int64_t i = 0; i < count_; ++i)
    out.push_back(std::ranges::upper_bound(sums_, p[static_cast<size_t>(i)] * sums_.back()) -
                  sums_.begin());
  return out;
}

DistributedSampler::DistributedSampler(SamplerPtr sampler, int64_t rank, int64_t world,
                                       bool drop_last)
    : sampler_(std::move(sampler)), rank_(rank), world_(world), drop_last_(drop_last) {
  check(world > 0 && rank >= 0 && rank < world,
        "DistributedSampler: rank must be in [0, world), got rank ", rank, " of ", world, ".");
}

std::vector<int64_t> DistributedSampler::order(int64_t epoch) const {
  const std::vector<int64_t> all = sampler_->order(epoch);
  const auto size = static_cast<int64_t>(all.size());
  const int64_t each = drop_last_ ? size / world_ : (size + world_ - 1) / world_;
  std::vector<int64_t> out;
  for (int64_t i = 0; i < each; ++i)
    out.push_back(all[static_cast<size_t>((i * world_ + rank_) % size)]);
  return out;
}

}  // namespace grapnel::data
