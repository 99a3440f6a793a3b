/// Plan: which calls of a trace become one kernel, in which order things run, and what is stored at all.
///
/// A plan is made once per key and holds for every trace of that key, so it may use nothing but what Note [Keys] says is equal: no
/// sizes, strides or values.
///
/// Note [Fusing]
/// A group is a set of elementwise calls (and reductions of their results) over one sequence of elements: values that have, by the shape
/// rules, the same number of elements in the same row-major order. Inside a group results stay in registers; what nobody else needs is
/// never stored. A call joins a group when everything it reads is either computed in that group for the same element or was in memory
/// before the group started, and what it overwrites is read in the group only for the same element. Groups and single calls
/// run in the order in which they were opened.
#pragma once

#include "grapnel/capture/trace.h"
#include "grapnel/codegen/block_program.h"

namespace grapnel::compile_detail {

struct Group {
  /// A block input: `value` broadcast to the shape of `shape`.
  struct Input {
    capture::ValueId value, shape;
  };
  struct Output {
    capture::ValueId value;  ///< what is written, with its type and geometry
    int32_t reg;
  };
  enum class Reduce : uint8_t { none, rows, columns };  ///< all dimensions at once are one row
  struct Reduction {
    uint32_t call;
    int32_t reg;
  };

  codegen::BlockProgram program;  ///< outputs: those of `outputs`, then the sources of `reductions`
  std::vector<Input> inputs;
  std::vector<capture::ValueId> numbers;  ///< one per scalar of the program
  std::vector<Output> outputs;
  Reduce reduce = Reduce::none;
  std::vector<Reduction> reductions;
  capture::ValueId space = 0;  ///< a value with all elements of the sequence
  std::vector<uint32_t> calls;  ///< all calls of the group, to run it without a kernel
};

struct Item {
  uint32_t call = capture::kNone;  ///< one call, or
  int32_t group = -1;              ///< a group
  std::vector<capture::SlotId> last_uses;
};

struct Plan {
  std::vector<Item> items;
  std::vector<Group> groups;
};

/// `skipped[i]`: call i need not run.
Plan make_plan(const capture::Trace& trace, const std::vector<bool>& skipped, bool fuse);

}  // namespace grapnel::compile_detail
