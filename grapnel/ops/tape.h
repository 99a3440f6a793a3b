/// Seams between ops and autograd: declared here, defined in autograd/, so that ops/ need not know
/// nodes.
#pragma once

#include "grapnel/base/context.h"
#include "grapnel/ops/op.h"

namespace grapnel {

/// Whether operations on tensors that require grad are recorded, on this thread.
struct GradMode {
  static bool is_enabled() { return this_context.modes.grad; }
  static void set_enabled(bool on) { this_context.modes.grad = on; }
};

/// Whether new tensors are marked as never to be recorded, on this thread.
struct InferenceMode {
  static bool is_enabled() { return this_context.modes.inference; }
  static void set_enabled(bool on) { this_context.modes.inference = on; }
};

namespace tape {

/// Whether the base of a view was changed in place by something that requires grad.
bool tracks_base(const Tensor& view);
/// Whether a gradient flows to `t`. Views also ask their base, which may have been changed since.
inline bool tracks(const Tensor& t) {
  const TensorImpl& impl = t.impl();
  return impl.requires_grad || (impl.differentiable_view && tracks_base(t));
}
/// Makes the node of a call that was just computed.
void record(const Op& op, Inputs inputs, const void* attrs, std::span<Tensor> outputs);
/// Marks `view` as a differentiable view of `base`'s base; views of several outputs refuse in-place
/// changes.
void mark_view(Tensor& view, const Tensor& base, bool multi_output);
/// Checks that `self` may be written now, before anything is computed: leaf rule, views of leaves,
/// inference tensors.
void check_inplace(const Tensor& self, bool recording, std::string_view op);
/// Makes the node of an in-place call and moves self's place in the graph. `kept` are the inputs as
/// the gradient may read them: copies from before the write where it changed them.
void record_inplace(const Op& op, Inputs inputs, const void* attrs, const Tensor& self,
                    Inputs kept);

}  // namespace tape
}  // namespace grapnel
