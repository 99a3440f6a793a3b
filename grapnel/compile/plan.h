/// Plan: which calls of a trace become one kernel, in which order things run, and what is stored at
/// all.
///
/// A plan is made once per key and holds for every trace of that key, so it may use nothing but
/// what Note [Keys] says is equal: no sizes, strides or values.
///
/// Note [Fusing]
/// A group is a set of elementwise calls (and reductions of their results) over one sequence of
/// elements: values that have, by the shape rules, the same number of elements in the same
/// row-major order. Inside a group results stay in registers; what nobody else needs is never
/// stored. A call joins a group when everything it reads is either computed in that group for the
/// same element or was in memory before the group started, and what it overwrites is read in the
/// group only for the same element. Groups and single calls run in the order in which they were
/// opened.
///
/// Note [Waiting calls]
/// A call joins the last group that fits, however early that ran, and what is then read much later
/// has to be stored and lives all the while: 1 - y*y, part of the gradient of y = tanh(x), would
/// join the group of the forward pass that made y. If all it reads is one full tensor that is in
/// memory anyway, and one other elementwise call reads its result, it waits for that call instead
/// and goes where that goes. It then reads the tensor where the other would have read the result, so
/// a pass over memory is saved, and the tensor takes the place of the result while both would have
/// lived.
///
/// Note [Sweeps]
/// Neighbouring groups over one sequence run together, span by span: each of them computes some
/// thousand elements, then the next one the same elements, so that what they hand to each other
/// stays in the cache, and is stored nowhere else if nobody else reads it. Where a group reads
/// results of a reduction of the same sweep (softmax, layer norm and their gradients), spans are
/// whole rows. What cannot be known without sizes, that rows are not too long and that a result is
/// broadcast along its own row, is looked at when the sweep runs; if it does not hold, the groups
/// run one after the other.
///
/// Note [Epilogues]
/// A group may begin with a product or convolution. These are computed in tiles, cut by a rule that
/// knows nothing but sizes, and the rest of the group runs on every tile right after it is
/// finished, on the thread that has it in its cache. Eager mode computes the same tiles by the same
/// calls, so fusing cannot change a bit. A product that nobody else reads has no memory: its tiles
/// are computed where one of the group's results will lie, and are replaced by it. Only if no
/// result has its type, or the group still reads what lay there, the product gets memory of its
/// own. Where a reduction joins the group, or a write to memory from outside (a product can fail
/// for want of memory and must not leave that half written), the product is a call of its own
/// again.
///
/// Note [Prologues]
/// A group that only prepares an operand of the product behind it (the left matrix, the images)
/// runs together with it: rows are computed in memory of the thread right before the tiles that
/// need them, so the operand is never stored as a whole. Products read it as they would read the
/// whole, with the same distance between rows. If sizes say that rows would be needed by several
/// threads, or that keeping what the group reads costs more memory than the operand, the two run
/// one after the other.
///
/// Note [What is seen]
/// A graph may fail at any item, and what outlives it is then as eager mode leaves it: see Note
/// [Failing graphs] in capture/run_log.h. So an in-place call on memory that somebody holds joins
/// no group but the last one, is stored even if something later overwrites it, and keeps its place
/// among all other items when sweeps are looked for.
///
/// Note [Looks]
/// A look is a reduction of everything whose result nobody in the trace waits for: what a guard
/// against NaN or a logger leaves behind, with the elementwise calls that lead to it and the
/// arithmetic with single numbers that follows. If an elementwise call passes over the same memory
/// later, as an optimiser does with gradients and parameters, the look waits for that call, its
/// host, and shares its pass instead of making one of its own. It leaves earlier if somebody else is
/// about to overwrite the memory, or if code runs that we do not see.
///
/// Note [Inheriting memory]
/// A result of a group may lie where an operand lay that nobody reads afterwards, if both have the
/// same elements in the same places: a kernel reads all operands of an element before it writes
/// one. That saves memory, and the caches from one more tensor that passes through them.
#pragma once

#include "grapnel/capture/trace.h"
#include "grapnel/codegen/block_program.h"

namespace grapnel::compiler {

struct Group {
  /// A block input: `value` broadcast to the shape of `shape`.
  struct Input {
    capture::ValueId value, shape;
    int32_t trailing = 0;  ///< dimensions of size 1 behind those of the value
  };
  struct Output {
    capture::ValueId value;  ///< what is written, with its type and geometry
    int32_t reg;
  };
  /// What the group begins with, if it does: see Note [Epilogues]. Input 0 of the program is the
  /// product.
  struct Product {
    uint32_t call = capture::kNone;
    capture::SlotId memory =
        capture::kNone;   ///< where its tiles are computed: the slot of a result, or its own
    bool stored = false;  ///< it stays there, since somebody needs it as it is
    explicit operator bool() const { return call != capture::kNone; }
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
  Product product;
  Reduce reduce = Reduce::none;
  std::vector<Reduction> reductions;
  capture::ValueId space = 0;   ///< a value with all elements of the sequence
  std::vector<uint32_t> calls;  ///< all calls of the group, to run it without a kernel
};

/// See Note [Sweeps]. The parts are the items `first`, `first + 1`, ...
struct Sweep {
  struct Part {
    bool per_row;  ///< works on the results of reductions, one element per row
  };
  /// A slot that exists inside one span only.
  struct Local {
    capture::SlotId slot;
    bool per_row;
  };
  uint32_t first = 0;
  std::vector<Part> parts;
  std::vector<Local> locals;
  capture::ValueId space = 0;            ///< a value with all elements
  uint32_t reduction = capture::kNone;   ///< a call that says how long rows are, if there is one
  bool whole_rows = false;               ///< some part reads a result of a reduction
  std::vector<Group::Input> along_rows;  ///< where it does so for every element of the row
};

struct Item {
  uint32_t call = capture::kNone;  ///< one call, or
  int32_t group = -1;              ///< a group
  int32_t sweep = -1;              ///< this is the first item of a sweep
  /// Every call before this one has run when the item is next, if it was to run at all, and nothing
  /// that somebody could see of those behind: see Note [Failing graphs] in capture/run_log.h.
  uint32_t at = 0;
  bool prologue = false;  ///< a group that may run with the item behind it: see Note [Prologues]
  std::vector<capture::SlotId> last_uses;
};

struct Plan {
  /// See Note [Inheriting memory].
  struct Heir {
    capture::SlotId of, slot;
  };
  std::vector<Item> items;
  std::vector<Group> groups;
  std::vector<Sweep> sweeps;
  std::vector<Heir> heirs;  ///< in the order of items
};

struct PlanOptions {
  bool fuse = true;
  bool sweeps = true;
  bool epilogues = true;
  bool prologues = true;
  bool looks = true;
};

/// `skipped[i]`: call i need not run.
Plan make_plan(const capture::Trace& trace, const std::vector<bool>& skipped, PlanOptions options);

/// Throws InternalError unless every call that is needed is in the plan once, behind everything it
/// has to follow.
void verify(const capture::Trace& trace, const std::vector<bool>& skipped, const Plan& plan);

/// Whether two values over one slot have the same element at the same place of a sequence.
bool same_place(const capture::Trace& trace, capture::ValueId a, capture::ValueId b);

}  // namespace grapnel::compiler
