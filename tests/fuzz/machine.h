/// A machine whose programs are bytes: every byte string is a valid program over a small pool of
/// tensors.
///
/// The machine owns all tensors and handles; hooks only refer to the machine, so nothing a program
/// does can make a cycle that the library could not see. Everything observable (values, order of
/// hooks, kinds of failure) goes into the log, which is the same whenever the same program runs.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "grapnel/grapnel.h"

namespace grapnel::fuzz {

/// Thrown by hooks of programs; the library must let it through as it is.
struct HookThrew {
  int hook;
};

class Reader {
 public:
  explicit Reader(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  bool empty() const { return at_ >= bytes_.size(); }
  uint8_t byte() { return empty() ? 0 : bytes_[at_++]; }
  size_t below(size_t n) { return byte() % n; }
  bool flag() { return byte() & 1; }

 private:
  std::span<const uint8_t> bytes_;
  size_t at_ = 0;
};

class Machine {
 public:
  explicit Machine(std::span<const uint8_t> program) : in(program) {}
  Machine(const Machine&) = delete;
  /// Gradients of a pass that created a graph refer back to their tensors; only their owner can cut
  /// that.
  ~Machine() {
    for (const Tensor& t : may_hold_grad_) t.reset_grad();
  }

  Reader in;
  std::vector<Tensor> pool;
  std::vector<HookHandle> handles;
  std::vector<Tensor> kept;  ///< gradients that hooks kept
  int hooks_made = 0;
  int depth = 0;             ///< of passes started by hooks
  int firings = 0;           ///< hooks go quiet after a while, so that programs end
  int graphs_of_passes = 0;  ///< of gradients of gradients; each may be a multiple of the last

  static constexpr size_t kPool = 24;
  static constexpr int64_t kElements = 256;
  static constexpr int kFirings = 400;
  static constexpr int kGraphs = 12;

  // --- tensors ---
  const Tensor& pick(size_t number) const { return pool[number % pool.size()]; }
  const Tensor& pick() { return pick(in.byte()); }
  void keep(Tensor t) {
    if (!t.defined() || t.numel() > kElements) return;
    if (pool.size() < kPool) pool.push_back(std::move(t));
    else pool[in.below(kPool)] = std::move(t);
  }
  /// Call before a tensor's grad() may be written by anything but an ordinary pass over leaves.
  void remember(const Tensor& t) { may_hold_grad_.push_back(t); }
  int64_t pick_dim(const Tensor& t) {
    return static_cast<int64_t>(in.below(static_cast<size_t>(t.dim()) + 2)) - 1;
  }
  Scalar pick_scalar() {
    static const Scalar scalars[] = {2, 0.5, -1.0, 0, 1, true, 3.25, -7, 1e30, 0.0};
    return scalars[in.below(std::size(scalars))];
  }
  void make_leaf() {
    static const Shape shapes[] = {{},     {1},       {3}, {2, 3},    {3, 2}, {4},
                                   {2, 1}, {2, 2, 2}, {0}, {3, 1, 2}, {4, 4}};
    static const DType types[] = {kFloat32, kFloat64, kFloat32, kBFloat16,
                                  kFloat16, kInt64,   kInt32,   kBool};
    const Shape& shape = shapes[in.below(std::size(shapes))];
    const DType type = types[in.below(std::size(types))];
    Tensor t = (arange(shape_numel(shape)) * 0.37 - 0.8 + static_cast<double>(in.below(4)))
                   .to(type)
                   .reshape(shape)
                   .clone();
    if (is_floating(type) && in.below(4) != 0) t.requires_grad_();
    remember(t);
    keep(t);
  }

  // --- the log ---
  const std::vector<uint64_t>& log() const { return log_; }
  void note(uint64_t event) { log_.push_back(event); }
  /// The values of a tensor, up to the payload of NaNs.
  void note(const Tensor& t) {
    if (!t.defined()) return note(0xdead);
    NoGradGuard no_grad;
    const Tensor wide = t.detach().to(kFloat64).contiguous();
    uint64_t hash = static_cast<uint64_t>(t.dtype()) * 31 + static_cast<uint64_t>(t.dim());
    for (int64_t s : t.sizes()) hash = mix(hash, static_cast<uint64_t>(s));
    const double* p = wide.data_ptr<double>();
    for (int64_t i = 0; i < wide.numel(); ++i)
      hash = mix(hash, std::isnan(p[i]) ? 0x7ff8u : std::bit_cast<uint64_t>(p[i]));
    note(hash);
  }

 private:
  static uint64_t mix(uint64_t hash, uint64_t x) {
    return (hash ^ x) * 0x9e3779b97f4a7c15u + (hash >> 29);
  }
  static int64_t shape_numel(const Shape& shape) {
    int64_t n = 1;
    for (int64_t s : shape) n *= s;
    return n;
  }

  std::vector<uint64_t> log_;
  std::vector<Tensor> may_hold_grad_;
};

}  // namespace grapnel::fuzz
