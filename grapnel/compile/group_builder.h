/// GroupBuilder: a group in the making. Calls go in, a block program and what feeds it come out.
#pragma once

#include "grapnel/compile/classes.h"
#include "grapnel/compile/plan.h"

namespace grapnel::compiler {

/// Operands that an elementwise call reads start here; a copy does not look at what it overwrites.
size_t first_operand(const capture::Instruction& call);

class GroupBuilder {
 public:
  struct Read {
    capture::SlotId slot;
    capture::ValueId value;
    bool anywhere = false;  ///< by the product: all of it, for any element
  };
  struct Write {
    capture::SlotId slot;
    capture::ValueId value;
    int32_t reg;
    Compute rep;  ///< the type of the register
    bool needed;  ///< somebody outside the group reads it from memory
  };

  /// `place`: of the group among the items of the plan; `space`: a value with all elements of its
  /// sequence.
  GroupBuilder(const capture::Trace& trace, Classes& shapes, int32_t place, capture::ValueId space)
      : item(place), t_(trace), shapes_(shapes) {
    group_.space = space;
  }

  const Group& group() const { return group_; }
  bool is_full() const;
  /// Whether the value is read from memory already.
  bool knows(capture::ValueId value) const;
  const std::vector<Read>& reads() const { return reads_; }
  const std::vector<Write>& writes() const { return writes_; }
  /// What the group computes for the slot, or null.
  const Write* written(capture::SlotId slot) const;
  /// What the group leaves in the slot has to be in memory.
  void need(capture::SlotId slot);

  /// The first call of the group.
  void add_product(uint32_t call, const ProductForm& form);
  /// The group without its product.
  void forget_product();
  void add_elementwise(uint32_t call);
  void add_reduction(uint32_t call, Group::Reduce kind);
  /// The group; the builder is done.
  Group finish();

  const int32_t item;

 private:
  struct KnownInput {
    capture::ValueId value;
    uint32_t shape;
    Compute compute;
    int32_t trailing;
  };
  struct Converted {
    int32_t from;
    DType via;
    Compute to;
    int32_t reg;
  };
  const capture::Value& value(capture::ValueId id) const { return t_.values[id]; }
  int32_t convert(int32_t reg, Compute from, DType via, Compute to);
  int32_t operand(capture::ValueId id, capture::ValueId shape, Compute compute,
                  int32_t trailing = 0);
  int32_t block_input(capture::ValueId id, capture::ValueId shape, Compute compute,
                      int32_t trailing);
  int32_t add_step(const codegen::BlockProgram::Step& step);
  capture::SlotId memory_of_product() const;
  Compute compute_of(const capture::Instruction& call) const;

  const capture::Trace& t_;
  Classes& shapes_;
  Group group_;
  std::vector<KnownInput> known_;
  std::vector<Converted> converted_;
  std::vector<Read> reads_;
  std::vector<Write> writes_;
};

}  // namespace grapnel::compiler
