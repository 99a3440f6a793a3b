/// Random programs over tensors, reproducible from a seed: ops, views, writes through views,
/// reductions, types, draws, drops.
#pragma once

#include <random>

#include "tests/ops/sweep.h"

namespace grapnel {

class RandomProgram {
 public:
  explicit RandomProgram(uint64_t seed) : seed_(seed) {}

  /// Fresh inputs, the same for every call.
  std::vector<Tensor> inputs() const {
    std::mt19937_64 rng(seed_);
    Generator draws(seed_);
    std::vector<Tensor> list;
    const DType types[] = {kFloat32,  kFloat32, kFloat32, kFloat64, kInt64,
                           kBFloat16, kFloat16, kInt32,   kBool,    kUInt8};
    for (int i = 0; i < 3; ++i) {
      Shape sizes;
      const int rank = static_cast<int>(rng() % 4);
      const int64_t choices[] = {1, 2, 3, 5, 8, 70};
      for (int d = 0; d < rank; ++d)
        sizes.push_back(rng() % 40 == 0 ? 0 : choices[rng() % (rank == 3 ? 5 : 6)]);
      // Enough for kernels that reduce by themselves.
      if (rank == 1 && rng() % 16 == 0) sizes = {17000};
      const DType type = types[rng() % std::size(types)];
      list.push_back((randn(sizes, draws) * 3.0).to(type));
    }
    return list;
  }

  /// Runs the program on `pool`; returns what is left of it.
  std::vector<Tensor> run(std::vector<Tensor> pool) const {
    std::mt19937_64 rng(seed_ ^ 0x5DEECE66D);
    const int steps = 3 + static_cast<int>(rng() % 25);
    for (int i = 0; i < steps; ++i) step(pool, rng);
    return pool;
  }

 private:
  using Rng = std::mt19937_64;
  static bool is_int(const Tensor& t) { return !t.is_floating_point(); }

  static Tensor pick(const std::vector<Tensor>& pool, Rng& rng) {
    return pool[rng() % pool.size()];
  }
  /// Another tensor that broadcasts against `a`, or a.
  static Tensor partner(const std::vector<Tensor>& pool, const Tensor& a, Rng& rng) {
    for (int tries = 0; tries < 6; ++tries) {
      const Tensor b = pick(pool, rng);
      bool fits = true;
      for (int64_t i = 1; i <= std::min(a.dim(), b.dim()); ++i) {
        const int64_t x = a.size(-i), y = b.size(-i);
        fits &= x == y || x == 1 || y == 1;
      }
      if (fits) return b;
    }
    return a;
  }
  static bool broadcasts_to(const Tensor& b, const Tensor& a) {
    if (b.dim() > a.dim()) return false;
    for (int64_t i = 1; i <= b.dim(); ++i)
      if (b.size(-i) != a.size(-i) && b.size(-i) != 1) return false;
    return true;
  }
  static Scalar number(Rng& rng) {
    switch (rng() % 4) {
      case 0: return static_cast<int64_t>(rng() % 5) - 1;
      case 1: return 0.0;
      case 2: return 1.0;
      default: return static_cast<double>(rng() % 100) * 0.03 - 1.0;
    }
  }
  static bool overlaps_itself(const Tensor& t) {
    for (int64_t i = 0; i < t.dim(); ++i)
      if (t.size(i) > 1 && t.stride(i) == 0) return true;
    return false;
  }

  static Tensor unary(const Tensor& a, Rng& rng) {
    if (a.dtype() == kBool) return logical_not(a);
    switch (rng() % 12) {
      case 0: return a.neg();
      case 1: return a.abs();
      case 2: return a.square();
      case 3: return a.sign();
      default: break;
    }
    if (is_int(a)) return a * 2;
    switch (rng() % 12) {
      case 0: return a.exp();
      case 1: return a.tanh();
      case 2: return a.sigmoid();
      case 3: return gelu(a);
      case 4: return a.relu();
      case 5: return sqrt(a.abs());
      case 6: return log(a.abs() + 0.5);
      case 7: return a.sin();
      case 8: return a.floor();
      case 9: return silu(a);
      case 10: return a.clamp(-1.0, 1.5);
      default: return erf(a);
    }
  }
  static Tensor binary(const Tensor& a, const Tensor& b, Rng& rng) {
    switch (rng() % 8) {
      case 0: return a + b;
      case 1:
        return a.dtype() == kBool && b.dtype() == kBool
                   ? a ^ b
                   : a - b.to(b.dtype() == kBool ? kInt64 : b.dtype());
      case 2: return a * b;
      case 3: return maximum(a, b);
      case 4: return minimum(a, b);
      case 5: return a < b;
      case 6: return where(a > 0, a, b);
      default: return a.to(kFloat32) / (b.to(kFloat32).abs() + 1.0);
    }
  }
  static Tensor reduction(const Tensor& a, Rng& rng) {
    const bool keep = rng() % 2;
    const int64_t dim = a.dim() ? static_cast<int64_t>(rng() % static_cast<uint64_t>(a.dim())) : 0;
    const Tensor x = a.dtype() == kBool ? a.to(kInt64) : a;
    if (a.dim() == 0 || rng() % 3 == 0) return x.sum();
    switch (rng() % 5) {
      case 0: return x.sum({dim}, keep);
      case 1: return x.to(is_int(x) ? kFloat32 : x.dtype()).mean({dim}, keep);
      case 2: return x.size(dim) > 0 ? x.amax({dim}, keep) : x.sum({dim}, keep);
      case 3: return x.dim() > 1 ? x.sum({0, 1}, keep) : x.sum({0}, keep);
      default: return is_int(x) ? x.cumsum(dim) : softmax(x, dim);
    }
  }
  /// Rows that look at their own sums and maxima, as softmax and layer norm do.
  static Tensor rows(const Tensor& a, Rng& rng) {
    if (a.dim() == 0 || is_int(a) || a.size(-1) == 0) return a.abs();
    const Tensor top = a.amax({-1}, true);
    switch (rng() % 6) {
      case 0: {
        const Tensor e = exp(a - top);
        return e / e.sum({-1}, true);
      }
      case 1: {
        const Tensor c = a - a.mean({-1}, true);
        return c * rsqrt(c.square().mean({-1}, true) + 0.01);
      }
      case 2: return a * 0.5 - (a * 0.5).sum({-1}).unsqueeze(-1);
      case 3: return a + (a * a).sum({-1}, true).expand_as(a);
      case 4:
        return a.dim() > 1 && a.size(0) == a.size(-1) ? a.tanh() + a.tanh().sum({-1})
                                                      : a.tanh() * top;
      default: return (a - top).exp().sum({-1}, true).log() + top;
    }
  }
  /// Products and convolutions with something before and behind them.
  static void product(std::vector<Tensor>& pool, const Tensor& a, Rng& rng) {
    if (a.dtype() == kBool || a.dtype() == kUInt8 || a.dim() == 0 || a.dim() > 3 ||
        a.numel() > 5000)
      return;
    if (a.dim() > 1 && a.size(-2) > 100) return;
    const auto width = static_cast<int64_t>(1 + rng() % 40);
    const Tensor weight = (rand({width, a.size(-1)}) * 4.0 - 2.0).to(a.dtype()),
                 bias = rand({width}).to(a.dtype());
    const Tensor batch =
        a.dim() == 3 ? rand({a.size(0), a.size(2), width}).to(a.dtype()) : weight.t();
    // The last thing before the product.
    const Tensor left = rng() % 2 ? a : unary(a, rng);
    Tensor y;
    switch (rng() % 6) {
      case 5: y = matmul(left, batch); break;
      case 0: y = matmul(left, weight.t()); break;
      case 1: y = linear(left, weight, bias); break;
      case 2: y = a.dim() > 1 ? matmul(left, left.transpose(-1, -2)) : matmul(weight, left); break;
      case 3: y = matmul(left, weight.t().contiguous()); break;
      default:
        if (a.dim() < 2 || is_int(a) || a.size(-1) < 2 || a.size(-2) < 2) return;
        y = conv2d(left.reshape({a.numel() / (a.size(-1) * a.size(-2)), 1, a.size(-2), a.size(-1)}),
                   (rand({3, 1, 2, 2}) - 0.5).to(a.dtype()),
                   rng() % 2 ? rand({3}).to(a.dtype()) : Tensor());
    }
    if (rng() % 3 == 0) pool.push_back(y);
    const auto chain = rng() % 4;
    for (uint64_t i = 0; i < chain; ++i) {
      switch (rng() % 5) {
        case 0: y = unary(y, rng); break;
        case 1: y = binary(y, partner(pool, y, rng), rng); break;
        case 2:
          if (y.dtype() != kBool) y = y * number(rng);
          break;
        case 3: write(y, pool, rng); break;
        default: y = y.to(rng() % 2 ? kBFloat16 : kFloat32); break;
      }
      if (rng() % 3 == 0) pool.push_back(y);
    }
    pool.push_back(y);
  }
  static Tensor view(const Tensor& a, Rng& rng) {
    if (a.dim() == 0) return a.unsqueeze(0).expand({3});
    const int64_t dim = static_cast<int64_t>(rng() % static_cast<uint64_t>(a.dim()));
    switch (rng() % 7) {
      case 0: return a.transpose(0, -1);
      case 1:
        return a.size(dim) > 0
                   ? a.select(dim, static_cast<int64_t>(rng() % static_cast<uint64_t>(a.size(dim))))
                   : a;
      case 2: return a.slice(dim, a.size(dim) / 3);
      case 3: return a.dim() < 4 ? a.unsqueeze(dim) : a;
      case 4: return a.reshape({-1});
      case 5: return a.slice(dim, 0, {}, 2);
      default:
        return a.size(dim) == 1 && a.dim() < 4 ? a.transpose(dim, 0).expand_as(a.transpose(dim, 0))
                                               : a.flatten();
    }
  }
  static void write(const Tensor& a, const std::vector<Tensor>& pool, Rng& rng) {
    if (overlaps_itself(a) || a.dtype() == kBool) return;
    Tensor target = a;
    const Tensor b = partner(pool, a, rng);
    const bool usable = broadcasts_to(b, a) && can_cast(result_type_of(a, b), a.dtype());
    switch (rng() % 7) {
      case 0: target.add_(static_cast<int64_t>(rng() % 3)); break;
      case 1: target.mul_(2); break;
      case 2: target.zero_(); break;
      case 3:
        if (usable) target.add_(b);
        break;
      case 4:
        if (usable) target.mul_(b);
        break;
      case 5:
        if (broadcasts_to(b, a)) target.copy_(b);
        break;
      default:
        if (!is_int(a)) target.mul_(0.5);
        break;
    }
  }
  static DType result_type_of(const Tensor& a, const Tensor& b) {
    const Tensor* list[] = {&a, &b};
    return result_type(list);
  }

  static void step(std::vector<Tensor>& pool, Rng& rng) {
    const Tensor a = pick(pool, rng);
    switch (rng() % 17) {
      case 15:
      case 16: product(pool, a, rng); break;
      case 14: pool.push_back(rows(a, rng)); break;
      case 0:
      case 1:
      case 2: pool.push_back(unary(a, rng)); break;
      case 3:
      case 4: pool.push_back(binary(a, partner(pool, a, rng), rng)); break;
      case 5: pool.push_back(a.dtype() == kBool ? a : a * number(rng)); break;
      case 6: pool.push_back(reduction(a, rng)); break;
      case 7: pool.push_back(view(a, rng)); break;
      case 8:
      case 9: write(a, pool, rng); break;
      case 10: {
        const DType types[] = {kFloat32, kFloat64, kBFloat16, kInt64, kFloat16};
        pool.push_back(a.to(types[rng() % std::size(types)]));
        break;
      }
      case 11:
        if (a.dim() >= 2 && a.is_floating_point() && a.dtype() != kFloat16)
          pool.push_back(a.matmul(a.transpose(-1, -2)));
        else pool.push_back(a.clone());
        break;
      case 12:
        pool.push_back(rng() % 2 ? zeros_like(a) : rng() % 2 ? rand({3}) : full_like(a, 1));
        break;
      default:
        if (pool.size() > 4)
          pool.erase(pool.begin() + 3 + static_cast<ptrdiff_t>(rng() % (pool.size() - 3)));
    }
    if (pool.back().numel() > 20000) pool.pop_back();
  }

  uint64_t seed_;
};

}  // namespace grapnel
