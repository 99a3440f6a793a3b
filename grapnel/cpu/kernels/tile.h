/// Tile: a part of a product or convolution that one thread has just finished.
#pragma once

#include <cstdint>
#include <type_traits>

namespace grapnel::kernels {

/// Elements begin + i * pitch + j of the whole result, counted row by row, for i < rows and j <
/// cols.
struct Tile {
  int64_t begin, rows, cols, pitch;
  void* local = nullptr;  ///< its values, row behind row, where the whole has no memory of its own
};

/// Values behind those of a tile of operands that may be overwritten.
inline constexpr int64_t kTileMargin = 64;

/// Values of an operand that a thread computes at once, at most: it keeps the memory.
inline constexpr int64_t kLargestFill = int64_t{1} << 20;

/// Something to do with each tile, or nothing: a borrowed callable, which must outlive the call it
/// is given to. It runs on the thread that computed the tile, while others compute theirs, and may
/// use the pool.
class TileFn {
 public:
  TileFn() = default;
  explicit operator bool() const { return call_ != nullptr; }
  template <class F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, TileFn>)
  TileFn(F&& f)
      : object_(const_cast<void*>(static_cast<const void*>(&f))),
        call_([](void* object, const Tile& tile) {
          (*static_cast<std::remove_reference_t<F>*>(object))(tile);
        }) {}
  void operator()(const Tile& tile) const {
    if (call_) call_(object_, tile);
  }

 private:
  void* object_ = nullptr;
  void (*call_)(void*, const Tile&) = nullptr;
};

}  // namespace grapnel::kernels
