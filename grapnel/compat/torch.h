/// LibTorch's names for Grapnel: this include takes the place of <torch/torch.h> in programs that use
/// what is offered here.
///
///   #include <grapnel/compat/torch.h>
///   auto x = torch::ones({2, 2}, torch::requires_grad());
///   (x * x).sum().backward();
///
/// Nearly every name is Grapnel's own under another roof; what differs in shape is adapted here and
/// nowhere else. docs/porting-from-libtorch.md lists what is offered, what differs and why.
#pragma once

// Headers of the standard library that come with LibTorch's, which programs rely on.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <functional>
#include <iomanip>
#include <iostream>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#if __cplusplus < 202002L
#error "Grapnel needs C++20: compile with -std=c++20 (CMake: set(CMAKE_CXX_STANDARD 20))."
#endif

#include "grapnel/compat/at.h"
#include "grapnel/compat/autograd.h"
#include "grapnel/compat/c10.h"
#include "grapnel/compat/data.h"
#include "grapnel/compat/nn.h"
#include "grapnel/compat/optim.h"
#include "grapnel/compat/serialize.h"

namespace torch {

GRAPNEL_COMPAT_NAMES
GRAPNEL_COMPAT_ADAPTED(GRAPNEL_COMPAT_USING_ADAPTED)
GRAPNEL_UNARY_OPS(GRAPNEL_COMPAT_USING_INPLACE)
namespace indexing = grapnel::indexing;
namespace Reduction = grapnel::compat::Reduction;

using Dtype = grapnel::ScalarType;
using c10::ArrayRef;
using c10::InferenceMode;
using c10::kCUDA;
using c10::Layout;
using c10::nullopt;
using c10::optional;
template <size_t D, class T = int64_t>
using ExpandingArray = grapnel::nn::ExpandingArray<D, T>;
inline constexpr ScalarType kU8 = kUInt8, kI32 = kInt32, kI64 = kInt64, kF16 = kFloat16,
                            kF32 = kFloat32, kF64 = kFloat64;

namespace cuda {
using grapnel::cuda::is_available;
inline size_t device_count() { return static_cast<size_t>(grapnel::cuda::device_count()); }
}  // namespace cuda

}  // namespace torch
