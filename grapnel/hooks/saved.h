/// Where tensors that wait for the backward pass are kept meanwhile: as narrower numbers,
/// compressed, or on the disk.
///
///   const hooks::SavedHook hook = hooks::save_to_disk("/scratch");
///   autograd::SavedTensorHooks scope(hook.pack, hook.unpack);
///   Tensor loss = net(x).sum();                // what backward needs is in /scratch now
///   loss.backward();
///
/// Parameters and their views are left alone: their memory is in use anyway.
#pragma once

#include <any>
#include <cstdint>
#include <filesystem>
#include <functional>

#include "grapnel/tensor/tensor.h"

namespace grapnel::hooks {

/// A pair for autograd::SavedTensorHooks.
struct SavedHook {
  std::function<std::any(const Tensor&)> pack;
  std::function<Tensor(const std::any&)> unpack;
};

/// Which saved tensors are packed.
struct SavedHookOptions {
  /// Smaller tensors are kept as they are.
  int64_t min_bytes = 1 << 12;
};

/// Floating-point tensors are kept as `dtype`, which is narrower; gradients are computed from the
/// rounded values. What is left goes on to `next`, if there is one: `compress(kBFloat16,
/// save_to_disk(folder))`.
SavedHook compress(DType dtype, SavedHook next = {}, const SavedHookOptions& options = {});
/// Bytes are kept deflated (zlib, fastest level). Nothing is lost.
SavedHook deflate(const SavedHookOptions& options = {});
/// Each tensor is a file in `folder` until the graph lets go of it. Files are removed then, and by
/// their process at the latest.
SavedHook save_to_disk(const std::filesystem::path& folder, const SavedHookOptions& options = {});

}  // namespace grapnel::hooks
