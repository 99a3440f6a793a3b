/// The driver of pointwise ops: feeds contiguous blocks to the kernels.
#include "grapnel/base/thread_pool.h"
#include "grapnel/cpu/kernels/table.h"
#include "grapnel/cpu/loop_nest.h"
#include "grapnel/cpu/run.h"

namespace grapnel::cpu {

namespace {

constexpr int kMaxInputs = 4;
/// Blocks of this many elements are staged on the stack and stay in the first-level cache.
constexpr int64_t kBlock = 1024;
/// Fewer elements than this are not worth a second thread.
constexpr int64_t kGrain = 32768;
/// Rows at least this long are handed to the kernel one by one instead of being gathered.
constexpr int64_t kLongRow = 128;

using Nest = LoopNest<kMaxInputs + 1>;

/// Whether writing `out` block by block could change elements of `in` that are still to be read:
/// they share memory and do not lie in it alike.
bool clashes(const TensorImpl& in, const TensorImpl& out) {
  if (in.storage != out.storage ||
      (in.offset == out.offset && in.sizes == out.sizes && in.strides == out.strides))
    return false;
  auto last = [](const TensorImpl& t) {
    int64_t at = t.offset;
    for (int i = 0; i < t.sizes.size(); ++i) at += (t.sizes[i] - 1) * t.strides[i];
    return at;
  };
  return in.offset <= last(out) && out.offset <= last(in);
}

/// Feeds blocks of one nest to one kernel.
class Blocks {
 public:
  Blocks(const Nest& nest, Compute compute, kernels::PointwiseFn kernel)
      : nest_(nest), compute_(compute), kernel_(kernel), size_(element_size(dtype_of(compute))) {
    for (int k = 0; k < nest.count; ++k) native_[k] = nest.operands[k].dtype == dtype_of(compute);
  }

  bool all_direct() const {
    for (int k = 0; k < nest_.count; ++k)
      if (!direct(k)) return false;
    return true;
  }

  void run_direct(int64_t begin, int64_t end) const {
    const void* in[kMaxInputs];
    for (int k = 1; k < nest_.count; ++k) in[k - 1] = at(k, begin);
    kernel_(in, at(0, begin), end - begin);
  }

  void run_staged(int64_t begin, int64_t end) const {
    alignas(64) char buffers[kMaxInputs + 1][kBlock * 8];
    const auto& load = kernels::table().load;
    const int c = static_cast<int>(compute_);
    for (int k = 1; k < nest_.count; ++k) {
      const auto& o = nest_.operands[k];
      if (o.constant)
        load[static_cast<int>(o.dtype)][c](o.data, 0, buffers[k], std::min(kBlock, end - begin));
    }
    const bool long_rows = nest_.row_length() >= kLongRow;
    while (begin < end) {
      int64_t length = std::min(kBlock, end - begin);
      if (long_rows) length = std::min(length, nest_.row_length() - begin % nest_.row_length());
      const void* in[kMaxInputs];
      for (int k = 1; k < nest_.count; ++k) {
        const auto& o = nest_.operands[k];
        if (o.constant) in[k - 1] = buffers[k];
        else if (native_[k] && (o.contiguous || (long_rows && nest_.row_stride(k) == 1)))
          in[k - 1] = at(k, begin);
        else {
          const auto fn = load[static_cast<int>(o.dtype)][c];
          nest_.for_rows(begin, begin + length, [&](int64_t i, int64_t n) {
            fn(at(k, i), nest_.row_stride(k),
               buffers[k] + (i - begin) * static_cast<int64_t>(size_), n);
          });
          in[k - 1] = buffers[k];
        }
      }
      const auto& out = nest_.operands[0];
      if (native_[0] && (out.contiguous || (long_rows && nest_.row_stride(0) == 1))) {
        kernel_(in, at(0, begin), length);
      } else {
        kernel_(in, buffers[0], length);
        const auto store = kernels::table().store[static_cast<int>(out.dtype)][c];
        nest_.for_rows(begin, begin + length, [&](int64_t i, int64_t n) {
          store(buffers[0] + (i - begin) * static_cast<int64_t>(size_), at(0, i),
                nest_.row_stride(0), n);
        });
      }
      begin += length;
    }
  }

 private:
  bool direct(int k) const { return native_[k] && nest_.operands[k].contiguous; }
  char* at(int k, int64_t linear) const {
    const auto& o = nest_.operands[k];
    const int64_t offset = o.contiguous ? linear : nest_.offset(k, linear);
    return o.data + offset * static_cast<int64_t>(element_size(o.dtype));
  }

  const Nest& nest_;
  Compute compute_;
  kernels::PointwiseFn kernel_;
  size_t size_;
  bool native_[kMaxInputs + 1];
};

/// Operands that need no nest, the usual case: every one a plain block of the type computed in, or
/// a number.
enum class Plain { no, blocks, blocks_and_numbers };
Plain plainness(Inputs inputs, const TensorImpl& out, DType computed) {
  if (out.dtype != computed || !out.is_contiguous()) return Plain::no;
  Plain result = Plain::blocks;
  for (const Tensor* t : inputs) {
    const TensorImpl& in = t->impl();
    if (in.storage == out.storage && in.offset != out.offset) return Plain::no;  // they may overlap
    if (in.dtype == computed && in.sizes == out.sizes && in.is_contiguous()) continue;
    if (!in.wrapped_number) return Plain::no;
    result = Plain::blocks_and_numbers;
  }
  return result;
}

[[gnu::always_inline]] inline void run_blocks(Inputs inputs, const TensorImpl& out,
                                              kernels::PointwiseFn kernel, int64_t begin,
                                              int64_t end) {
  const int64_t skip = begin * static_cast<int64_t>(element_size(out.dtype));
  const void* in[kMaxInputs];
  for (size_t i = 0; i < inputs.size(); ++i) in[i] = inputs[i]->impl().host() + skip;
  kernel(in, out.host() + skip, end - begin);
}

/// The same where numbers stand among the operands: each is repeated to fill a block.
void run_blocks_and_numbers(Inputs inputs, const TensorImpl& out, kernels::PointwiseFn kernel,
                            int64_t begin, int64_t end) {
  const auto size = static_cast<int64_t>(element_size(out.dtype));
  const int64_t block = std::min(kBlock, end - begin);
  alignas(64) char repeated[kMaxInputs][kBlock * 8];
  const void* in[kMaxInputs];
  int64_t step[kMaxInputs];
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorImpl& t = inputs[i]->impl();
    const bool number = !(t.sizes == out.sizes && t.dtype == out.dtype);
    if (number)
      kernels::table().load[static_cast<int>(t.dtype)][static_cast<int>(compute_type(out.dtype))](
          t.host(), 0, repeated[i], block);
    in[i] = number ? repeated[i] : t.host() + begin * size;
    step[i] = number ? 0 : block * size;
  }
  for (; begin < end; begin += block) {
    kernel(in, out.host() + begin * size, std::min(block, end - begin));
    for (size_t i = 0; i < inputs.size(); ++i) in[i] = static_cast<const char*>(in[i]) + step[i];
  }
}

/// Runs piece(begin, end) over all elements, on as many threads as they are worth.
template <class Piece>
void for_pieces(int64_t numel, const Piece& piece) {
  if (numel <= kGrain) piece(0, numel);
  else base::parallel_for(numel, kGrain, piece);
}

}  // namespace

void run_pointwise(const Op& op, Inputs inputs, const void*, std::span<Tensor> out) {
  const Compute compute = compute_type(pointwise::input_type(op, inputs));
  const kernels::PointwiseFn kernel =
      kernels::table().pointwise[op.index][static_cast<int>(compute)];
  GRAPNEL_ASSERT(kernel, op.name, " has no kernel for ", dtype_of(compute));
  const TensorImpl& target = out[0].impl();
  switch (plainness(inputs, target, dtype_of(compute))) {
    case Plain::blocks:
      return for_pieces(target.numel, [&](int64_t begin, int64_t end) {
        run_blocks(inputs, target, kernel, begin, end);
      });
    case Plain::blocks_and_numbers:
      return for_pieces(target.numel, [&](int64_t begin, int64_t end) {
        run_blocks_and_numbers(inputs, target, kernel, begin, end);
      });
    case Plain::no: break;
  }
  Nest nest(out[0]);
  Tensor copies[kMaxInputs];
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& in = *inputs[i];
    if (clashes(in.impl(), target)) {
      copies[i] = Tensor(TensorImpl::empty(in.shape(), in.dtype(), kCPU));
      cpu::copy(copies[i], in);
    }
    nest.add(copies[i].defined() ? copies[i] : in);
  }
  nest.merge();
  if (nest.numel == 0) return;
  const Blocks blocks(nest, compute, kernel);
  const bool direct = blocks.all_direct();
  auto piece = [&](int64_t begin, int64_t end) {
    direct ? blocks.run_direct(begin, end) : blocks.run_staged(begin, end);
  };
  for_pieces(nest.numel, piece);
}

}  // namespace grapnel::cpu
