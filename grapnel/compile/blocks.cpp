#include "grapnel/compile/blocks.h"

#include <cstring>

#include "grapnel/ops/kernels/table.h"

namespace grapnel::compile_detail {

Stream::Stream(const Tensor& t, const Shape& sizes, Compute compute)
    : data_(t.impl().data()), dtype_(t.dtype()), compute_(compute), stored_size_(static_cast<int64_t>(element_size(t.dtype()))),
      size_(static_cast<int64_t>(element_size(dtype_of(compute)))), native_(t.dtype() == dtype_of(compute)) {
  const TensorImpl& impl = t.impl();
  const int missing = sizes.size() - impl.sizes.size();
  for (int i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 1) continue;
    const int64_t stride = i < missing || impl.sizes[i - missing] == 1 ? 0 : impl.strides[i - missing];
    if (rank_ > 0 && strides_[rank_ - 1] == stride * sizes[i]) {
      sizes_[rank_ - 1] *= sizes[i];
      strides_[rank_ - 1] = stride;
    } else {
      sizes_[rank_] = sizes[i];
      strides_[rank_++] = stride;
    }
  }
  contiguous_ = rank_ == 0 || (rank_ == 1 && strides_[0] == 1);
  constant_ = rank_ == 0 || (rank_ == 1 && strides_[0] == 0);
}

int64_t Stream::offset(int64_t linear) const {
  int64_t at = 0;
  for (int i = rank_ - 1; i >= 0; --i) {
    at += (linear % sizes_[i]) * strides_[i];
    linear /= sizes_[i];
  }
  return at;
}

template <class Fn>
void Stream::for_rows(int64_t begin, int64_t n, Fn&& fn) const {
  const int64_t row = rank_ == 0 ? 1 : sizes_[rank_ - 1], stride = rank_ == 0 ? 1 : strides_[rank_ - 1];
  for (int64_t done = 0; done < n;) {
    const int64_t length = std::min(n - done, row - (begin + done) % row);
    fn(data_ + offset(begin + done) * stored_size_, stride, done, length);
    done += length;
  }
}

const void* Stream::read(int64_t begin, int64_t n, void* buffer, bool pad) const {
  const bool complete = !pad || n % codegen::kLanes == 0;
  if (native_ && complete) {
    if (contiguous_) return data_ + begin * stored_size_;
    const int64_t row = sizes_[rank_ - 1];
    if (strides_[rank_ - 1] == 1 && row - begin % row >= n) return data_ + offset(begin) * stored_size_;
  }
  const auto load = kernels::table().load[static_cast<int>(dtype_)][static_cast<int>(compute_)];
  for_rows(begin, n, [&](const char* from, int64_t stride, int64_t done, int64_t length) {
    load(from, stride, static_cast<char*>(buffer) + done * size_, length);
  });
  // What lies behind the last element is computed with too, so it must be something.
  if (!complete) std::memset(static_cast<char*>(buffer) + n * size_, 0, static_cast<size_t>((codegen::kLanes - n % codegen::kLanes) * size_));
  return buffer;
}

void* Stream::target(int64_t begin, int64_t n, bool pad) const {
  if (!native_ || (pad && n % codegen::kLanes != 0)) return nullptr;
  if (contiguous_) return data_ + begin * stored_size_;
  const int64_t row = sizes_[rank_ - 1];
  if (strides_[rank_ - 1] == 1 && row - begin % row >= n) return data_ + offset(begin) * stored_size_;
  return nullptr;
}

void Stream::write(const void* block, int64_t begin, int64_t n) const {
  const auto store = kernels::table().store[static_cast<int>(dtype_)][static_cast<int>(compute_)];
  for_rows(begin, n, [&](char* to, int64_t stride, int64_t done, int64_t length) {
    store(static_cast<const char*>(block) + done * size_, to, stride, length);
  });
}

void Stream::fill(void* buffer, int64_t n) const {
  kernels::table().load[static_cast<int>(dtype_)][static_cast<int>(compute_)](data_, 0, buffer, n);
}

}  // namespace grapnel::compile_detail
