/// The library under test: Grapnel, or LibTorch where BENCH_LIBTORCH is defined.
///
/// Both give the same names the same meaning, so one source measures either. What differs is stated
/// here and nowhere else.
#pragma once

#ifdef BENCH_LIBTORCH
#include <torch/torch.h>
namespace lib = torch;
namespace bench {
constexpr const char* library_name = "libtorch";
inline lib::Tensor cross_entropy(const lib::Tensor& logits, const lib::Tensor& target) {
  return lib::nn::functional::cross_entropy(logits, target);
}
/// There is no compiling from C++ here: the function as it is.
template <class Fn>
Fn compiled(Fn fn) {
  return fn;
}
}  // namespace bench
#else
#include "grapnel/grapnel.h"
namespace lib = grapnel;
namespace bench {
constexpr const char* library_name = "grapnel";
inline lib::Tensor cross_entropy(const lib::Tensor& logits, const lib::Tensor& target) {
  return lib::cross_entropy(logits, target);
}
template <class Fn>
auto compiled(Fn fn) {
  return lib::compile(std::move(fn));
}
}  // namespace bench
#endif
