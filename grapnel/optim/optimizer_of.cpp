/// Numbers and tensors of options and states by name.
#include "grapnel/optim/optimizer_of.h"

namespace grapnel::optim::detail {

void save_number(Numbers& out, const char* name, const Scalar& value) { out[name] = value; }
const Scalar* find_number(const Numbers& values, const char* name) {
  const auto it = values.find(name);
  return it == values.end() ? nullptr : &it->second;
}
void save_entry(Entries& out, const char* name, const Tensor& value) {
  if (value.defined()) out.emplace(name, value);
}
void save_entry(Entries& out, const char* name, const Scalar& value) {
  if (value.to_double() != 0) out.emplace(name, value);
}

namespace {
template <class T>
T entry(const Entries& values, const char* name, T absent, const char* sentence) {
  const auto it = values.find(name);
  if (it == values.end()) return absent;
  const T* found = std::get_if<T>(&it->second);
  check(found != nullptr, "load_state_dict: ", name, sentence);
  return *found;
}
}  // namespace
Tensor tensor_entry(const Entries& values, const char* name) {
  return entry(values, name, Tensor(), " is saved as a number, expected a tensor.");
}
Scalar number_entry(const Entries& values, const char* name) {
  return entry(values, name, Scalar(0), " is saved as a tensor, expected a number.");
}

}  // namespace grapnel::optim::detail
