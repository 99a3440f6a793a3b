/// Sets of values that are alike in some way (union-find).
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace grapnel::compiler {

class Classes {
 public:
  explicit Classes(std::size_t count) : parent_(count) {
    std::iota(parent_.begin(), parent_.end(), 0u);
  }
  uint32_t find(uint32_t i) {
    while (parent_[i] != i) i = parent_[i] = parent_[parent_[i]];
    return i;
  }
  void join(uint32_t a, uint32_t b) { parent_[find(a)] = find(b); }
  bool same(uint32_t a, uint32_t b) { return find(a) == find(b); }

 private:
  std::vector<uint32_t> parent_;
};

}  // namespace grapnel::compiler
