#include "grapnel/base/error.h"
#include "grapnel/io/pt.h"

namespace grapnel::io {

namespace {
/// A made-up file can hold one dict under very many names.
constexpr size_t most_visits = 10'000'000;
}  // namespace

PtValue::Kind PtValue::kind() const {
  constexpr Kind plain[] = {Kind::none, Kind::boolean, Kind::integer, Kind::number, Kind::tensor};
  const size_t i = value_.index();
  return i < std::size(plain) ? plain[i] : std::get<std::shared_ptr<Node>>(value_)->kind;
}

const PtValue::Node* PtValue::node() const {
  const auto* node = std::get_if<std::shared_ptr<Node>>(&value_);
  return node ? node->get() : nullptr;
}

std::string PtValue::describe() const {
  switch (kind()) {
    case Kind::none: return "nothing";
    case Kind::boolean: return "a truth value";
    case Kind::integer: return str("the whole number ", std::get<int64_t>(value_));
    case Kind::number: return str("the number ", std::get<double>(value_));
    case Kind::tensor: return str("a tensor of shape ", tensor().shape());
    case Kind::text: return "a text";
    case Kind::bytes: return str(node()->text.size(), " bytes");
    case Kind::list: return str("a list of ", node()->items.size(), " values");
    case Kind::tuple: return str("a tuple of ", node()->items.size(), " values");
    case Kind::dict: return str("a dict of ", node()->entries.size(), " values");
    case Kind::name: return "'" + node()->text + "'";
    case Kind::storage: return "the memory of a tensor";
  }
  __builtin_unreachable();
}

bool PtValue::to_bool() const {
  const bool* value = std::get_if<bool>(&value_);
  if (!value) fail("a .pt file holds ", describe(), " where a truth value is expected.");
  return *value;
}
int64_t PtValue::to_int() const {
  const int64_t* value = std::get_if<int64_t>(&value_);
  if (!value) fail("a .pt file holds ", describe(), " where a whole number is expected.");
  return *value;
}
double PtValue::to_double() const {
  if (const int64_t* whole = std::get_if<int64_t>(&value_)) return static_cast<double>(*whole);
  const double* value = std::get_if<double>(&value_);
  if (!value) fail("a .pt file holds ", describe(), " where a number is expected.");
  return *value;
}
const Tensor& PtValue::tensor() const {
  const Tensor* value = std::get_if<Tensor>(&value_);
  if (!value) fail("a .pt file holds ", describe(), " where a tensor is expected.");
  return *value;
}

const std::string& PtValue::text() const {
  return kind() == Kind::bytes ? node()->text : node_of(Kind::text, "a text").text;
}
const std::vector<PtValue>& PtValue::items() const {
  return kind() == Kind::tuple ? node()->items : node_of(Kind::list, "a list").items;
}
const std::vector<PtValue::Entry>& PtValue::entries() const {
  return node_of(Kind::dict, "a dict").entries;
}
const PtValue::Node& PtValue::node_of(Kind wanted, const char* what) const {
  if (kind() != wanted) fail("a .pt file holds ", describe(), " where ", what, " is expected.");
  return *node();
}

const PtValue* PtValue::find(std::string_view key) const {
  const std::vector<Entry>& all = entries();
  for (size_t i = all.size(); i-- > 0;)
    if (all[i].first.kind() == Kind::text && all[i].first.node()->text == key)
      return &all[i].second;
  return nullptr;
}
const PtValue& PtValue::operator[](std::string_view key) const {
  const PtValue* const found = find(key);
  if (!found) fail("a .pt file holds ", describe(), ", and none of them is '", key, "'.");
  return *found;
}

NamedTensors PtValue::tensors() const {
  NamedTensors out("Tensor");
  size_t visits = 0;
  const auto add = [&](const auto& self, const std::string& name, const PtValue& value) -> void {
    check(++visits <= most_visits, "a .pt file holds more than ", most_visits, " names.");
    if (value.kind() == Kind::tensor) out.set(name.empty() ? "value" : name, value.tensor());
    if (value.kind() != Kind::dict) return;
    for (const auto& [key, inside] : value.entries()) {
      const bool named = key.kind() == Kind::text;
      if (!named && key.kind() != Kind::integer) continue;
      const std::string own = named ? key.text() : std::to_string(key.to_int());
      self(self, name.empty() ? own : name + "." + own, inside);
    }
  };
  add(add, "", *this);
  return out;
}

}  // namespace grapnel::io
