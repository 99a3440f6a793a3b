/// How a hook declares itself: what its result depends on, so that recordings need not call it
/// every time.
///
///   struct Scale : FunctionPreHook {
///     Lifted factor = 1.0;                                      // read anew in every pass
///     void compiled_args(CompiledNodeArgs& args) const override {
///       args.declare("scale");                                  // constants would follow the name
///       args.lift(factor);
///     }
///     variable_list operator()(const variable_list& grads) override {
///       return {grads[0] * factor};
///     }
///   };
///
/// Note [Declared hooks]
/// A hook that declares itself is called once for every combination of its type, name, constants
/// and the looks of its arguments (types, sizes, strides, which of them share memory). What it
/// recorded then is kept as a list of calls over its arguments, its lifted values and plain
/// numbers, and recorded again in later passes, in the hook's place and with the same operands, so
/// that the trace, and with it the key of the graph, is that of a pass that called it. What cannot
/// be kept like this is called every time: a hook that reads values, draws random numbers, makes
/// opaque calls, or runs while a graph of gradients is being built. Outside recordings every hook
/// is simply called.
#pragma once

#include <algorithm>
#include <bit>
#include <concepts>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeindex>
#include <unordered_map>
#include <vector>

#include "grapnel/tensor/tensor.h"

namespace grapnel {

/// Bytes that tell sequences of values apart: no two different sequences give the same bytes.
class KeyWriter {
 public:
  /// A number below 253 takes one byte; 253, 254 and 255 announce 2, 4 and 8 bytes.
  void count(uint64_t n);
  void text(std::string_view s) {
    count(s.size());
    bytes_ += s;
  }
  template <class T>
  void value(const T& v);
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

/// A number that a declared hook reads anew in every pass. In ops it is a plain number: `grad *
/// factor`.
class Lifted {
 public:
  Lifted(double value = 0) : value_(value) {}
  Lifted(const Lifted& other) = default;
  Lifted& operator=(double value) {
    value_ = value;
    return *this;
  }
  Lifted& operator=(const Lifted& other) = default;
  /// Refused inside a declared hook, whose C++ code does not run in every pass: compute with the
  /// tensor instead.
  double value() const;
  operator Tensor() const;

 private:
  friend class CompiledNodeArgs;
  double value_;
};

/// What a hook says about itself before it is called in a recording.
class CompiledNodeArgs {
 public:
  /// The result depends on nothing but this name, the constants, the hook's arguments and what is
  /// lifted.
  template <class... Constants>
  void declare(std::string_view name, const Constants&... constants) {
    declared_ = true;
    key_.text(name);
    (key_.value(constants), ...);
  }
  /// A value that may be another one in every pass.
  void lift(const Lifted& number) { numbers_.push_back(&number); }
  void lift(const Tensor& tensor) { tensors_.push_back(tensor); }
  void lift(const std::vector<Tensor>& tensors) {
    key_.count(tensors.size());
    tensors_.insert(tensors_.end(), tensors.begin(), tensors.end());
  }
  /// LibTorch's name: tensors and lifted numbers are lifted, everything else is a constant.
  template <class T>
  void collect(const T& value) {
    if constexpr (requires { lift(value); } && !std::is_arithmetic_v<T>) lift(value);
    else key_.value(value);
  }

  bool declared() const { return declared_; }
  const std::string& key() const { return key_.bytes(); }
  const std::vector<Tensor>& tensors() const { return tensors_; }
  size_t number_count() const { return numbers_.size(); }
  double number(size_t i) const { return numbers_[i]->value_; }
  /// The place of a number among the lifted ones, or -1.
  int64_t place_of(const Lifted& number) const {
    const auto at = std::find(numbers_.begin(), numbers_.end(), &number);
    return at == numbers_.end() ? -1 : at - numbers_.begin();
  }

 private:
  bool declared_ = false;
  KeyWriter key_;
  std::vector<Tensor> tensors_;
  std::vector<const Lifted*> numbers_;
};

/// Owns the storage of a lifted number in a recording: the recorder takes the bits from here, and
/// nobody else can read them.
class LiftedNumber final : public PendingOwner {
 public:
  /// A plain number in ops, of which recordings know that it is lifted.
  static Tensor wrap(double value, size_t place);
  /// The owner of such a tensor's storage; null for other tensors.
  static LiftedNumber* of(const Tensor& t);
  void materialize(Storage&) override;
  void released(Storage&) noexcept override { delete this; }
  double value() const { return value_; }
  size_t place() const { return place_; }

 private:
  LiftedNumber(double value, size_t place) : value_(value), place_(place) {}
  double value_;
  size_t place_;
};

/// While it lives, this thread is inside a hook that declared `args`; null: inside one that did
/// not.
class DeclaredScope {
 public:
  explicit DeclaredScope(const CompiledNodeArgs* args);
  ~DeclaredScope();
  DeclaredScope(const DeclaredScope&) = delete;
  DeclaredScope& operator=(const DeclaredScope&) = delete;

 private:
  const CompiledNodeArgs* const outer_;
};

/// Swaps values for the time of one call: a hook's or node's `apply_with_saved` may put others in
/// the place of its members. All are put back when the call ends, also by an exception; one that is
/// swapped twice gets its first value back.
class SwapSavedVariables {
 public:
  SwapSavedVariables() = default;
  ~SwapSavedVariables() {
    for (auto undo = undo_.rbegin(); undo != undo_.rend(); ++undo) (*undo)();
  }
  SwapSavedVariables(const SwapSavedVariables&) = delete;
  SwapSavedVariables& operator=(const SwapSavedVariables&) = delete;
  template <class T>
  void swap(T& member, std::type_identity_t<T> instead) {
    undo_.push_back([&member, original = member] { member = original; });
    member = std::move(instead);
  }

 private:
  std::vector<std::function<void()>> undo_;
};

namespace record {

/// The hook that runs on this thread, "tensor hook 'clip' registered at train.cpp:12", or an empty
/// string. Defined in autograd/.
std::string running_hook();

/// A declared hook at the moment it is due.
struct DeclaredHook {
  const CompiledNodeArgs& args;
  std::type_index type;
  int kind;                                  ///< what it is called with
  std::function<std::string()> description;  ///< for messages
};
/// Results of the hook for `arguments` in the open recording, by calling `body` or by recording
/// again what it recorded before. Defined in capture/. See Note [Declared hooks].
variable_list call_declared(const DeclaredHook& hook, const variable_list& arguments,
                            const std::function<variable_list()>& body);

}  // namespace record

/// Audit: every `every`-th time a declared hook would not have been called it is called all the
/// same, and an Error names it if it records anything else than it did the first time. 0: never.
/// The default comes from GRAPNEL_AUDIT_HOOKS.
void set_hook_audit(int64_t every);
/// Whether declared hooks are recorded again now and then to check what they declare.
int64_t hook_audit();

// --- the rest is templates ---

namespace key_detail {
template <class T>
concept Map = requires(const T& m) {
  typename T::mapped_type;
  m.begin()->first;
};
template <class T>
concept List = requires(const T& l) {
  l.begin();
  l.size();
} && !std::convertible_to<T, std::string_view> && !Map<T>;
template <class T>
concept Optional = requires(const T& o) {
  o.has_value();
  *o;
};
template <class>
inline constexpr bool refused = false;
}  // namespace key_detail

template <class T>
void KeyWriter::value(const T& v) {
  if constexpr (std::is_same_v<T, bool>) {
    bytes_ += v ? "t" : "f";
  } else if constexpr (std::is_enum_v<T>) {
    value(static_cast<std::underlying_type_t<T>>(v));
  } else if constexpr (std::is_integral_v<T>) {
    bytes_ += v < T{} ? "-" : "+";
    count(v < T{} ? ~static_cast<uint64_t>(v) : static_cast<uint64_t>(v));
  } else if constexpr (std::is_floating_point_v<T>) {
    const auto bits = std::bit_cast<uint64_t>(static_cast<double>(v));
    bytes_ += "d";
    bytes_.append(reinterpret_cast<const char*>(&bits), sizeof bits);
  } else if constexpr (std::is_convertible_v<T, std::string_view>) {
    bytes_ += "s";
    text(v);
  } else if constexpr (key_detail::Map<T>) {
    // In the order of the keys, so that the order of insertion makes no difference.
    std::map<std::string, std::string> sorted;
    for (const auto& [name, mapped] : v) {
      KeyWriter k, m;
      k.value(name), m.value(mapped);
      sorted.emplace(k.bytes(), m.bytes());
    }
    bytes_ += "m";
    count(sorted.size());
    for (const auto& [k, m] : sorted) bytes_ += k + m;
  } else if constexpr (key_detail::List<T>) {
    bytes_ += "l";
    count(v.size());
    for (const auto& element : v) value(static_cast<const typename T::value_type&>(element));
  } else if constexpr (key_detail::Optional<T>) {
    bytes_ += v.has_value() ? "o" : "n";
    if (v.has_value()) value(*v);
  } else {
    static_assert(
        key_detail::refused<T>,
        "a constant is a bool, a number, an enum, a string, or an optional, a list or a map of "
        "these; tensors are lifted with args.lift(tensor)");
  }
}

}  // namespace grapnel
