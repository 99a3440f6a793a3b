/// Value, Args and Kwargs: what a module is called with and what it returns, as hooks see it.
///
/// Any C++ value fits. Tensors, lists, maps and tuples of them are looked into, so that module
/// hooks find every tensor; a struct of the user's is opened by a function beside it:
///
///   struct Batch { Tensor x, y; };
///   template <class F> void visit_tensors(Batch& b, F&& fn) { fn(b.x); fn(b.y); }
#pragma once

#include <any>
#include <array>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "grapnel/tensor/tensor.h"

namespace grapnel::nn {

class Value;
/// Positional arguments of a call.
using Args = std::vector<Value>;
/// Arguments by name. A forward that wants them takes a `const Kwargs&` last; callers pass one
/// last: `net(x, Kwargs{{"bias", b}})`.
using Kwargs = std::map<std::string, Value>;
using TensorVisitor = std::function<void(Tensor&)>;

namespace detail {
template <class T>
struct IsTuple : std::false_type {};
template <class... T>
struct IsTuple<std::tuple<T...>> : std::true_type {};
template <class A, class B>
struct IsTuple<std::pair<A, B>> : std::true_type {};
template <class T, size_t N>
struct IsTuple<std::array<T, N>> : std::true_type {};
template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};

// Out here, where only the user's own functions of this name are found.
template <class T>
concept Opens = requires(T& value, const TensorVisitor& fn) { visit_tensors(value, fn); };
template <Opens T>
void open_any(std::any& value, const TensorVisitor& fn) {
  visit_tensors(*std::any_cast<T>(&value), fn);
}

/// A value of the user's own type, and how to find the tensors in it.
struct Boxed {
  std::any value;
  void (*visit)(std::any& value, const TensorVisitor& fn) = nullptr;
};
}  // namespace detail

/// An argument or a result of a module: `value.to<Tensor>()` where it is a tensor.
class Value {
 public:
  using List = std::vector<Tensor>;
  using Map = std::map<std::string, Tensor>;

  /// Nothing.
  Value();
  Value(const Value& other);
  Value(Value&& other) noexcept;
  Value& operator=(const Value& other);
  Value& operator=(Value&& other) noexcept;
  ~Value();
  template <class T>
    requires(!std::is_same_v<std::remove_cvref_t<T>, Value>)
  Value(T&& value) : value_(wrap(std::forward<T>(value))) {}

  bool is_none() const;
  bool is_tensor() const;
  bool is_tuple() const;
  template <class T>
  bool is() const {
    if constexpr (requires { std::get_if<T>(&value_); }) return std::holds_alternative<T>(value_);
    else return boxed<T>() != nullptr;
  }
  /// The value as a T. Throws when it is something else.
  template <class T>
  T to() const;
  /// LibTorch's name for the commonest case.
  const Tensor& toTensor() const;
  const Args& tuple() const;
  Args& tuple() { return const_cast<Args&>(std::as_const(*this).tuple()); }
  /// Every tensor in the value: lists in order, maps by key, tuples element by element.
  void visit_tensors(const TensorVisitor& fn);
  /// "a tensor", "a list of 3 tensors", "an int": for messages.
  std::string describe() const;

 private:
  // bool, int64_t, double, std::string; Args is a tuple.
  using Variant = std::variant<std::monostate, Tensor, List, Map, Args, bool, int64_t, double,
                               std::string, detail::Boxed>;

  template <class T>
  static Variant wrap(T&& value);
  template <class T>
  const T* boxed() const {
    const auto* box = std::get_if<detail::Boxed>(&value_);
    return box ? std::any_cast<T>(&box->value) : nullptr;
  }
  template <class T>
  const T& get(const char* what) const {
    const T* found = std::get_if<T>(&value_);
    if (found == nullptr) [[unlikely]]
      fail("the value is ", describe(), ", expected ", what, ".");
    return *found;
  }
  Variant value_;
};

template <class T>
Value::Variant Value::wrap(T&& value) {
  using D = std::decay_t<T>;
  if constexpr (std::is_same_v<D, std::nullopt_t> || std::is_same_v<D, std::nullptr_t> ||
                std::is_same_v<D, std::monostate>) {
    return std::monostate();
  } else if constexpr (std::is_same_v<D, Value>) {
    return std::forward<T>(value).value_;
  } else if constexpr (detail::IsOptional<D>::value) {
    if (!value) return std::monostate();
    return wrap(*std::forward<T>(value));
  } else if constexpr (std::is_same_v<D, Tensor> || std::is_same_v<D, List> ||
                       std::is_same_v<D, Map> || std::is_same_v<D, Args> ||
                       std::is_same_v<D, bool> || std::is_same_v<D, std::string>) {
    return std::forward<T>(value);
  } else if constexpr (std::is_integral_v<D>) {
    return static_cast<int64_t>(value);
  } else if constexpr (std::is_floating_point_v<D>) {
    return static_cast<double>(value);
  } else if constexpr (std::is_convertible_v<T, std::string>) {
    return std::string(std::forward<T>(value));
  } else if constexpr (detail::IsTuple<D>::value) {
    return std::apply(
        [](auto&&... parts) { return Args{Value(std::forward<decltype(parts)>(parts))...}; },
        std::forward<T>(value));
  } else {
    static_assert(std::is_copy_constructible_v<D>,
                  "module hooks need arguments and results that can be copied");
    detail::Boxed box{std::any(std::forward<T>(value)), nullptr};
    if constexpr (detail::Opens<D>) box.visit = &detail::open_any<D>;
    return box;
  }
}

template <class T>
T Value::to() const {
  if constexpr (std::is_same_v<T, Value>) {
    return *this;
  } else if constexpr (detail::IsOptional<T>::value) {
    return is_none() ? T() : T(to<typename T::value_type>());
  } else if constexpr (std::is_same_v<T, Tensor>) {
    return toTensor();
  } else if constexpr (std::is_same_v<T, List>) {
    return get<List>("a list of tensors");
  } else if constexpr (std::is_same_v<T, Map>) {
    return get<Map>("a map of tensors");
  } else if constexpr (std::is_same_v<T, Args>) {
    return tuple();
  } else if constexpr (std::is_same_v<T, bool>) {
    return get<bool>("a bool");
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(get<int64_t>("an int"));
  } else if constexpr (std::is_floating_point_v<T>) {
    if (const auto* whole = std::get_if<int64_t>(&value_)) return static_cast<T>(*whole);
    return static_cast<T>(get<double>("a double"));
  } else if constexpr (std::is_same_v<T, std::string>) {
    return get<std::string>("a string");
  } else if constexpr (detail::IsTuple<T>::value) {
    constexpr size_t n = std::tuple_size_v<T>;
    const Args& parts = tuple();
    if (parts.size() != n) [[unlikely]]
      fail("the value is ", describe(), ", expected a tuple of ", n, ".");
    return [&]<size_t... i>(std::index_sequence<i...>) {
      return T{parts[i].template to<std::tuple_element_t<i, T>>()...};
    }(std::make_index_sequence<n>());
  } else {
    const T* found = boxed<T>();
    if (found == nullptr) [[unlikely]]
      fail("the value is ", describe(),
           ", expected a value of the type that forward takes or returns.");
    return *found;
  }
}

/// Where each gradient stands in the lists of a module's backward hooks.
///
/// Note [Places of gradients]
/// One place per positional argument, undefined unless the argument is a tensor that requires grad.
/// Tensors inside containers follow, argument by argument, and then those among the arguments by
/// name, in the order of the names. For results: one place per element of a tuple, list or map,
/// otherwise a single one; tensors inside elements of a tuple follow as above.
struct Places {
  /// A tensor, and the place that it is in.
  struct Found {
    size_t place;
    Tensor* tensor;
  };
  std::vector<Found> tensors;
  size_t count = 0;

  static Places of(Args& args, Kwargs& kwargs);
  static Places of(Value& result);
};

}  // namespace grapnel::nn
