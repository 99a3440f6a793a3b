#include "grapnel/hooks/saved.h"

#include <unistd.h>
#include <zlib.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "grapnel/base/threads.h"
#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"
#include "grapnel/hooks/layout.h"
#include "grapnel/io/safetensors.h"

namespace grapnel::hooks {

namespace {

struct Narrowed {
  DType dtype;
  Shape order;  // in which the dimensions lie in memory; what comes back lies the same way
  std::any kept;
};
struct Deflated {
  TensorOptions options;
  Shape shape;
  std::vector<Bytef> bytes;
};

/// A file that is gone with its last owner in the process that wrote it. Children by fork have
/// copies of the owners, but not of the file.
struct OnDisk {
  std::filesystem::path path;
  Device device;  ///< where the tensor was
  base::HomeProcess home;
  explicit OnDisk(std::filesystem::path p) : path(std::move(p)) {}
  ~OnDisk() {
    if (home.is_elsewhere()) return;
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
  }
  OnDisk(const OnDisk&) = delete;
  OnDisk& operator=(const OnDisk&) = delete;
};

/// Whether it is a parameter or a view of one, which stays in memory whatever a hook does.
bool stays_anyway(const Tensor& t) {
  const Tensor base = t._base();
  return base.is_leaf() && base.requires_grad();
}

}  // namespace

// What is kept is kept without history: an op that saves its own result would own itself otherwise.

SavedHook compress(DType dtype, SavedHook next, const SavedHookOptions& options) {
  check(is_floating(dtype), "compress: tensors can only be kept as a floating-point type, not ",
        dtype, ".");
  return {[=](const Tensor& t) -> std::any {
            const bool stays = stays_anyway(t);
            const bool narrower = !stays && t.is_floating_point() &&
                                  element_size(dtype) < t.element_size() &&
                                  t.nbytes() >= options.min_bytes;
            const auto pass_on = [&](const Tensor& kept) {
              return next.pack ? next.pack(kept) : std::any(kept.detach());
            };
            // What stays as it is must be seen to: it may be overwritten.
            if (!narrower) return pass_on(stays ? t : t.detach());
            const Shape order = memory_order(t);
            return Narrowed{t.dtype(), order, pass_on(t.detach().permute(order).to(dtype))};
          },
          // If `next` narrows, too, it does not matter which of the two has narrowed this one:
          // what was not narrowed passes through both.
          [=](const std::any& packed) -> Tensor {
            const auto unpack = [&](const std::any& kept) {
              return next.unpack ? next.unpack(kept) : std::any_cast<const Tensor&>(kept);
            };
            const auto* n = std::any_cast<Narrowed>(&packed);
            return n ? unpack(n->kept).to(n->dtype).permute(inverse(n->order)) : unpack(packed);
          }};
}

SavedHook deflate(const SavedHookOptions& options) {
  return {
      [=](const Tensor& t) -> std::any {
        if (stays_anyway(t) || t.nbytes() < options.min_bytes || t.nbytes() > (int64_t{1} << 30))
          return t.detach();
        const Tensor dense = t.detach().cpu().contiguous();
        auto size = compressBound(static_cast<uLong>(dense.nbytes()));
        Deflated out{t.options(), t.shape(), std::vector<Bytef>(size)};
        const int code =
            compress2(out.bytes.data(), &size, static_cast<const Bytef*>(dense.data_ptr()),
                      static_cast<uLong>(dense.nbytes()), Z_BEST_SPEED);
        check(code == Z_OK, "deflate: zlib failed with code ", code, " on a tensor of ",
              dense.nbytes(), " bytes.");
        out.bytes.resize(size);
        out.bytes.shrink_to_fit();
        return std::make_shared<const Deflated>(std::move(out));
      },
      [](const std::any& packed) -> Tensor {
        if (const Tensor* plain = std::any_cast<Tensor>(&packed)) return *plain;
        const auto& d = *std::any_cast<const std::shared_ptr<const Deflated>&>(packed);
        const Tensor out = empty(d.shape, d.options.device(kCPU));
        auto size = static_cast<uLongf>(out.nbytes());
        const int code =
            uncompress(static_cast<Bytef*>(out.data_ptr()), &size, d.bytes.data(), d.bytes.size());
        check(code == Z_OK && size == static_cast<uLongf>(out.nbytes()),
              "deflate: zlib failed with code ", code, " while unpacking.");
        return out.to(d.options.device());
      }};
}

SavedHook save_to_disk(const std::filesystem::path& folder, const SavedHookOptions& options) {
  std::filesystem::create_directories(folder);
  return {[=](const Tensor& t) -> std::any {
            if (stays_anyway(t) || t.nbytes() < options.min_bytes) return t.detach();
            static std::atomic<uint64_t> count{0};
            auto file = std::make_shared<OnDisk>(
                folder / str("saved-", getpid(), '-', count++, ".safetensors"));
            file->device = t.device();
            io::NamedTensors one;
            one.insert("saved", t);
            io::save_safetensors(file->path, one, {}, io::Durable::scratch);
            return file;
          },
          [](const std::any& packed) -> Tensor {
            if (const Tensor* plain = std::any_cast<Tensor>(&packed)) return *plain;
            const auto& file = std::any_cast<const std::shared_ptr<OnDisk>&>(packed);
            return io::load_safetensors(file->path).tensors["saved"].to(file->device);
          }};
}

}  // namespace grapnel::hooks
