/// Calls: recorded calls of ops, in program order, on values that have numbers.
///
/// All forms of a recorded computation are made of them. A Graph (capture/graph.h) says what the
/// values are, a Trace (capture/trace.h) where they lie.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "grapnel/base/raw_vector.h"
#include "grapnel/ops/op.h"

namespace grapnel::capture {

using ValueId = uint32_t;
inline constexpr uint32_t kNone = 0xffffffff;

struct Instruction {
  const Op* op = nullptr;
  const void* site = nullptr;
  const char* called = nullptr;  ///< the op function the user called there
  uint32_t operands = 0;         ///< first operand in Calls::ids; the results follow them
  uint32_t attrs = 0;            ///< in Calls::attrs
  uint32_t key_end = 0;          ///< behind its words in Trace::key
  uint32_t hook = kNone;         ///< in Calls::hooks: the hook that was running
  uint32_t place = kNone;        ///< in Trace::places: the module or hook that it happened in
  uint32_t inputs = 0;
  uint32_t outputs = 0;
  bool inplace = false;  ///< the one output is the first input, written again
};

struct Calls {
  base::RawVector<Instruction> calls;
  base::RawVector<ValueId> ids;  ///< kNone: absent
  base::RawVector<std::max_align_t> attrs;
  std::vector<std::shared_ptr<const void>> kept;  ///< what opaque calls need
  /// What Instruction::hook refers to, "tensor hook 'clip' registered at train.cpp:12"; names are
  /// kept only for those who ask.
  std::vector<std::string> hooks;

  std::span<const ValueId> inputs_of(const Instruction& c) const {
    return {ids.data() + c.operands, c.inputs};
  }
  std::span<const ValueId> outputs_of(const Instruction& c) const {
    return {ids.data() + c.operands + c.inputs, c.outputs};
  }
  const void* attrs_of(const Instruction& c) const { return attrs.data() + c.attrs; }
  std::string_view hook_of(const Instruction& c) const {
    return c.hook == kNone ? std::string_view() : hooks[c.hook];
  }

  /// Keeps a copy of the attributes of `op` and returns where.
  [[gnu::always_inline]] uint32_t add_attrs(const Op& op, const void* from) {
    if (op.attrs_size == 0) return 0;
    const auto at = static_cast<uint32_t>(attrs.size());
    std::memcpy(attrs.extend(attr_blocks(op)), from, op.attrs_size);
    return at;
  }
  /// Appends a call, whose attributes are kept already.
  void append(Instruction call, std::span<const ValueId> in, std::span<const ValueId> out) {
    call.operands = static_cast<uint32_t>(ids.size());
    call.inputs = static_cast<uint32_t>(in.size());
    call.outputs = static_cast<uint32_t>(out.size());
    std::copy(out.begin(), out.end(),
              std::copy(in.begin(), in.end(), ids.extend(in.size() + out.size())));
    calls.push_back(call);
  }
  /// So much memory do the attributes of `op` take.
  static size_t attr_blocks(const Op& op) {
    return (op.attrs_size + sizeof(std::max_align_t) - 1) / sizeof(std::max_align_t);
  }
};

}  // namespace grapnel::capture
