/// The instructions of the machine that compute: pointwise, views, in place, reductions, products,
/// joins, indexing.
#pragma once

#include "grapnel/tensor/tensor_index.h"
#include "tests/fuzz/machine.h"

namespace grapnel::fuzz {

inline Tensor unary(Machine& m, const Tensor& x) {
  switch (m.in.below(14)) {
    case 0: return x.sin();
    case 1: return x.exp();
    case 2: return x.relu();
    case 3: return x.tanh();
    case 4: return -x;
    case 5: return x.sqrt();
    case 6: return x.square();
    case 7: return x.sigmoid();
    case 8: return x.abs();
    case 9: return x.clamp(-0.5, 1.5);
    case 10: return x.reciprocal();
    case 11: return x.log();
    case 12: return gelu(x);
    default: return x.round();
  }
}

inline Tensor binary(Machine& m, const Tensor& x, const Tensor& y) {
  switch (m.in.below(9)) {
    case 0: return x + y;
    case 1: return x - y;
    case 2: return x * y;
    case 3: return x / y;
    case 4: return maximum(x, y);
    case 5: return where(x > y, x, y);
    case 6: return x.pow(y);
    case 7: return x.lerp(y, 0.25);
    default: return x.addcmul(y, y, 0.5);
  }
}

inline Tensor with_number(Machine& m, const Tensor& x) {
  const Scalar s = m.pick_scalar();
  switch (m.in.below(6)) {
    case 0: return x + s;
    case 1: return x * s;
    case 2: return x / s;
    case 3: return x.pow(s);
    case 4: return s - x;
    default: return x.masked_fill(x > s, s);
  }
}

inline Tensor view(Machine& m, const Tensor& x) {
  const int64_t d = m.pick_dim(x), e = m.pick_dim(x);
  switch (m.in.below(14)) {
    case 0: return x.view({-1});
    case 1: return x.transpose(d, e);
    case 2: return x.unsqueeze(d);
    case 3: return x.squeeze();
    case 4: return x.select(d, static_cast<int64_t>(m.in.below(3)));
    case 5:
      return x.slice(d, static_cast<int64_t>(m.in.below(3)), {},
                     1 + static_cast<int64_t>(m.in.below(2)));
    case 6: return x.narrow(d, static_cast<int64_t>(m.in.below(2)), 1);
    case 7: return x.expand({2, 3});
    case 8: return x.diagonal();
    case 9: return x.flatten();
    case 10: return x.reshape({2, -1});
    case 11: {
      const std::vector<Tensor> parts = x.unbind(d);
      return parts.empty() ? Tensor() : parts[m.in.below(parts.size())];
    }
    case 12: {
      const std::vector<Tensor> parts = x.chunk(2, d);
      return parts.empty() ? Tensor() : parts[m.in.below(parts.size())];
    }
    default: return x.as_strided({2, 2}, {1, 1});
  }
}

/// Changes x; what it returns is x again, so that it gets another place in the pool.
inline Tensor in_place(Machine& m, const Tensor& x) {
  switch (m.in.below(14)) {
    case 0: return x.add_(m.pick());
    case 1: return x.mul_(m.pick());
    case 2: return x.mul_(m.pick_scalar());
    case 3: return x.sin_();
    case 4: return x.zero_();
    case 5: return x.fill_(m.pick_scalar());
    case 6: return x.copy_(m.pick());
    case 7: return x.exp_();
    case 8: return x.clamp_(-1, 1);
    case 9: return x.masked_fill_(x > 0, m.pick_scalar());
    case 10: return x.sub_(m.pick(), 0.5);
    case 11: return x.index_put_({0}, m.pick());
    case 12: return x.relu_();
    default: return x.detach_();
  }
}

inline Tensor reduction(Machine& m, const Tensor& x) {
  const int64_t d = m.pick_dim(x);
  switch (m.in.below(12)) {
    case 0: return x.sum();
    case 1: return x.sum({d}, m.in.flag());
    case 2: return x.mean();
    case 3: return x.prod();
    case 4: return x.amax({d});
    case 5: return std::get<0>(x.max(d));
    case 6: return x.logsumexp({d});
    case 7: return x.cumsum(d);
    case 8: return x.softmax(d);
    case 9: return x.var();
    case 10: return x.norm();
    default: return std::get<0>(x.sort(d, m.in.flag()));
  }
}

inline Tensor product(Machine& m, const Tensor& x, const Tensor& y) {
  switch (m.in.below(5)) {
    case 0: return x.matmul(y);
    case 1: return linear(x, y);
    case 2: return x.outer(y);
    case 3: return x.dot(y);
    default: return m.pick().addmm(x, y);
  }
}

inline Tensor join(Machine& m, const Tensor& x, const Tensor& y) {
  const int64_t d = m.pick_dim(x);
  switch (m.in.below(4)) {
    case 0: return cat({x, y}, d);
    case 1: return stack({x, y}, d);
    case 2: return cat({x, x, y}, d);
    default: return stack({x.flatten(), x.flatten()});
  }
}

inline Tensor indexed(Machine& m, const Tensor& x, const Tensor& y) {
  const int64_t d = m.pick_dim(x);
  const Tensor positions = tensor({0, 1, 0});
  switch (m.in.below(8)) {
    case 0: return x.index_select(d, positions);
    case 1: return x.gather(d, y);
    case 2: return x[positions];
    case 3: return x.masked_select(x > 0.0);
    case 4: return x.index({x > 0.0});
    case 5: return x.index_add(d, positions, y);
    case 6:
      return x.index(
          {grapnel::indexing::Slice(0, grapnel::indexing::None, 2), grapnel::indexing::Ellipsis});
    default: return x.scatter_add(d, y, x);
  }
}

inline Tensor copy(Machine& m, const Tensor& x) {
  static const DType types[] = {kFloat64, kFloat32, kBFloat16, kInt64, kBool};
  switch (m.in.below(5)) {
    case 0: return x.clone();
    case 1: return x.detach();
    case 2: return x.contiguous();
    case 3: return x.to(types[m.in.below(std::size(types))]);
    default: return x.flip({m.pick_dim(x)});
  }
}

}  // namespace grapnel::fuzz
