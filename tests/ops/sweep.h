/// Walking all ops over their samples, for tests that hold for every op.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "grapnel/base/cpu.h"
#include "grapnel/base/error_kinds.h"
#include "grapnel/base/thread_pool.h"
#include "grapnel/functions/factories.h"
#include "grapnel/ops/evaluator.h"
#include "grapnel/ops/list.h"

namespace grapnel {

inline constexpr DType kAllDTypes[] = {kBool,    kUInt8,    kInt32,   kInt64,
                                       kFloat16, kBFloat16, kFloat32, kFloat64};

/// Runs an op on a list of tensors.
inline Outputs run_op(const Op& op, const std::vector<Tensor>& inputs, const void* attrs) {
  std::vector<const Tensor*> list;
  for (const Tensor& t : inputs) list.push_back(&t);
  return apply_all(op, list, attrs);
}
inline Outputs run_op(const Op& op, const Sample& sample) {
  return run_op(op, sample.inputs, sample.attrs.get());
}

/// Whether an op says that it computes with no such types, as `sub` does of masks.
inline bool refuses_types(const Op& op, const std::vector<Tensor>& inputs, const void* attrs) {
  try {
    run_op(op, inputs, attrs);
    return false;
  } catch (const TypeError&) {
    return true;
  }
}

/// Calls fn(op, sample) for every sample of every op, with the op's name in failure reports.
template <class Fn>
void for_each_sample(Fn&& fn) {
  for (const Op* op : all_ops()) {
    int number = 0;
    for (const Sample& sample : op->samples()) {
      const std::string where = str(op->name, ", sample ", number++);
      CAPTURE(where);
      // One op that throws must not hide the others.
      try {
        fn(*op, sample);
      } catch (const std::exception& e) {
        FAIL_CHECK(std::string(e.what()));
      }
    }
  }
}

/// Equal shape, type and bits; any two NaNs count as equal.
inline bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.defined() != b.defined()) return false;
  if (!a.defined()) return true;
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return false;
  const TensorOptions host = TensorOptions(a.dtype()).device(kCPU);
  Tensor x = empty(a.sizes(), host), y = empty(a.sizes(), host);
  copy_elements(x, a);
  copy_elements(y, b);
  return visit_dtype(a.dtype(), [&]<class T>() {
    const T* p = x.data_ptr<T>();
    const T* q = y.data_ptr<T>();
    for (int64_t i = 0; i < x.numel(); ++i) {
      if (std::memcmp(p + i, q + i, sizeof(T)) == 0) continue;
      if constexpr (!std::is_integral_v<T>)
        if (std::isnan(static_cast<double>(static_cast<float>(p[i]))) &&
            std::isnan(static_cast<double>(static_cast<float>(q[i]))))
          continue;
      return false;
    }
    return true;
  });
}
inline bool same_bits(const Outputs& a, const Outputs& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (!same_bits(a[i], b[i])) return false;
  return true;
}

/// Matrix products and convolutions promise equal bits in all modes on one device, but not across
/// layouts and instruction sets.
inline bool is_product(const Op& op) {
  auto among = [&]<class... D>(OpList<D...>) { return ((&op == &op_of<D>) || ...); };
  return among(MatmulOps{}) || among(AttentionOps{}) || among(RecurrentOps{}) || among(ConvOps{});
}
/// Equal up to rounding.
inline bool close(const Outputs& a, const Outputs& b) {
  bool all = a.size() == b.size();
  for (size_t i = 0; all && i < a.size(); ++i)
    all = a[i].shape() == b[i].shape() && a[i].allclose(b[i], 1e-12, 1e-12);
  return all;
}

/// The same values in another type or layout; plain numbers and absent inputs stay what they are.
template <class Fn>
std::vector<Tensor> remade(const std::vector<Tensor>& inputs, Fn&& make) {
  std::vector<Tensor> out;
  for (const Tensor& t : inputs)
    out.push_back(t.defined() && !t.impl().wrapped_number ? make(t) : t);
  return out;
}
inline Tensor converted_to(const Tensor& t, DType dtype) {
  const Tensor out = empty(t.sizes(), dtype);
  copy_elements(out, t);
  return out;
}
/// Column-major: the first dimension is the one that lies densely.
inline Tensor column_major(const Tensor& t) {
  Shape strides = t.shape();
  int64_t stride = 1;
  for (int i = 0; i < strides.size(); ++i) {
    strides[i] = stride;
    stride *= std::max<int64_t>(1, t.shape()[i]);
  }
  const Tensor out = empty_strided(t.sizes(), strides, t.dtype());
  copy_elements(out, t);
  return out;
}
/// Every second element of memory, and not from its beginning.
inline Tensor spread_out(const Tensor& t) {
  const Tensor memory = zeros({2 * t.numel() + 3}, t.dtype());
  Shape strides = contiguous_strides(t.shape());
  for (int64_t& s : strides) s *= 2;
  const Tensor out = make_alias(memory, {t.shape(), strides, 3});
  copy_elements(out, t);
  return out;
}
/// The values of `t` over and over, as one long vector.
inline Tensor repeated(const Tensor& t, int64_t count) {
  const Tensor out = empty({count}, t.dtype());
  const auto size = static_cast<int64_t>(t.element_size());
  for (int64_t i = 0; i < count; ++i)
    std::memcpy(static_cast<char*>(out.data_ptr()) + i * size,
                static_cast<char*>(t.data_ptr()) + i % t.numel() * size, static_cast<size_t>(size));
  return out;
}

/// The instruction sets this processor can run.
inline std::vector<base::Isa> available_isas() {
  std::vector<base::Isa> out;
  for (base::Isa isa : {base::Isa::baseline, base::Isa::avx2, base::Isa::avx512})
    if (isa <= base::cpu_isa()) out.push_back(isa);
  return out;
}
struct IsaScope {
  explicit IsaScope(base::Isa isa) { base::set_isa_for_testing(isa); }
  ~IsaScope() { base::set_isa_for_testing({}); }
};
struct ThreadsScope {
  explicit ThreadsScope(int count) : before(get_num_threads()) { set_num_threads(count); }
  ~ThreadsScope() { set_num_threads(before); }
  int before;
};

}  // namespace grapnel
