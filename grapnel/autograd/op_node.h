/// The backward node of every built-in op: one class, driven by the op's definition.
#pragma once

#include "grapnel/autograd/node.h"
#include "grapnel/autograd/saved_variable.h"
#include "grapnel/base/pool.h"

namespace grapnel {

class CopySlices;

class OpNode final : public Node, private Saved {
 public:
  // Here, too, where they are inlined: this is what most nodes are.
  static void* operator new(size_t bytes) { return base::pool_allocate(bytes); }
  static void operator delete(void* memory, size_t bytes) noexcept {
    base::pool_deallocate(memory, bytes);
  }
  OpNode(const Op& op, const void* attrs);
  ~OpNode() override;

  std::string name() const override { return std::string(op_.name); }
  Grads apply(Grads grads) override { return apply_to(grads); }
  Grads apply_to(const Grads& grads) override;
  void release_saved() override;
  const Op& op() const { return op_; }
  const void* attrs() const { return attrs_; }

  /// Keeps the values that the gradients of the wanted inputs need.
  void save(Inputs inputs, std::span<Tensor> outputs);
  /// Values kept, in the order of their bits: inputs first. For per-slot hooks and tests.
  SmallVector<SavedVariable, 2>& saved() { return saved_; }
  /// Set when the op changed a view in place: its output then belongs to that node, which owns this
  /// one.
  void set_slices(const CopySlices* slices) { slices_ = slices; }

 private:
  bool needs(int i) const override { return static_cast<bool>(next_edge(static_cast<size_t>(i))); }
  int input_count() const override { return static_cast<int>(next_edges().size()); }
  const Shape& input_shape(int i) const override { return target(i).sizes; }
  DType input_dtype(int i) const override { return target(i).dtype; }
  Device input_device(int i) const override { return target(i).device; }
  Tensor load(int bit) const override;
  const void* attrs_blob() const override { return attrs_; }
  const SlotMeta& target(int i) const {
    const Edge& edge = next_edge(static_cast<size_t>(i));
    return edge.node->slot(edge.slot);
  }

  const Op& op_;
  void* attrs_ = nullptr;
  const CopySlices* slices_ = nullptr;
  SaveMask saved_bits_ = 0;
  SmallVector<SavedVariable, 2> saved_;
};

}  // namespace grapnel
