/// User-defined operations: a struct with static forward and backward, applied like an op.
///
///   struct Cube : autograd::Function<Cube> {
///     static Tensor forward(autograd::AutogradContext* ctx, Tensor x) {
///       ctx->save_for_backward({x});
///       return x * x * x;
///     }
///     static variable_list backward(autograd::AutogradContext* ctx, variable_list grads) {
///       Tensor x = ctx->get_saved_variables()[0];
///       return {grads[0] * 3 * x * x};
///     }
///   };
///   Tensor y = Cube::apply(x);
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <ranges>
#include <string>
#include <tuple>
#include <typeinfo>
#include <unordered_set>
#include <variant>

#include "grapnel/autograd/node.h"
#include "grapnel/autograd/saved_variable.h"

namespace grapnel {

/// A value a function keeps for its backward, with LibTorch's accessors.
class IValue {
 public:
  IValue();
  IValue(bool v);
  IValue(int v);
  IValue(int64_t v);
  IValue(double v);
  IValue(std::string v);
  IValue(const char* v);
  IValue(Tensor v);
  IValue(std::vector<int64_t> v);
  IValue(std::vector<double> v);
  IValue(const IValue& other);
  IValue(IValue&& other) noexcept;
  IValue& operator=(const IValue& other);
  IValue& operator=(IValue&& other) noexcept;
  ~IValue();

  bool isNone() const;
  bool toBool() const;
  int64_t toInt() const;
  double toDouble() const;
  const std::string& toStringRef() const;
  const Tensor& toTensor() const;
  const std::vector<int64_t>& toIntVector() const;
  const std::vector<double>& toDoubleVector() const;

 private:
  template <class T>
  const T& get(const char* what) const;
  std::variant<std::monostate, bool, int64_t, double, std::string, Tensor, std::vector<int64_t>,
               std::vector<double>>
      value_;
};

namespace autograd {

class FunctionNode;

/// What forward leaves for backward.
class AutogradContext {
 public:
  /// Anything but tensors of the graph; those go through save_for_backward.
  std::map<std::string, IValue> saved_data;

  /// Keeps tensors, inputs or outputs of forward included, without making cycles.
  void save_for_backward(variable_list tensors) { to_save_ = std::move(tensors); }
  variable_list get_saved_variables() const;
  /// Declares inputs that forward changed in place, and counts the change: a tensor that was saved
  /// before is stale.
  void mark_dirty(const variable_list& inputs);
  /// Declares outputs that have no gradient.
  void mark_non_differentiable(const variable_list& outputs);
  /// Whether backward gets zeros for outputs nobody used (the default) or undefined tensors.
  void set_materialize_grads(bool on) { materialize_grads_ = on; }
  /// Whether the gradient of input `i` of forward, counting tensors only, is wanted.
  bool needs_input_grad(size_t i) const;

 private:
  friend class FunctionNode;
  variable_list to_save_;
  std::unordered_set<const TensorImpl*> dirty_, non_differentiable_;
  bool materialize_grads_ = true;
  FunctionNode* node_ = nullptr;
};

/// The node of a user-defined operation.
class FunctionNode final : public Node {
 public:
  using Backward = std::function<variable_list(AutogradContext*, variable_list)>;
  /// Is called like the type.
  FunctionNode(const std::type_info& type, Backward backward)
      : type_(&type), backward_(std::move(backward)) {
    context.node_ = this;
  }
  FunctionNode(std::string name, Backward backward)
      : name_(std::move(name)), backward_(std::move(backward)) {
    context.node_ = this;
  }

  std::string name() const override;
  Grads apply(Grads grads) override;
  void release_saved() override;
  bool is_user_code() const override { return true; }

  /// Takes the edges of the tensor arguments; true when a gradient is wanted. `is_tensor` has an
  /// entry for every argument of forward, and one for every tensor of a list.
  bool connect(const variable_list& inputs, std::vector<bool> is_tensor);
  /// Attaches the outputs to this node and saves what forward asked for.
  void finish(const variable_list& inputs, variable_list& outputs, bool recorded);
  variable_list saved() const;
  std::vector<SavedVariable>& saved_slots() { return saved_; }

  AutogradContext context;
  std::shared_ptr<void> owned;  ///< what whoever made the node keeps with it

 private:
  friend class AutogradContext;
  /// Those of what backward returned that belong to tensors.
  Grads tensor_gradients(variable_list result) const;

  const std::type_info* type_ = nullptr;
  std::string name_;  ///< if there is no type
  Backward backward_;
  std::vector<bool> is_tensor_;
  std::vector<SavedVariable> saved_;
  std::vector<TensorSpec> output_specs_;
};

/// Turns recording off for forward; `apply` restores it.
struct ForwardScope {
  ForwardScope();
  ~ForwardScope();
  bool before;
};

/// Applies a function that is no type but two closures: `forward(ctx, inputs)` and
/// `backward(ctx, grads)`, which returns one gradient for each input.
variable_list apply_function(
    std::string name,
    const std::function<variable_list(AutogradContext*, const variable_list&)>& forward,
    FunctionNode::Backward backward, const variable_list& inputs);

/// std::vector, TensorList, std::array and other lists.
template <class A>
concept ListOfTensors =
    std::ranges::forward_range<A&> && std::same_as<std::ranges::range_value_t<A&>, Tensor>;

/// Base of functions with a backward pass of their own: derive, write static `forward` and
/// `backward`, call `apply`. `T::backward` returns one gradient for every argument of forward, in order: undefined tensors
/// for what is no tensor, and one gradient for every tensor of a list. What follows the last tensor
/// may be left out.
template <class T>
class Function {
 public:
  template <class X = T, class... Args>
  [[gnu::noinline]] static auto apply(Args&&... args)
      -> decltype(X::forward(nullptr, std::forward<Args>(args)...)) {
    variable_list inputs;
    std::vector<bool> is_tensor;
    (collect(inputs, is_tensor, args), ...);
    auto node = IntrusivePtr<FunctionNode>::adopt(new FunctionNode(typeid(T), &T::backward));
    if (!node->site()) node->set_site(__builtin_return_address(0));
    const bool recorded = node->connect(inputs, std::move(is_tensor));
    auto result = [&] {
      ForwardScope scope;
      return X::forward(&node->context, std::forward<Args>(args)...);
    }();
    variable_list outputs = to_list(result);
    node->finish(inputs, outputs, recorded);
    return from_list(std::move(outputs), result);
  }

 private:
  template <class A>
  static void collect(variable_list& inputs, std::vector<bool>& is_tensor, A& arg) {
    if constexpr (std::is_convertible_v<A&, const Tensor&>) {
      inputs.push_back(arg);
      is_tensor.push_back(true);
    } else if constexpr (std::is_same_v<std::remove_const_t<A>, std::optional<Tensor>>) {
      inputs.push_back(arg.value_or(Tensor()));
      is_tensor.push_back(true);
    } else if constexpr (ListOfTensors<A>) {
      for (const Tensor& t : arg) collect(inputs, is_tensor, t);
    } else {
      is_tensor.push_back(false);
    }
  }
  static variable_list to_list(const Tensor& t) { return {t}; }
  static variable_list to_list(const variable_list& list) { return list; }
  static Tensor from_list(variable_list list, const Tensor&) { return std::move(list[0]); }
  static variable_list from_list(variable_list list, const variable_list&) { return list; }
};

}  // namespace autograd
}  // namespace grapnel
