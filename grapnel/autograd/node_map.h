/// Numbers the nodes of a pass: a small open-addressing hash table from node to index.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace grapnel {

class Node;

class NodeMap {
 public:
  NodeMap() : cells_(16) {}

  /// The node's index, and whether it is new (it then gets `index`).
  std::pair<uint32_t, bool> insert(const Node* node, uint32_t index) {
    if (count_ * 2 >= cells_.size()) grow();
    Cell& s = probe(node);
    if (s.node) return {s.index, false};
    s = {node, index};
    ++count_;
    return {index, true};
  }

  /// The node's index, or -1.
  int64_t find(const Node* node) const {
    const Cell& s = const_cast<NodeMap*>(this)->probe(node);
    return s.node ? int64_t{s.index} : -1;
  }

 private:
  struct Cell {
    const Node* node = nullptr;
    uint32_t index = 0;
  };
  Cell& probe(const Node* node) {
    const size_t mask = cells_.size() - 1;
    size_t i = (reinterpret_cast<uintptr_t>(node) >> 4) * 0x9E3779B97F4A7C15ull >> 32 & mask;
    while (cells_[i].node && cells_[i].node != node) i = (i + 1) & mask;
    return cells_[i];
  }
  void grow() {
    std::vector<Cell> old(cells_.size() * 2);
    old.swap(cells_);
    for (const Cell& s : old)
      if (s.node) probe(s.node) = s;
  }

  std::vector<Cell> cells_;
  size_t count_ = 0;
};

}  // namespace grapnel
