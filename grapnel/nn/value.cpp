#include "grapnel/nn/value.h"

namespace grapnel::nn {

namespace {
template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;
}  // namespace

Value::Value() = default;
Value::Value(const Value& other) = default;
Value::Value(Value&& other) noexcept = default;
Value& Value::operator=(const Value& other) = default;
Value& Value::operator=(Value&& other) noexcept = default;
Value::~Value() = default;

bool Value::is_none() const { return std::holds_alternative<std::monostate>(value_); }
bool Value::is_tensor() const { return std::holds_alternative<Tensor>(value_); }
bool Value::is_tuple() const { return std::holds_alternative<Args>(value_); }

const Tensor& Value::toTensor() const {
  static const Tensor& none = *new Tensor;
  return is_none() ? none : get<Tensor>("a tensor");
}

const Args& Value::tuple() const { return get<Args>("a tuple"); }

void Value::visit_tensors(const TensorVisitor& fn) {
  std::visit(Overloaded{
                 [&](Tensor& t) { fn(t); },
                 [&](List& list) {
                   for (Tensor& t : list) fn(t);
                 },
                 [&](Map& map) {
                   for (auto& [key, t] : map) fn(t);
                 },
                 [&](Args& parts) {
                   for (Value& part : parts) part.visit_tensors(fn);
                 },
                 [&](detail::Boxed& box) {
                   if (box.visit) box.visit(box.value, fn);
                 },
                 [](auto&) {},
             },
             value_);
}

std::string Value::describe() const {
  return std::visit(Overloaded{
                        [](std::monostate) { return std::string("nothing"); },
                        [](const Tensor& t) {
                          return t.defined() ? str("a tensor of shape ", t.shape())
                                             : std::string("an undefined tensor");
                        },
                        [](const List& list) { return str("a list of ", list.size(), " tensors"); },
                        [](const Map& map) { return str("a map of ", map.size(), " tensors"); },
                        [](const Args& parts) { return str("a tuple of ", parts.size()); },
                        [](bool) { return std::string("a bool"); },
                        [](int64_t) { return std::string("an int"); },
                        [](double) { return std::string("a double"); },
                        [](const std::string&) { return std::string("a string"); },
                        [](const detail::Boxed&) { return std::string("a value of another type"); },
                    },
                    value_);
}

namespace {

void add_places(Places& places, Args& values) {
  const size_t first = places.count;
  places.count += values.size();
  for (size_t i = 0; i < values.size(); ++i)
    if (values[i].is_tensor())
      values[i].visit_tensors([&](Tensor& t) { places.tensors.push_back({first + i, &t}); });
  for (Value& value : values)
    if (!value.is_tensor())
      value.visit_tensors([&](Tensor& t) { places.tensors.push_back({places.count++, &t}); });
}

}  // namespace

Places Places::of(Args& args, Kwargs& kwargs) {
  Places places;
  add_places(places, args);
  for (auto& [name, value] : kwargs)
    value.visit_tensors([&](Tensor& t) { places.tensors.push_back({places.count++, &t}); });
  return places;
}

Places Places::of(Value& result) {
  Places places;
  if (result.is_tuple()) {
    add_places(places, result.tuple());
  } else {
    result.visit_tensors([&](Tensor& t) { places.tensors.push_back({places.count++, &t}); });
    if (places.count == 0) places.count = 1;
  }
  return places;
}

}  // namespace grapnel::nn
