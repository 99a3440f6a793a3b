/// Graph: a captured computation as a value: printable, readable back, checkable, runnable.
///
///     graph(a: f32[8,64], b: f32[64]) {
///       c = add(a, b) : f32[8,64]
///       d = sigmoid(c) : f32[8,64]
///       return d
///     }
///
/// Every name is assigned once and stands for a tensor. What may be done to a graph: instructions
/// whose results nobody uses may be dropped, equal ones merged and independent ones reordered. What
/// may not: an instruction that writes one of its operands (its name ends in an underscore), draws
/// random numbers or invokes a function stays, and keeps its order with everything that touches the
/// same memory; views share memory with what they are views of.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "grapnel/capture/trace.h"

namespace grapnel {

/// A recorded computation: it can be printed, read back and run.
class Graph {
 public:
  using Id = uint32_t;
  /// One result: its type, and its size where that is known.
  struct Value {
    DType dtype = DType::Float32;
    Shape sizes;
    std::optional<Scalar> number;  ///< a plain number, written where it is used
    Tensor constant;               ///< a tensor from outside that the graph refers to
    bool missing = false;          ///< a constant whose values are not known: texts hold none
    bool fresh = false;            ///< memory that an instruction fills by writing to it
  };
  /// One call of an op.
  struct Instruction {
    const Op* op = nullptr;
    std::vector<std::max_align_t> attrs;
    std::vector<Id> inputs, outputs;  ///< kNone: absent
    bool inplace = false;
    const void* site = nullptr;
    /// "tensor hook 'clip' registered at train.cpp:12" if it was recorded inside one.
    std::string hook;
  };

  /// The text above. Lines recorded inside a hook end in its name; with `sources`, every line ends
  /// in where it was recorded. Constants (tensors from outside) are named, their values are not in
  /// the text.
  std::string str(bool sources = false) const;
  /// The graph that `str` printed, or that anybody wrote: text from elsewhere leads to a graph or
  /// to an Error with the line. Constants have no values until set_constant gives them some.
  static Graph parse(std::string_view text);
  /// Gives the constant that is called `name` in str() its values: a tensor of its type and shape.
  void set_constant(std::string_view name, Tensor value);
  /// A picture in the DOT language, with a frame around what each hook does; `dot -Tsvg` draws it.
  std::string dot() const;
  /// Throws InternalError unless every name is assigned once and before its use, ops have as many
  /// inputs as they want, and results of pointwise ops and reductions have the shapes and types
  /// that follow from their inputs. Those of views, calls, random and in-place ops are believed.
  void verify() const;
  /// Computes the outputs for other inputs of the same types. Their sizes may differ from those
  /// that were traced where every op allows it: one that was recorded with a size or a position (a view,
  /// a slice) keeps it, and says so if it does not fit. Results of another type or rank than the
  /// graph names are an Error. Ops run one by one and are differentiable like any others.
  std::vector<Tensor> run(const std::vector<Tensor>& inputs) const;

  const std::vector<Value>& values() const { return values_; }
  const std::vector<Instruction>& instructions() const { return instructions_; }
  const std::vector<Id>& inputs() const { return inputs_; }
  const std::vector<Id>& outputs() const { return outputs_; }
  /// How often an op occurs.
  int64_t count(std::string_view op) const;
  std::string name_of(Id id) const;

  /// The graph of a closed trace whose arguments and results are the given values.
  static Graph from_trace(const capture::Trace& trace, const std::vector<capture::ValueId>& inputs,
                          const std::vector<capture::ValueId>& outputs);

 private:
  friend class GraphParser;
  std::vector<Value> values_;
  std::vector<Instruction> instructions_;
  std::vector<Id> inputs_, outputs_;
  std::vector<std::shared_ptr<const void>> kept_;
};
std::ostream& operator<<(std::ostream& out, const Graph& graph);

/// Finds the op that is called `name` in graphs that text can hold; null when there is none.
const Op* find_op(std::string_view name);

}  // namespace grapnel
