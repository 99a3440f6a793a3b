/// Call: what a rank asks the others for, without its memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "grapnel/tensor/dtype.h"

namespace grapnel::dist {

enum class ReduceOp : uint8_t { sum, product, min, max };
enum class CallKind : uint8_t {
  all_reduce,
  broadcast,
  all_gather,
  reduce_scatter,
  all_to_all,
  barrier,
  split,
  send,
  recv
};
std::string_view name(ReduceOp op);
std::string_view name(CallKind kind);

/// What a rank asks for. Ranks that take part in one collective have equal calls.
struct Call {
  CallKind kind = CallKind::barrier;
  ReduceOp op = ReduceOp::sum;
  DType dtype = DType::Float32;
  int64_t count =
      0;         ///< elements: of the tensor, or of the part that goes to or comes from one rank
  int peer = 0;  ///< root of a broadcast, other end of send and recv
  int tag = 0;   ///< of send and recv
  friend bool operator==(const Call&, const Call&) = default;
  bool is_point_to_point() const { return kind == CallKind::send || kind == CallKind::recv; }
  /// "all_reduce(sum, f32, 100 elements)"
  std::string str() const;
};

}  // namespace grapnel::dist
