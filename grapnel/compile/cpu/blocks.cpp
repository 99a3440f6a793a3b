#include "grapnel/compile/cpu/blocks.h"

#include <cstring>

namespace grapnel::compiler {

using namespace capture;

namespace {

template <class Bits>
void copy_kernel(const void* from, int64_t stride, void* to, int64_t n) {
  const auto* x = static_cast<const Bits*>(from);
  auto* y = static_cast<Bits*>(to);
  for (int64_t i = 0; i < n; ++i) y[i] = x[i * stride];
}
/// Of values that kernels read in their narrow type.
kernels::LoadFn copy_of_size(size_t bytes) {
  return bytes == 1 ? &copy_kernel<uint8_t> : &copy_kernel<uint16_t>;
}

}  // namespace

Stream::Stream(const Trace& trace, ValueId id, ValueId shape, Compute compute, const Place& place,
               int32_t trailing, bool as_stored)
    : place_(place) {
  const Value& v = trace.values[id];
  dtype_ = v.dtype;
  load_ = as_stored ? copy_of_size(element_size(dtype_))
                    : kernels::table().load[static_cast<int>(dtype_)][static_cast<int>(compute)];
  store_ = kernels::table().store[static_cast<int>(dtype_)][static_cast<int>(compute)];
  stored_size_ = static_cast<int64_t>(element_size(dtype_));
  size_ = as_stored ? stored_size_ : static_cast<int64_t>(element_size(dtype_of(compute)));
  native_ = as_stored || dtype_ == dtype_of(compute);
  if (place_.data) place_.data += trace.offset_of(v) * stored_size_;
  const IntArrayRef sizes = trace.sizes_of(trace.values[shape]), own = trace.sizes_of(v),
                    strides = trace.strides_of(v);
  const size_t missing = sizes.size() - own.size() - static_cast<size_t>(trailing);
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 1) continue;
    const int64_t stride = i < missing || i >= missing + own.size() || own[i - missing] == 1
                               ? 0
                               : strides[i - missing];
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
  for (int i = rank_ - 1; i > 0; --i) {
    at += (linear % sizes_[i]) * strides_[i];
    linear /= sizes_[i];
  }
  return rank_ > 0 ? at + linear * strides_[0] : 0;
}

template <class Fn>
void Stream::for_rows(int64_t begin, int64_t n, const Span& span, Fn&& fn) const {
  const int64_t row = rank_ == 0 ? 1 : sizes_[rank_ - 1],
                stride = rank_ == 0 ? 1 : strides_[rank_ - 1];
  char* const data = base(span);
  for (int64_t done = 0; done < n;) {
    const int64_t length = std::min(n - done, row - (begin + done) % row);
    fn(data + offset(begin + done) * stored_size_, stride, done, length);
    done += length;
  }
}

char* Stream::direct(int64_t begin, int64_t n, bool pad, const Span& span) const {
  // Behind what is local there is room for whole lanes.
  if (!native_ || (pad && n % codegen::kLanes != 0 && !(is_local() && contiguous_))) return nullptr;
  if (contiguous_) return base(span) + begin * stored_size_;
  if (strides_[rank_ - 1] == 1 && in_one_row(begin, n))
    return base(span) + offset(begin) * stored_size_;
  return nullptr;
}

const void* Stream::read(int64_t begin, int64_t n, void* buffer, bool pad, const Span& span) const {
  if (const void* block = direct(begin, n, pad, span)) return block;
  for_rows(begin, n, span, [&](const char* from, int64_t stride, int64_t done, int64_t length) {
    load_(from, stride, static_cast<char*>(buffer) + done * size_, length);
  });
  // What lies behind the last element is computed with too, so it must be something.
  if (pad && n % codegen::kLanes != 0)
    std::memset(static_cast<char*>(buffer) + n * size_, 0,
                static_cast<size_t>((codegen::kLanes - n % codegen::kLanes) * size_));
  return buffer;
}

const void* Stream::read(int64_t begin, int64_t n, void* buffer, codegen::Walk& walk,
                         const Span& span) const {
  const bool equal = constant_ || (strides_[rank_ - 1] == 0 && in_one_row(begin, n));
  walk = equal ? codegen::Walk::stay : codegen::Walk::along;
  if (!equal) return read(begin, n, buffer, true, span);
  fill(begin, buffer, codegen::kLanes, span);
  return buffer;
}

Stream::Rows Stream::rows(int64_t length) const {
  using Kind = Rows::Kind;
  if (constant_) return {Kind::one_value, 0};
  if (contiguous_ && native_) return {Kind::values, length * stored_size_};
  if (rank_ != 2 || sizes_[1] != length) return {};
  if (strides_[1] == 0) return {Kind::one_value, strides_[0] * stored_size_};
  if (strides_[1] == 1 && native_) return {Kind::values, strides_[0] * stored_size_};
  return {};
}

int64_t Stream::run_length() const {
  if (contiguous_ || constant_) return INT64_MAX;
  const int64_t stride = strides_[rank_ - 1];
  return stride == 0 || stride == 1 ? sizes_[rank_ - 1] : 0;
}

void* Stream::target(int64_t begin, int64_t n, bool pad, const Span& span) const {
  return direct(begin, n, pad, span);
}

void Stream::write(const void* block, int64_t begin, int64_t n, const Span& span) const {
  for_rows(begin, n, span, [&](char* to, int64_t stride, int64_t done, int64_t length) {
    store_(static_cast<const char*>(block) + done * size_, to, stride, length);
  });
}

}  // namespace grapnel::compiler
