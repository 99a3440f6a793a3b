/// Replay: calling a pure function again without running its body.
///
/// The first call with given arguments (types, sizes, layout and sharing of tensors; plain values
/// as they are) records the body as usual and keeps the trace. Later calls put their tensors in its
/// place and run it. That is only right for a function that is pure: what it returns depends on its
/// arguments and on tensors it captured, which it reads and never writes; it does nothing else.
/// What can be seen of that promise is checked when the body is recorded. Audit mode runs the body
/// again on every call and compares what it would have done.
///
/// Note [Stand-ins]
/// The body is recorded on stand-ins: tensors that look like the arguments over storages of their
/// own. So a captured tensor is never taken for an argument that shares its memory in the first
/// call, and is itself in all calls after it. Arguments that share memory with each other have
/// stand-ins that do, too; that is part of the key.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <vector>

#include "grapnel/base/source_site.h"
#include "grapnel/capture/graph.h"
#include "grapnel/compile/scope.h"

namespace grapnel {

/// Whether replayed functions are run for real beside every replay and compared; a difference is an
/// Error that names the op and its line. Starts as true if the environment says
/// GRAPNEL_AUDIT=replay.
void set_replay_audit(bool on);

namespace compiler {

/// Structs that list their members: `static void visit(auto& self, auto&& fn)` calls fn on each of
/// them.
template <class T>
concept ListsMembers = requires(T& value) { T::visit(value, [](auto&) {}); };

template <class V>
concept Range = requires(V& value) { std::begin(value) != std::end(value); };
template <class V>
using ElementOf = decltype(*std::begin(std::declval<V&>()));

/// Whether there may be tensors in a value.
template <class T>
constexpr bool holds_tensors() {
  using V = std::remove_cvref_t<T>;
  if constexpr (std::is_same_v<V, Tensor>) return true;
  else if constexpr (std::is_arithmetic_v<V> || std::is_enum_v<V> ||
                     std::is_convertible_v<const V&, std::string_view>)
    return false;
  else if constexpr (ListsMembers<V>) return true;
  else if constexpr (requires(V& v) {
                       v.has_value();
                       *v;
                     })
    return holds_tensors<decltype(*std::declval<V&>())>();
  else if constexpr (Range<V>) return holds_tensors<ElementOf<V>>();
  else if constexpr (requires { std::tuple_size<V>::value; })
    return []<size_t... I>(std::index_sequence<I...>) {
      return (holds_tensors<std::tuple_element_t<I, V>>() || ...);
    }(std::make_index_sequence<std::tuple_size_v<V>>{});
  else return false;
}
/// Whether a value refers to tensors that somebody else holds: std::span and the like. Copies of it
/// do so, too.
template <class T>
constexpr bool borrows_tensors() {
  using V = std::remove_cvref_t<T>;
  if constexpr (Range<V>)
    return holds_tensors<V>() && (std::is_trivially_copyable_v<V> || std::is_array_v<V>);
  else return false;
}
/// A list of borrowed tensors, which can be borrowed from elsewhere instead.
template <class T>
concept TensorSpan =
    borrows_tensors<T>() && std::is_same_v<std::remove_cvref_t<ElementOf<T>>, Tensor> &&
    std::is_constructible_v<std::remove_cvref_t<T>, Tensor*, size_t>;

/// Tensors, numbers, text, optionals, containers and tuples of these, and structs that list their
/// members.
template <class T>
constexpr bool is_replayable() {
  using V = std::remove_cvref_t<T>;
  if constexpr (std::is_void_v<V> || std::is_pointer_v<V>) return false;
  else if constexpr (std::is_same_v<V, Tensor> || std::is_arithmetic_v<V> || std::is_enum_v<V> ||
                     std::is_convertible_v<const V&, std::string_view>)
    return true;
  else if constexpr (ListsMembers<V>) return true;
  else if constexpr (requires(V& v) {
                       v.has_value();
                       *v;
                     })
    return is_replayable<decltype(*std::declval<V&>())>();
  else if constexpr (Range<V>)
    return is_replayable<ElementOf<V>>() && !borrows_tensors<ElementOf<V>>();
  else if constexpr (requires { std::tuple_size<V>::value; })
    return []<size_t... I>(std::index_sequence<I...>) {
      return (is_replayable<std::tuple_element_t<I, V>>() && ...);
    }(std::make_index_sequence<std::tuple_size_v<V>>{});
  else return false;
}
template <class T>
constexpr bool is_argument() {
  using V = std::remove_cvref_t<T>;
  return is_replayable<V>() && (!holds_tensors<V>() || TensorSpan<V> ||
                                (!borrows_tensors<V>() && std::is_copy_constructible_v<V>));
}
template <class Result, class... Args>
inline constexpr bool replayable =
    !std::is_void_v<Result> && !std::is_reference_v<Result> &&
    std::is_copy_constructible_v<Result> && is_replayable<Result>() && (is_argument<Args>() && ...);
[[noreturn]] void refuse_types();

/// Calls on_tensor(Tensor&) for all tensors in a value and on_plain(bytes) for all else that is in
/// it.
template <class T, class OnTensor, class OnPlain>
void visit_value(T& value, OnTensor& on_tensor, OnPlain& on_plain) {
  using V = std::remove_const_t<T>;
  auto again = [&](auto& part) { visit_value(part, on_tensor, on_plain); };
  if constexpr (std::is_same_v<V, Tensor>) {
    on_tensor(value);
  } else if constexpr (std::is_arithmetic_v<V> || std::is_enum_v<V>) {
    on_plain(std::string_view(reinterpret_cast<const char*>(&value), sizeof(value)));
  } else if constexpr (std::is_convertible_v<const V&, std::string_view>) {
    on_plain(std::string_view(value));
  } else if constexpr (ListsMembers<V>) {
    V::visit(value, again);
  } else if constexpr (requires { value.has_value(); }) {
    const bool there = value.has_value();
    again(there);
    if (there) again(*value);
  } else if constexpr (Range<V>) {
    const auto count = static_cast<uint64_t>(std::distance(std::begin(value), std::end(value)));
    again(count);
    for (auto&& part : value) again(part);
  } else {
    std::apply([&](auto&... parts) { (again(parts), ...); }, value);
  }
}

/// Plain values, and what tensors look like.
struct ReplayKey;

/// What a call of a replayed function was given, or has returned.
struct ReplayValues {
  std::vector<Tensor> tensors;
  std::unique_ptr<ReplayKey> key;
  std::shared_ptr<const void> form;  ///< of a result: all of it but its tensors

  ReplayValues();
  ReplayValues(ReplayValues&&) noexcept;
  ~ReplayValues();
  void add(const Tensor& t);
  void add(std::string_view plain);
  template <class T>
  void add_all(T& value) {
    auto tensor = [this](const Tensor& t) { add(t); };
    auto plain = [this](std::string_view bytes) { add(bytes); };
    visit_value(value, tensor, plain);
  }
};

/// What one session can replay.
class Replays {
 public:
  /// Runs the function with these tensors in the place of its arguments', in their order, and lists
  /// what it returned.
  using Body = std::function<ReplayValues(const std::vector<Tensor>&)>;
  struct Entry;

  explicit Replays(std::shared_ptr<Session> session);
  ~Replays();
  /// Null if there was no such call yet. In audit mode the body is recorded, too.
  std::shared_ptr<const Entry> find(const ReplayValues& arguments, const Body& body) const;
  /// Records the body and runs it; the tensors of the result. Throws if it does what no pure
  /// function does.
  std::vector<Tensor> record(const ReplayValues& arguments, const Body& body);
  /// The tensors of the result for these arguments.
  std::vector<Tensor> run(const Entry& entry, const ReplayValues& arguments) const;
  static const void* form_of(const Entry& entry);
  /// What can be replayed, the last recorded one first.
  std::vector<Graph> graphs() const;
  void forget();

 private:
  struct Kept;
  std::shared_ptr<Session> session_;
  std::unique_ptr<Kept> kept_;
};

/// An argument of one call of the body, with stand-ins for its tensors; see Note [Stand-ins].
template <class T>
struct Argument {
  std::conditional_t<holds_tensors<T>(), std::remove_cvref_t<T>, T&> value;
  explicit Argument(std::remove_reference_t<T>& given) : value(given) {}
  template <class Fn>
  void visit_tensors(Fn& fn) {
    auto nothing = [](std::string_view) {};
    if constexpr (holds_tensors<T>()) visit_value(value, fn, nothing);
  }
};
template <TensorSpan T>
struct Argument<T> {
  std::vector<Tensor> tensors;
  std::remove_cvref_t<T> value;
  explicit Argument(std::remove_reference_t<T>& given)
      : tensors(std::begin(given), std::end(given)), value(tensors.data(), tensors.size()) {}
  template <class Fn>
  void visit_tensors(Fn& fn) {
    for (Tensor& t : tensors) fn(t);
  }
};

/// Calls `fn`, or replays what it did with such arguments.
template <class Result, class... Args, class F>
Result replay(Replays& replays, F& fn, Args&&... args) {
  ReplayValues arguments;
  const size_t type = typeid(Result(Args...)).hash_code();
  arguments.add_all(type);
  (arguments.add_all(args), ...);
  std::optional<Result> result;
  auto nothing = [](std::string_view) {};
  const Replays::Body body = [&](const std::vector<Tensor>& stand_ins) {
    std::tuple<Argument<Args>...> given(args...);
    size_t next = 0;
    auto stand_in = [&](auto& t) {
      if constexpr (std::is_const_v<std::remove_reference_t<decltype(t)>>) refuse_types();
      else t = stand_ins[next++];
    };
    std::apply([&](auto&... argument) { (argument.visit_tensors(stand_in), ...); }, given);
    const base::UserCodeScope user;
    std::apply(
        [&](auto&... argument) {
          result.emplace(std::invoke(fn, static_cast<Args&&>(argument.value)...));
        },
        given);
    ReplayValues values;
    values.add_all(*result);
    auto form = std::make_shared<Result>(*result);
    auto clear = [](Tensor& t) { t = Tensor(); };
    visit_value(*form, clear, nothing);
    values.form = std::move(form);
    return values;
  };
  std::vector<Tensor> tensors;
  if (const auto entry = replays.find(arguments, body)) {
    tensors = replays.run(*entry, arguments);
    result.emplace(*static_cast<const Result*>(Replays::form_of(*entry)));
  } else {
    tensors = replays.record(arguments, body);
  }
  size_t next = 0;
  auto fill = [&](Tensor& t) { t = std::move(tensors[next++]); };
  visit_value(*result, fill, nothing);
  return std::move(*result);
}

}  // namespace compiler
}  // namespace grapnel
