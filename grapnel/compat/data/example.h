/// torch::data::Example: what a dataset gives, and a batch of it once it is stacked.
#pragma once

#include <utility>

#include "grapnel/compat/at.h"

namespace torch::data {

namespace example {
/// Stands for a target that there is not.
struct NoTarget {};
}  // namespace example

/// Something to learn from, and what should come out.
template <class Data = grapnel::Tensor, class Target = grapnel::Tensor>
struct Example {
  using DataType = Data;
  using TargetType = Target;
  Example() = default;
  Example(Data d, Target t) : data(std::move(d)), target(std::move(t)) {}
  Data data;
  Target target;
};

/// Something to learn from alone.
template <class Data>
struct Example<Data, example::NoTarget> {
  using DataType = Data;
  using TargetType = example::NoTarget;
  Example() = default;
  Example(Data d) : data(std::move(d)) {}
  operator Data&() { return data; }
  operator const Data&() const { return data; }
  Data data;
};

using TensorExample = Example<grapnel::Tensor, example::NoTarget>;

}  // namespace torch::data
