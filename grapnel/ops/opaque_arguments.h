/// A seam like those in record.h: opaque calls look at more of a tensor than its elements.
#pragma once

#include <string>

namespace grapnel {

class Tensor;

struct AutogradMeta;

namespace record {

/// Called before grad() of a tensor becomes another tensor. Opaque calls that were recorded with
/// this tensor as an argument run first: they may ask for its gradient, and have to find the one of
/// their turn.
void before_grad_is_replaced(const AutogradMeta& tensor);

/// The hook of this thread that is being shown the memory of `t` and may not write to it, as
/// messages name it; empty if there is none.
std::string who_looks_at(const Tensor& t);

}  // namespace record
}  // namespace grapnel
