/// Op: everything the library knows about one operation, and the one call that every operation goes
/// through.
///
/// An operation is written as a struct (see defs/) that states its name, shape rule, meaning,
/// gradient and samples. `op_of<D>` turns that definition into an `Op`, its run-time face, and
/// `apply` interprets it: gives it to the Evaluator, and makes the backward node when an input wants
/// a gradient.
/// Start reading at `apply`; a definition to imitate is Sigmoid in defs/activation.h.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "grapnel/base/small_vector.h"
#include "grapnel/tensor/tensor.h"

namespace grapnel {

using Grads = SmallVector<Tensor, 3>;
using Outputs = SmallVector<Tensor, 2>;
/// Inputs of one call, borrowed. An undefined tensor stands for an absent optional input.
using Inputs = std::span<const Tensor* const>;

/// What a result looks like. Shape rules leave the device to `apply`.
struct TensorSpec {
  TensorSpec(const Shape& s, DType t, Device d = kCPU) : dtype(t), device(d) {
    sizes.assign(s.begin(), s.size());
  }
  Shape sizes;
  DType dtype;
  Device device;
};
using Specs = SmallVector<TensorSpec, 2>;

/// Pointwise and Reduction follow from a scalar formula and can be fused; View moves no data; Call
/// is everything else.
enum class Family : uint8_t { pointwise, reduction, view, call };

/// What an op keeps for its gradient. One mask per input: the values needed for the gradient of
/// that input.
using SaveMask = uint32_t;
inline constexpr int kFirstOutputBit = 16;
constexpr SaveMask input(int i) { return SaveMask{1} << i; }
constexpr SaveMask output(int i = 0) { return SaveMask{1} << (kFirstOutputBit + i); }

/// The values an op kept, as its gradient formula sees them. Reading one unpacks it, in the order
/// of reading.
class Saved {
 public:
  Tensor input(int i) const { return load(i); }
  Tensor output(int i = 0) const { return load(kFirstOutputBit + i); }
  /// Whether the gradient of input i is wanted at all.
  virtual bool needs(int i) const = 0;
  virtual int input_count() const = 0;
  /// Shape and type of an input that wants a gradient.
  virtual const Shape& input_shape(int i) const = 0;
  virtual DType input_dtype(int i) const = 0;
  virtual Device input_device(int i) const = 0;
  /// For factories: what a gradient of that input looks like.
  TensorOptions input_options(int i) const {
    return TensorOptions(input_dtype(i)).device(input_device(i));
  }
  template <class Attrs>
  const Attrs& attrs() const {
    return *static_cast<const Attrs*>(attrs_blob());
  }

 protected:
  ~Saved() = default;
  virtual Tensor load(int bit) const = 0;
  virtual const void* attrs_blob() const = 0;
};

/// Arguments on which the tests exercise an op. Tensors are f64 and hold values away from kinks.
struct Sample {
  std::vector<Tensor> inputs;
  std::shared_ptr<const void> attrs;
};
using Samples = std::vector<Sample>;

/// Sees the attributes of a call one by one, for printing and keys.
class AttrVisitor {
 public:
  virtual ~AttrVisitor() = default;
  /// Set while it sees an attribute that says how much or where, not what. Such a one is an argument
  /// of an executable, not part of it, and calls that differ in it only are compiled once.
  bool is_argument = false;
  virtual void on(std::string_view name, bool value) = 0;
  virtual void on(std::string_view name, int64_t value) = 0;
  virtual void on(std::string_view name, double value) = 0;
  virtual void on(std::string_view name, DType value) = 0;
  virtual void on(std::string_view name, const Shape& value) = 0;
};

/// Sets the attributes of a call one by one, for graphs that are read from text.
class AttrReader {
 public:
  virtual ~AttrReader() = default;
  virtual void on(std::string_view name, bool& value) = 0;
  virtual void on(std::string_view name, int64_t& value) = 0;
  virtual void on(std::string_view name, double& value) = 0;
  virtual void on(std::string_view name, DType& value) = 0;
  virtual void on(std::string_view name, Shape& value) = 0;
};

/// Pointwise type rules: what the inputs are converted to, and what comes out.
enum class TypeRule : uint8_t {
  promote,   ///< common type in, the same out
  floating,  ///< common type, integers become the default floating type
  compare,   ///< common type in, bool out
  test,      ///< as compare
  select,    ///< the first input is a mask; common type of the others
  fill,      ///< the mask comes second; the first input decides
  widen,     ///< reductions: integers and bools become i64
};

/// What applying an op to its own result does. Neither changes a bit that is not the payload of a
/// NaN.
enum class Twice : uint8_t {
  counts,   ///< as much as anything else
  nothing,  ///< the second time: f(f(x)) is f(x)
  undoes,   ///< f(f(x)) is x
};

/// How a call is `product(operand, ...) + addend`, for those who can do more with a tile of the
/// product while it is in the cache.
struct ProductForm {
  int operand = -1;  ///< the one that is needed row by row, so that it can be made piece by piece
  int addend = -1;   ///< the operand to be added, if there is one and it is given
  int trailing = 0;  ///< dimensions of size 1 that have to be put behind those of the addend
  explicit operator bool() const { return operand >= 0; }
};

struct Op {
  std::string_view name;
  Family family;
  bool differentiable;
  TypeRule type_rule;
  int number;             ///< place in AllOps, and in the tables of devices
  int index;              ///< into the kernel tables, for pointwise ops and reductions
  int arity;              ///< -1: any number of inputs
  const SaveMask* saves;  ///< one per input, or null
  size_t attrs_size;
  /// Shapes and types of the results. `apply` says where they are, unless the op does (`crosses`).
  void (*infer)(Inputs, const void* attrs, Specs& out);
  /// For a view op: makes its results, which only needs headers. Null for all others.
  void (*views)(const Tensor& base, const void* attrs, Outputs& out);
  Grads (*grad)(const Saved&, const Grads& grad_outputs);
  /// The op in terms of other ops: what it means, where it has a kernel for speed alone. Null where it
  /// says nothing simpler.
  Outputs (*lower)(Inputs, const void* attrs);
  void (*visit_attrs)(const void* attrs, AttrVisitor&);
  void (*read_attrs)(void* attrs, AttrReader&);
  Samples (*samples)();
  bool elementwise;  ///< element i of the result depends on element i of the (broadcast) inputs
                     ///< only: pointwise ops and plain copies
  bool random;       ///< draws numbers: never dropped
  bool opaque;       ///< calls a function of the program, which no text of a graph holds
  bool effect;  ///< acts on more than its outputs: never dropped, merged or moved across another
                ///< effect
  bool refuses_values;  ///< fails for some values of its operands: never dropped
  bool crosses;         ///< operands may lie on several devices, and it says where results do
  Twice twice;
  /// Null where a call never is a product.
  ProductForm (*product)(const void* attrs);

  SaveMask saves_for(int i) const { return saves ? saves[i] : 0; }
  ProductForm product_form(const void* attrs) const {
    return product ? product(attrs) : ProductForm();
  }
};

/// Runs `op` on `inputs` and, when one of them wants a gradient, makes its node.
Tensor apply(const Op& op, Inputs inputs, const void* attrs = nullptr);
Outputs apply_all(const Op& op, Inputs inputs, const void* attrs = nullptr);
/// The same with the result written into inputs[0].
Tensor& apply_inplace(const Op& op, Inputs inputs, const void* attrs = nullptr);

/// The type a pointwise op computes its inputs in, PyTorch's promotion: numbers and 0-dimensional
/// tensors yield to tensors with dimensions of the same or a higher kind.
DType result_type(Inputs inputs);

/// Where a call is computed: on the device of its operands, among which plain numbers count only if
/// there is nothing else. Fails for operands on different devices, unless the op is for them.
Device device_of(const Op& op, Inputs inputs);

/// A 0-dimensional tensor that stands for a plain number.
Tensor wrap_number(const Scalar& value);

}  // namespace grapnel
