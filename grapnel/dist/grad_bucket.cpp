#include "grapnel/dist/grad_bucket.h"

#include "grapnel/autograd/accumulate.h"
#include "grapnel/autograd/grad_mode.h"

namespace grapnel::dist {

std::vector<int64_t> bucket_strides(const Tensor& param) {
  const Shape strides = grad_strides(param.impl());
  return {strides.begin(), strides.end()};
}

void GradBucket::set_buffer(Tensor buffer) {
  check(buffer.defined() && buffer.numel() == buffer_.numel(), "GradBucket::set_buffer: bucket ",
        index_, " has ", buffer_.numel(), " elements, the new buffer ",
        buffer.defined() ? str("has ", buffer.numel()) : std::string("is undefined"), ".");
  buffer_ = buffer.dim() == 1 && buffer.is_contiguous() ? std::move(buffer)
                                                        : buffer.contiguous().view({-1});
}

std::vector<Tensor> GradBucket::views_of(const Tensor& buffer) const {
  NoGradGuard no_grad;
  std::vector<Tensor> views;
  int64_t offset = buffer.storage_offset();
  for (const Tensor& p : parameters_) {
    views.push_back(buffer.as_strided(p.sizes(), bucket_strides(p), offset));
    offset += p.numel();
  }
  return views;
}

ProcessGroup GradBucket::channel_of(const ProcessGroup& group) const {
  return group ? group.channel(str("bucket ", index_)) : group_;
}

}  // namespace grapnel::dist
