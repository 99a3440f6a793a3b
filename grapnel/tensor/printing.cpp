/// Tensors as text: nested brackets with aligned columns, then type and shape. Long tensors show
/// their edges only.
///
///     [[ 1.50, -2.00],
///      [ 3.00,  0.25]] f32[2, 2]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "grapnel/tensor/tensor.h"

namespace grapnel {

namespace {

constexpr int64_t kSummarizeAbove = 1000, kEdge = 3;
constexpr size_t kLineWidth = 80;
constexpr int kDecimals = 4;

std::string printed(const char* format, int decimals, double x) {
  char text[400];
  std::snprintf(text, sizeof text, format, decimals, x);
  return text;
}

/// One format for all numbers of a tensor, chosen by looking at them: as many decimals as the
/// longest needs, and powers of ten when the numbers are very large, very small or very unlike.
class FloatFormat {
 public:
  explicit FloatFormat(const std::vector<double>& values) {
    double largest = 0, smallest = INFINITY;
    for (double x : values) {
      if (!std::isfinite(x) || x == 0) continue;
      largest = std::max(largest, std::fabs(x));
      smallest = std::min(smallest, std::fabs(x));
    }
    if (largest > 0) scientific_ = largest >= 1e8 || smallest < 1e-4 || largest / smallest > 1e5;
    for (double x : values)
      if (std::isfinite(x)) decimals_ = std::max(decimals_, decimals_of(x));
  }
  std::string operator()(double x) const {
    if (std::isnan(x)) return "nan";
    if (std::isinf(x)) return x > 0 ? "inf" : "-inf";
    if (scientific_) return printed("%.*e", decimals_, x);
    return printed("%.*f", decimals_, x) + (decimals_ == 0 ? "." : "");
  }

 private:
  int decimals_of(double x) const {
    std::string text = printed(scientific_ ? "%.*e" : "%.*f", kDecimals, x);
    text.resize(std::min(text.size(), text.find('e')));
    return kDecimals - static_cast<int>(text.size() - 1 - text.find_last_not_of('0'));
  }
  bool scientific_ = false;
  int decimals_ = 0;
};

class Printer {
 public:
  explicit Printer(const Tensor& t)
      : t_(t), rank_(static_cast<int>(t.dim())), summarize_(t.numel() > kSummarizeAbove) {}

  std::string text() {
    if (t_.numel() == 0) return "[]";
    visit_dtype(t_.dtype(), [&]<class T>() { collect<T>(); });
    for (const std::string& cell : cells_) width_ = std::max(width_, cell.size());
    write(0);
    return std::move(out_);
  }

 private:
  /// Calls fn(i) for the indices of dimension `dim` that are shown, with -1 for the gap.
  template <class Fn>
  void for_shown(int dim, Fn&& fn) const {
    const int64_t size = t_.shape()[dim];
    const bool gap = summarize_ && size > 2 * kEdge;
    for (int64_t i = 0; i < size; ++i) {
      if (gap && i == kEdge) {
        fn(-1);
        i = size - kEdge;
      }
      fn(i);
    }
  }
  template <class Fn>
  void walk(int dim, int64_t offset, Fn&& fn) const {
    if (dim == rank_) return fn(offset);
    for_shown(dim, [&](int64_t i) {
      if (i >= 0) walk(dim + 1, offset + i * t_.strides()[static_cast<size_t>(dim)], fn);
    });
  }

  template <class T>
  void collect() {
    const T* data = reinterpret_cast<const T*>(t_.impl().host());
    if constexpr (std::is_integral_v<T>) {
      walk(0, 0, [&](int64_t at) {
        if constexpr (std::is_same_v<T, bool>) cells_.push_back(data[at] ? "true" : "false");
        else cells_.push_back(std::to_string(data[at]));
      });
    } else {
      std::vector<double> values;
      walk(0, 0, [&](int64_t at) {
        values.push_back(static_cast<double>(
            static_cast<std::conditional_t<sizeof(T) == 8, double, float>>(data[at])));
      });
      const FloatFormat format(values);
      for (double x : values) cells_.push_back(format(x));
    }
  }

  void write(int dim) {
    if (dim == rank_) {
      const std::string& cell = cells_[next_++];
      out_.append(width_ - cell.size(), ' ').append(cell);
      return;
    }
    out_ += '[';
    const bool innermost = dim == rank_ - 1;
    const size_t indent = static_cast<size_t>(dim) + 1;
    size_t line_start = out_.size() - indent;
    bool first = true;
    for_shown(dim, [&](int64_t i) {
      if (!first && !innermost) {
        out_.append(",").append(static_cast<size_t>(rank_ - 1 - dim), '\n').append(indent, ' ');
      } else if (!first) {
        const bool full = out_.size() - line_start + width_ + 2 > kLineWidth;
        out_ += full ? ",\n" : ", ";
        if (full) {
          line_start = out_.size();
          out_.append(indent, ' ');
        }
      }
      first = false;
      if (i < 0) out_ += "...";
      else write(dim + 1);
    });
    out_ += ']';
  }

  const Tensor t_;
  int rank_;
  bool summarize_;
  std::vector<std::string> cells_;
  size_t next_ = 0, width_ = 0;
  std::string out_;
};

}  // namespace

std::string Tensor::str() const {
  if (!defined()) return "undefined tensor";
  return grapnel::str(Printer(is_cpu() ? *this : detach().cpu()).text(), ' ', dtype(), shape(),
                      is_cpu() ? "" : grapnel::str(" on ", device()));
}

std::ostream& operator<<(std::ostream& out, const Tensor& t) { return out << t.str(); }

std::ostream& operator<<(std::ostream& out, const TensorOptions& options) {
  return out << "TensorOptions(dtype=" << options.dtype() << ", device=" << options.device()
             << ", requires_grad=" << (options.requires_grad() ? "true" : "false") << ')';
}

}  // namespace grapnel
