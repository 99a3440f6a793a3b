#include "grapnel/tensor/shape.h"

#include <algorithm>

#include "grapnel/base/error.h"
#include "grapnel/base/error_kinds.h"

namespace grapnel {

namespace {
void check_rank(size_t count) {
  check(count <= static_cast<size_t>(kMaxRank), "a tensor has at most ", kMaxRank,
        " dimensions, got ", count, ".\nMerge neighbouring dimensions with reshape first.");
}
}  // namespace

Shape::Shape(std::initializer_list<int64_t> values)
    : Shape(std::span(values.begin(), values.size())) {}
Shape::Shape(std::span<const int64_t> values) {
  check_rank(values.size());
  assign(values.data(), static_cast<int>(values.size()));
}
Shape Shape::filled(int count, int64_t value) {
  Shape s;
  s.resize(count);
  std::fill(s.begin(), s.end(), value);
  return s;
}
void Shape::push_back(int64_t value) {
  check_rank(size_ + size_t{1});
  values_[size_++] = value;
}
void Shape::insert(int position, int64_t value) {
  push_back(value);
  std::rotate(begin() + position, end() - 1, end());
}
void Shape::erase(int position) {
  std::copy(begin() + position + 1, end(), begin() + position);
  --size_;
}
void Shape::resize(int count) {
  check_rank(static_cast<size_t>(count));
  for (int i = size_; i < count; ++i) values_[i] = 0;
  size_ = static_cast<uint8_t>(count);
}

std::ostream& operator<<(std::ostream& out, IntArrayRef s) {
  out << '[';
  for (size_t i = 0; i < s.size(); ++i) out << (i ? ", " : "") << s[i];
  return out << ']';
}
std::ostream& operator<<(std::ostream& out, const Shape& s) { return out << IntArrayRef(s); }

int64_t checked_numel(IntArrayRef sizes, const char* what) {
  // Where nothing lies, strides are still made of the other sizes.
  int64_t n = 1;
  bool overflow = false, zero = false;
  for (int64_t size : sizes) {
    check(size >= 0, what, ": sizes must not be negative, got ", sizes, ".");
    zero |= size == 0;
    overflow |= size > 0 && __builtin_mul_overflow(n, size, &n);
  }
  check(!overflow, what, ": the number of elements of ", sizes, " does not fit in 64 bits.");
  return zero ? 0 : n;
}

Shape contiguous_strides(const Shape& sizes) {
  Shape strides;
  strides.assign_contiguous(sizes);
  return strides;
}

Shape broadcast_shapes(const Shape& a, const Shape& b, const char* what) {
  if (a == b) return a;
  Shape out = a.size() >= b.size() ? a : b;
  const Shape& shorter = a.size() >= b.size() ? b : a;
  const int offset = out.size() - shorter.size();
  for (int i = 0; i < shorter.size(); ++i) {
    int64_t& x = out[offset + i];
    const int64_t y = shorter[i];
    if (x == y || y == 1) continue;
    check(x == 1, what, ": shapes ", a, " and ", b, " do not broadcast: sizes ", x, " and ", y,
          " differ at dimension ", offset + i, ".\nSizes must be equal, or one of them 1.");
    x = y;
  }
  return out;
}

int wrap_dim(int64_t dim, int rank, const char* what) {
  const int effective = std::max(rank, 1);
  if (dim < -effective || dim >= effective) [[unlikely]]
    fail_as<IndexError>(what, ": dimension ", dim, " is out of range; a tensor with ", rank,
                        rank == 1 ? " dimension" : " dimensions", " accepts ", -effective, " to ",
                        effective - 1, ".");
  return static_cast<int>(dim < 0 ? dim + effective : dim);
}

Shape wrap_dims(IntArrayRef dims, int rank, const char* what) {
  Shape out;
  if (dims.empty()) {
    for (int i = 0; i < rank; ++i) out.push_back(i);
    return out;
  }
  for (int64_t d : dims) {
    const int wrapped = wrap_dim(d, rank, what);
    check(std::find(out.begin(), out.end(), wrapped) == out.end(), what, ": dimension ", d,
          " appears twice in ", dims, ".");
    if (rank > 0) out.push_back(wrapped);
  }
  std::sort(out.begin(), out.end());
  return out;
}

Shape infer_view_size(IntArrayRef sizes, int64_t numel) {
  Shape out{std::span<const int64_t>(sizes)};
  int unknown = -1;
  for (int i = 0; i < out.size(); ++i) {
    if (out[i] == -1) {
      check(unknown < 0, "view: only one size may be -1, got ", sizes, ".");
      unknown = i;
      out[i] = 1;
    } else {
      check(out[i] >= 0, "view: sizes must be -1 or not negative, got ", sizes, ".");
    }
  }
  const int64_t known = checked_numel(out, "view");
  if (unknown >= 0) {
    check(known != 0, "view: the size for -1 in ", sizes,
          " is ambiguous because another size is 0.");
    check(numel % known == 0, "view: ", sizes, " is impossible for ", numel, " elements (", numel,
          " is no multiple of ", known, ").");
    out[unknown] = numel / known;
  } else {
    check(known == numel, "view: ", sizes, " has ", known, " elements but the tensor has ", numel,
          ".");
  }
  return out;
}

bool view_strides(const Shape& sizes, const Shape& strides, const Shape& target, Shape& out) {
  out.resize(target.size());
  if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) {
    out = contiguous_strides(target);
    return true;
  }
  // Walk from the innermost dimension: a run of source dimensions that lie evenly in memory may be
  // cut anywhere.
  int t = target.size() - 1;
  int64_t run_elements = 1, taken = 1;
  int64_t run_stride = strides.empty() ? 1 : strides.back();
  for (int s = sizes.size() - 1; s >= 0; --s) {
    run_elements *= sizes[s];
    const bool run_ends =
        s == 0 || (sizes[s - 1] != 1 && strides[s - 1] != run_elements * run_stride);
    if (!run_ends) continue;
    while (t >= 0 && (taken < run_elements || target[t] == 1)) {
      out[t] = taken * run_stride;
      taken *= target[t];
      --t;
    }
    if (taken != run_elements) return false;
    if (s > 0) {
      run_stride = strides[s - 1];
      taken = 1;
      run_elements = 1;
    }
  }
  for (; t >= 0; --t) out[t] = taken * run_stride;
  return true;
}

}  // namespace grapnel
