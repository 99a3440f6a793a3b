/// Which gradients travel together: the assignment of parameters to buckets.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "grapnel/tensor/tensor.h"

namespace grapnel::dist {

/// Which parameters share a bucket.
struct BucketLayout {
  std::vector<std::vector<size_t>> buckets;  ///< indices of parameters
  /// The byte limit each bucket was filled up to; 0 for a sparse gradient.
  std::vector<int64_t> limits;
};

/// What the assignment has to know about a parameter.
struct BucketItem {
  int64_t bytes = 0;
  DType dtype = DType::Float32;
  bool sparse_grad = false;
  Device device = {};
  /// Whether one bucket may hold both: it is one tensor.
  bool travels_with(const BucketItem& other) const {
    return dtype == other.dtype && device == other.device;
  }
};

/// Fills buckets of one type and device each up to the limits: the first of its kind to limits[0], the
/// next to limits[1] and so on; the last limit is used again. A tensor is never split; one that reaches the
/// limit closes its bucket. With an `order`, tensors are taken in that order and buckets stay in
/// the order in which they were closed; without, buckets are sorted by their first tensor.
BucketLayout assign_buckets(std::span<const BucketItem> items, std::span<const int64_t> limits,
                            std::span<const size_t> order = {});

/// Throws unless the buckets hold every parameter once, none is empty and none mixes types or
/// devices.
void check_buckets(const std::vector<std::vector<size_t>>& buckets,
                   std::span<const BucketItem> items);

}  // namespace grapnel::dist
