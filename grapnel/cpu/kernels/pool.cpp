#include "grapnel/cpu/kernels/pool.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "grapnel/base/thread_pool.h"

namespace grapnel::kernels {

namespace {

/// The elements [begin, end), `step` apart, of an image that one window covers along one dimension.
struct Span {
  int64_t begin, end;
};

Span covered(const PoolParams& p, int d, int64_t at) {
  int64_t begin = at * p.stride[d] - p.pad[d];
  const int64_t end = std::min(begin + (p.kernel[d] - 1) * p.dilation[d] + 1, p.in[d]);
  if (begin < 0) begin += (-begin + p.dilation[d] - 1) / p.dilation[d] * p.dilation[d];
  return {begin, end};
}

/// Windows of a row that are worked on together.
constexpr int64_t kWindows = 256;

/// How many elements an average divides by.
int64_t divisor(const PoolParams& p, int64_t i, int64_t j, Span rows, Span cols) {
  if (!p.count_include_pad) return (rows.end - rows.begin) * (cols.end - cols.begin);
  int64_t count = 1;
  const int64_t at[2] = {i, j};
  for (int d = 0; d < 2; ++d) {
    const int64_t begin = at[d] * p.stride[d] - p.pad[d];
    count *= std::min(begin + p.kernel[d], p.in[d] + p.pad[d]) - begin;
  }
  return count;
}

template <class Fn>
void for_planes(const PoolParams& p, const Fn& fn) {
  const double work = static_cast<double>(p.out[0] * p.out[1]) * static_cast<double>(p.kernel[0]) *
                      static_cast<double>(p.kernel[1]);
  const auto grain = static_cast<int64_t>(32768 / std::max(1.0, work));
  base::parallel_for(p.planes, std::max<int64_t>(1, grain), [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) fn(plane);
  });
}

}  // namespace

/// The windows [from, from + count) of output row i: all of them take one element each at a time,
/// so that the steps do not wait for each other and several fit one instruction. Places count from
/// the window's first row.
template <class T>
void max_of_windows(const PoolParams& p, const T* image, Span rows, int64_t from, int64_t count,
                    T* y, int64_t* index) {
  using Place = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
  alignas(64) T best[kWindows];
  alignas(64) Place place[kWindows];
  const int64_t width = p.in[1], step = p.stride[1];
  // Elements of the window that lie beside the image in all of these windows are left out.
  const int64_t first_left = p.pad[1] - from * step, last_left = first_left - (count - 1) * step;
  const int64_t q_begin = last_left > 0 ? (last_left - 1) / p.dilation[1] + 1 : 0;
  const int64_t room = width + first_left;
  const int64_t q_end = room > 0 ? std::min(p.kernel[1], (room - 1) / p.dilation[1] + 1) : 0;
  for (int64_t j = 0; j < count; ++j) {
    best[j] = -std::numeric_limits<T>::infinity();
    place[j] = static_cast<Place>(covered(p, 1, from + j).begin);
  }
  for (int64_t r = rows.begin; r < rows.end; r += p.dilation[0]) {
    for (int64_t q = q_begin; q < q_end; ++q) {
      const int64_t shift = from * step + q * p.dilation[1] - p.pad[1];
      const int64_t first = shift < 0 ? (-shift + step - 1) / step : 0;
      const int64_t last = shift < width ? std::min(count, (width - shift - 1) / step + 1) : 0;
      const T* const values = image + r * width + shift;
      const Place start = static_cast<Place>((r - rows.begin) * width + shift);
      const auto run = [&](auto stride) {
        for (int64_t j = first; j < last; ++j) {
          const T value = values[j * stride];
          const bool better = (value > best[j]) | (value != value);
          best[j] = better ? value : best[j];
          place[j] = better ? static_cast<Place>(start + j * stride) : place[j];
        }
      };
      // A stride known in advance makes for better loads.
      if (step == 2) run(std::integral_constant<int64_t, 2>());
      else if (step == 1) run(std::integral_constant<int64_t, 1>());
      else run(step);
    }
  }
  for (int64_t j = 0; j < count; ++j) {
    y[j] = best[j];
    index[j] = rows.begin * width + place[j];
  }
}

template <class T>
void max_pool(const PoolParams& p, const T* x, T* y, int64_t* index) {
  for_planes(p, [&](int64_t plane) {
    for (int64_t i = 0; i < p.out[0]; ++i) {
      const int64_t row = (plane * p.out[0] + i) * p.out[1];
      for (int64_t j = 0; j < p.out[1]; j += kWindows)
        max_of_windows(p, x + plane * p.in[0] * p.in[1], covered(p, 0, i), j,
                       std::min(kWindows, p.out[1] - j), y + row + j, index + row + j);
    }
  });
}

template <class T>
void max_pool_backward(const PoolParams& p, const T* g, const int64_t* index, T* gx) {
  for_planes(p, [&](int64_t plane) {
    T* image = gx + plane * p.in[0] * p.in[1];
    std::fill_n(image, p.in[0] * p.in[1], T(0));
    const int64_t count = p.out[0] * p.out[1];
    for (int64_t i = plane * count; i < (plane + 1) * count; ++i) image[index[i]] += g[i];
  });
}

template <class T>
void avg_pool(const PoolParams& p, const T* x, T* y) {
  for_planes(p, [&](int64_t plane) {
    const T* image = x + plane * p.in[0] * p.in[1];
    T* out = y + plane * p.out[0] * p.out[1];
    for (int64_t i = 0; i < p.out[0]; ++i) {
      const Span rows = covered(p, 0, i);
      for (int64_t j = 0; j < p.out[1]; ++j) {
        const Span cols = covered(p, 1, j);
        T sum = 0;
        for (int64_t r = rows.begin; r < rows.end; ++r)
          for (int64_t c = cols.begin; c < cols.end; ++c) sum += image[r * p.in[1] + c];
        *out++ = sum / static_cast<T>(divisor(p, i, j, rows, cols));
      }
    }
  });
}

template <class T>
void avg_pool_backward(const PoolParams& p, const T* g, T* gx) {
  for_planes(p, [&](int64_t plane) {
    T* image = gx + plane * p.in[0] * p.in[1];
    const T* in = g + plane * p.out[0] * p.out[1];
    std::fill_n(image, p.in[0] * p.in[1], T(0));
    for (int64_t i = 0; i < p.out[0]; ++i) {
      const Span rows = covered(p, 0, i);
      for (int64_t j = 0; j < p.out[1]; ++j) {
        const Span cols = covered(p, 1, j);
        const T share = *in++ / static_cast<T>(divisor(p, i, j, rows, cols));
        for (int64_t r = rows.begin; r < rows.end; ++r)
          for (int64_t c = cols.begin; c < cols.end; ++c) image[r * p.in[1] + c] += share;
      }
    }
  });
}

#define GRAPNEL_POOL(T)                                                                \
  template void max_pool<T>(const PoolParams&, const T*, T*, int64_t*);                \
  template void max_pool_backward<T>(const PoolParams&, const T*, const int64_t*, T*); \
  template void avg_pool<T>(const PoolParams&, const T*, T*);                          \
  template void avg_pool_backward<T>(const PoolParams&, const T*, T*);
GRAPNEL_POOL(float)
GRAPNEL_POOL(double)
#undef GRAPNEL_POOL

}  // namespace grapnel::kernels
