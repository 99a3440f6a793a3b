/// Graph: a captured computation as a value: printable, readable back, checkable, runnable.
///
///     graph(a: f32[8,64], b: f32[64]) {
///       c = add(a, b) : f32[8,64]
///       d = sigmoid(c) : f32[8,64]
///       return d
///     }
///
/// Every name is assigned once and stands for a tensor; names follow the order of the text, in which
/// constants and memory to be filled stand before all instructions. What may be done to a graph: instructions
/// whose results nobody uses may be dropped, equal ones merged and independent ones reordered. What
/// may not: an instruction that writes one of its operands (its name ends in an underscore), draws
/// random numbers or invokes a function stays, and keeps its order with everything that touches the
/// same memory; views share memory with what they are views of.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "grapnel/capture/calls.h"

namespace grapnel {

namespace capture {
struct Trace;
}

/// In what two computations differ: nothing if the text is empty.
struct Difference {
  std::string what;            ///< "call 3, mul: operand 1 is 3.0, was 2.0"
  const void* site = nullptr;  ///< where that call was recorded
  explicit operator bool() const { return !what.empty(); }
  /// The text with the place.
  std::string str() const;
};

/// A recorded computation: it can be printed, read back, compared and run.
class Graph {
 public:
  using Id = capture::ValueId;
  using Instruction = capture::Instruction;
  /// One result: its type, and its size where that is known.
  struct Value {
    DType dtype = DType::Float32;
    Device device = {};
    Shape sizes = {};
    std::optional<Scalar> number = {};  ///< a plain number, written where it is used
    Tensor constant = {};               ///< a tensor from outside that the graph refers to
    bool missing = false;               ///< a constant whose values are not known: texts hold none
    bool fresh = false;                 ///< memory that an instruction fills by writing to it
    bool lifted = false;                ///< an input that is a plain number
    TensorOptions options() const { return TensorOptions(dtype).device(device); }
    bool is_constant() const { return constant.defined() || missing; }
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
  /// In a recording they are recorded, at the places where they were recorded before.
  std::vector<Tensor> run(const std::vector<Tensor>& inputs) const;
  /// What this graph does otherwise than `before`, whatever its values are called.
  Difference difference(const Graph& before) const;

  const std::vector<Value>& values() const { return values_; }
  const capture::Calls& calls() const { return calls_; }
  std::span<const Instruction> instructions() const {
    return {calls_.calls.data(), calls_.calls.size()};
  }
  /// kNone: an undefined tensor.
  const std::vector<Id>& inputs() const { return inputs_; }
  const std::vector<Id>& outputs() const { return outputs_; }
  /// How often an op occurs.
  int64_t count(std::string_view op) const;
  std::string name_of(Id id) const;

 private:
  friend class GraphParser;
  friend class GraphReader;
  /// Numbers the values in the order in which `str` assigns them.
  void order_values();

  std::vector<Value> values_;
  capture::Calls calls_;
  std::vector<Id> inputs_, outputs_;  ///< kNone: undefined
};
std::ostream& operator<<(std::ostream& out, const Graph& graph);

/// Finds the op that is called `name` in graphs that text can hold; null when there is none.
const Op* find_op(std::string_view name);

}  // namespace grapnel
