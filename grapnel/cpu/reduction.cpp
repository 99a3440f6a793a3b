/// The driver of reductions: lays the tensor out as rows or columns and walks Note [Reduction
/// tree].
#include <algorithm>
#include <cstring>
#include <vector>

#include "grapnel/base/thread_pool.h"
#include "grapnel/cpu/kernels/reduce_kernel.h"
#include "grapnel/cpu/kernels/table.h"
#include "grapnel/cpu/run.h"

namespace grapnel::cpu {

namespace {

using kernels::kReduceChunk;

/// Elements of work below which a second thread does not pay.
constexpr int64_t kWork = 32768;

/// The input as (kept dimensions) x (reduced dimensions), each list merged where it lies evenly in
/// memory.
struct Layout {
  Shape kept_sizes, kept_strides, reduced_sizes, reduced_strides;
  int64_t outputs = 1, count = 1;

  Layout(const Tensor& x, const Shape& dims) {
    const TensorImpl& t = x.impl();
    int next = 0;
    for (int i = 0; i < t.sizes.size(); ++i) {
      const bool reduced = next < dims.size() && dims[next] == i;
      if (reduced) ++next;
      (reduced ? count : outputs) *= t.sizes[i];
      if (t.sizes[i] == 1) continue;
      append(reduced ? reduced_sizes : kept_sizes, reduced ? reduced_strides : kept_strides,
             t.sizes[i], t.strides[i]);
    }
  }
  static void append(Shape& sizes, Shape& strides, int64_t size, int64_t stride) {
    if (!sizes.empty() && strides.back() == stride * size) {
      sizes[sizes.size() - 1] *= size;
      strides[strides.size() - 1] = stride;
    } else {
      sizes.push_back(size);
      strides.push_back(stride);
    }
  }
  static int64_t offset(const Shape& sizes, const Shape& strides, int64_t linear) {
    int64_t at = 0;
    for (int i = sizes.size() - 1; i >= 0; --i) {
      at += (linear % sizes[i]) * strides[i];
      linear /= sizes[i];
    }
    return at;
  }
  bool rows() const {
    return reduced_sizes.empty() || (reduced_sizes.size() == 1 && reduced_strides[0] == 1);
  }
  bool columns() const {
    return reduced_sizes.size() == 1 && !kept_sizes.empty() && kept_strides.back() == 1 &&
           kept_sizes.back() >= 8;
  }
};

class Reducer {
 public:
  Reducer(const Op& op, const Tensor& x, const Layout& layout, Compute compute, char* results)
      : layout_(layout),
        data_(x.impl().host()),
        kernel_(kernels::table().reduce[op.index][static_cast<int>(compute)]),
        load_(kernels::table().load[static_cast<int>(x.dtype())][static_cast<int>(compute)]),
        size_(static_cast<int64_t>(element_size(dtype_of(compute)))),
        stored_size_(static_cast<int64_t>(element_size(x.dtype()))),
        native_(x.dtype() == dtype_of(compute)),
        results_(results) {}

  void run() {
    if (layout_.count > 0 && layout_.columns() && native_) by_columns();
    else if (layout_.count > kReduceChunk && layout_.outputs * 2 < layout_.count / kReduceChunk)
      by_chunks();
    else by_outputs();
  }
  const kernels::ReduceKernels& kernel() const { return kernel_; }

 private:
  /// Reduces the values [begin, begin + n) of one output, n <= kReduceChunk.
  void chunk(const char* start, int64_t begin, int64_t n, char* result) const {
    if (native_ && layout_.rows()) return kernel_.chunk(start + begin * size_, n, result);
    alignas(64) char block[kReduceChunk * 8];
    const Shape& sizes = layout_.reduced_sizes;
    const Shape& strides = layout_.reduced_strides;
    const int64_t row = sizes.empty() ? 1 : sizes.back();
    for (int64_t i = 0; i < n;) {
      const int64_t length = std::min(n - i, row - (begin + i) % row);
      load_(start + Layout::offset(sizes, strides, begin + i) * stored_size_,
            sizes.empty() ? 1 : strides.back(), block + i * size_, length);
      i += length;
    }
    kernel_.chunk(block, n, result);
  }

  void fold(char* partial, int64_t n) const {
    kernels::fold_chunks(kernel_.chunk, partial, n, size_);
  }

  const char* start_of(int64_t output) const {
    return data_ + Layout::offset(layout_.kept_sizes, layout_.kept_strides, output) * stored_size_;
  }
  int64_t chunks() const {
    return std::max<int64_t>(1, (layout_.count + kReduceChunk - 1) / kReduceChunk);
  }

  void one_chunk_of(const char* start, int64_t c, char* result) const {
    chunk(start, c * kReduceChunk, std::min(kReduceChunk, layout_.count - c * kReduceChunk),
          result);
  }

  void by_outputs() {
    const int64_t grain = std::max<int64_t>(1, kWork / std::max<int64_t>(1, layout_.count));
    base::parallel_for(layout_.outputs, grain, [&](int64_t begin, int64_t end) {
      std::vector<char> partial(chunks() > 1 ? static_cast<size_t>(chunks() * size_) : 0);
      for (int64_t o = begin; o < end; ++o) {
        const char* start = start_of(o);
        if (chunks() == 1) {
          one_chunk_of(start, 0, results_ + o * size_);
        } else {
          for (int64_t c = 0; c < chunks(); ++c) one_chunk_of(start, c, partial.data() + c * size_);
          fold(partial.data(), chunks());
          std::copy_n(partial.data(), size_, results_ + o * size_);
        }
      }
    });
  }

  void by_chunks() {
    std::vector<char> partial(static_cast<size_t>(chunks() * size_));
    for (int64_t o = 0; o < layout_.outputs; ++o) {
      const char* start = start_of(o);
      base::parallel_for(chunks(), kWork / kReduceChunk, [&](int64_t begin, int64_t end) {
        for (int64_t c = begin; c < end; ++c) one_chunk_of(start, c, partial.data() + c * size_);
      });
      fold(partial.data(), chunks());
      std::copy_n(partial.data(), size_, results_ + o * size_);
    }
  }

  void by_columns() {
    // Strips of the innermost kept dimension, each reduced over all rows by one thread.
    const int64_t width = layout_.kept_sizes.back(), strip = 256;
    const int64_t strips = (width + strip - 1) / strip, outer = layout_.outputs / width;
    const int64_t grain = std::max<int64_t>(1, kWork / (layout_.count * std::min(strip, width)));
    base::parallel_for(outer * strips, grain, [&](int64_t begin, int64_t end) {
      std::vector<char> partial(static_cast<size_t>(chunks() > 1 ? chunks() * strip * size_ : 0));
      std::vector<char> column(static_cast<size_t>(chunks() > 1 ? chunks() * size_ : 0));
      for (int64_t i = begin; i < end; ++i) {
        const int64_t first = (i % strips) * strip, n = std::min(strip, width - first);
        const int64_t output = (i / strips) * width + first;
        const char* start = start_of(output);
        const int64_t stride = layout_.reduced_strides[0];
        if (chunks() == 1) {
          kernel_.columns(start, layout_.count, stride, n, results_ + output * size_);
          continue;
        }
        for (int64_t c = 0; c < chunks(); ++c)
          kernel_.columns(start + c * kReduceChunk * stride * size_,
                          std::min(kReduceChunk, layout_.count - c * kReduceChunk), stride, n,
                          partial.data() + c * strip * size_);
        for (int64_t j = 0; j < n; ++j) {
          for (int64_t c = 0; c < chunks(); ++c)
            std::copy_n(partial.data() + (c * strip + j) * size_, size_, column.data() + c * size_);
          fold(column.data(), chunks());
          std::copy_n(column.data(), size_, results_ + (output + j) * size_);
        }
      }
    });
  }

  const Layout& layout_;
  const char* data_;
  const kernels::ReduceKernels& kernel_;
  kernels::LoadFn load_;
  int64_t size_, stored_size_;
  bool native_;
  char* results_;
};

}  // namespace

void run_reduction(const Op& op, Inputs inputs, const void* attrs, std::span<Tensor> out) {
  const Shape& dims = static_cast<const ReduceAttrs*>(attrs)->dims;
  Tensor x = *inputs[0];
  const Compute compute = compute_type(x.dtype());
  if (x.dtype() != dtype_of(compute) && Layout(x, dims).columns()) {
    // Columns are read in place by the kernel, so narrow types are widened first.
    Tensor wide(TensorImpl::empty(x.shape(), dtype_of(compute), kCPU));
    cpu::copy(wide, x);
    x = wide;
  }
  const Layout layout(x, dims);
  if (layout.outputs == 0) return;
  const DType wide_type = dtype_of(compute);
  const bool direct = out[0].dtype() == wide_type && out[0].is_contiguous();
  Tensor results = direct ? out[0] : Tensor(TensorImpl::empty(out[0].shape(), wide_type, kCPU));
  Reducer reducer(op, x, layout, compute, results.impl().host());
  reducer.run();
  if (reducer.kernel().finish)
    reducer.kernel().finish(results.impl().host(), layout.outputs, layout.count);
  if (layout.count == 0 && op.name == "sum")
    std::memset(results.impl().host(), 0, static_cast<size_t>(results.nbytes()));
  if (!direct) cpu::copy(out[0], results);
}

}  // namespace grapnel::cpu
