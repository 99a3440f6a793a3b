/// What the CPU does for each op.
///
/// `run<D>` computes the results of a call. Pointwise ops and reductions have one for all, made of
/// their formulas; views need none. Every other op has a specialisation, in the source that is named
/// after its family; an op without one does not link.
#pragma once

#include "grapnel/ops/define.h"

namespace grapnel::cpu {

template <class D>
void run(Inputs in, const typename D::Attrs& attrs, std::span<Tensor> out);

void run_pointwise(const Op& op, Inputs in, const void* attrs, std::span<Tensor> out);
void run_reduction(const Op& op, Inputs in, const void* attrs, std::span<Tensor> out);

/// Evaluator::copy of the CPU: for use inside `run`, where nothing is recorded.
void copy(const Tensor& target, const Tensor& source);

}  // namespace grapnel::cpu
