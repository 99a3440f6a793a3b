/// What DistributedDataParallel can be told, and what it tells.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "grapnel/tensor/tensor.h"

namespace grapnel::dist {

inline constexpr int64_t kMiB = 1048576;

/// A parameter of a module that is wrapped.
struct Parameter {
  std::string name;
  Tensor tensor;
};

/// What happened to a bucket or parameter, in the order in which it did.
struct ReducerEvent {
  enum class Kind : uint8_t { grad_ready, launch, written } kind;
  size_t index;  ///< of the parameter for grad_ready, else of the bucket
};

/// How gradients are cut into buckets and reduced.
struct DataParallelOptions {
  /// Buckets are sent when they have this many bytes; the first one earlier, so that communication
  /// begins early. If only the former is set, it holds for the first bucket, too.
  std::optional<int64_t> bucket_bytes = {};
  std::optional<int64_t> first_bucket_bytes = {};
  /// For modules that do not use all parameters in every pass: each pass finds out which ones it
  /// will not reach.
  bool find_unused_parameters = false;
  /// The graph is the same in every iteration; allows parameters to be reached several times in one
  /// pass.
  bool static_graph = false;
  /// grad() lies in the buckets themselves, which saves a copy.
  bool gradient_as_bucket_view = false;
  /// Rank 0's buffers are copied to all before each forward.
  bool broadcast_buffers = true;
  /// Makes the bucket that is sent last the small one.
  bool small_bucket_last = false;
  /// A layout of one's own: lists of parameter indices. It is never changed.
  std::vector<std::vector<size_t>> buckets = {};
  /// Forward and backward work with parameters of `parameters`, sums are made in `reduce`; between
  /// passes everything is as wide as before.
  struct ReducedPrecision {
    DType parameters = kBFloat16;
    DType reduce = kFloat32;
  };
  std::optional<ReducedPrecision> reduced_precision = {};
  /// Called for gradients and buckets as things happen to them.
  std::function<void(const ReducerEvent&)> on_event = {};

  /// The sizes that hold.
  int64_t usual_bytes() const { return bucket_bytes.value_or(25 * kMiB); }
  int64_t first_bytes() const { return first_bucket_bytes.value_or(bucket_bytes.value_or(kMiB)); }
};

/// What has been done so far.
struct ReducerStats {
  int64_t iterations = 0;      ///< passes that were synchronised
  double exposed_seconds = 0;  ///< time at the end of passes in which nothing was done but wait
  size_t buckets = 0;
  bool rebuilt = false;
};

}  // namespace grapnel::dist
