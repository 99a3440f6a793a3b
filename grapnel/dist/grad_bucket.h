/// GradBucket: gradients that travel together, as a communication hook sees them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "grapnel/dist/process_group.h"

namespace grapnel::dist {

/// Strides of a gradient of `param` inside a bucket: the parameter's own when it is dense, else
/// row-major.
std::vector<int64_t> bucket_strides(const Tensor& param);

/// One backward pass's view of a bucket. Valid until the hook's Future is complete; buffers are
/// used again by the next pass.
class GradBucket {
 public:
  GradBucket() = default;
  GradBucket(size_t index, size_t count, Tensor buffer, std::vector<Tensor> parameters,
             std::vector<std::string> names, ProcessGroup group)
      : index_(index),
        count_(count),
        buffer_(std::move(buffer)),
        parameters_(std::move(parameters)),
        names_(std::move(names)),
        group_(std::move(group)) {}

  /// Position in the order of launch, from 0.
  size_t index() const { return index_; }
  bool is_last() const { return index_ + 1 == count_; }
  /// One-dimensional: all gradients of the bucket back to back. With a hook they are this rank's
  /// own, not divided.
  const Tensor& buffer() const { return buffer_; }
  /// Replaces the buffer; the type may differ, the number of elements may not.
  void set_buffer(Tensor buffer);
  /// The parts of the current buffer, one per parameter, in the parameter's shape.
  std::vector<Tensor> gradients() const { return views_of(buffer_); }
  /// The same parts of any tensor as long as the buffer, such as a hook's result.
  std::vector<Tensor> views_of(const Tensor& buffer) const;
  const std::vector<Tensor>& parameters() const { return parameters_; }
  /// Names of the parameters in the module.
  const std::vector<std::string>& parameter_names() const { return names_; }
  /// This bucket's channel of the wrapper's group: collectives of different buckets do not get into
  /// each other's way.
  const ProcessGroup& group() const { return group_; }
  /// The channel for this bucket of `group`, or of the wrapper's own if there is none.
  ProcessGroup channel_of(const ProcessGroup& group) const;

 private:
  size_t index_ = 0, count_ = 0;
  Tensor buffer_;
  std::vector<Tensor> parameters_;
  std::vector<std::string> names_;
  ProcessGroup group_;
};

/// What is done with a bucket that is full.
struct CommHook {
  std::string name;
  std::function<Future<Tensor>(GradBucket&)> call;
  bool drops_gradients = false;  ///< grad() is undefined after the pass: the hook has used it up
};

}  // namespace grapnel::dist
