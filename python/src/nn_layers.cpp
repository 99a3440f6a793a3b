#include "python/src/nn_layers.h"

#include <typeindex>
#include <unordered_map>

#include "python/src/nn_module.h"

namespace grapnel::python {

// --- arguments ---

nb::object Arguments::at(const char* name) const { return nb::borrow(values_[name]); }
void Arguments::refuse(const char* name, const char* wanted) const {
  const nb::object given = at(name);
  throw nb::type_error(
      str(name, " must be ", wanted, ", got ", Py_TYPE(given.ptr())->tp_name, ".").c_str());
}
double Arguments::number(const char* name) const { return get<double>(name, "a number"); }
std::optional<int64_t> Arguments::maybe_integer(const char* name) const {
  return none(name) ? std::nullopt : std::optional(integer(name));
}
std::optional<double> Arguments::maybe_number(const char* name) const {
  return none(name) ? std::nullopt : std::optional(number(name));
}
Tensor Arguments::tensor(const char* name) const {
  return none(name) ? Tensor() : get<Tensor>(name, "a tensor or None");
}
std::vector<int64_t> Arguments::integers(const char* name) const {
  return IntArrayRef(get<Ints>(name, "an integer or a sequence of integers")).vec();
}
std::vector<int64_t> Arguments::sizes(const char* name) const {
  if (none(name)) return {-1};
  if (PyIndex_Check(at(name).ptr())) return integers(name);
  std::vector<int64_t> out;
  if (!PySequence_Check(at(name).ptr())) refuse(name, "an integer or a sequence of integers and None");
  for (const nb::handle size : at(name)) {
    int64_t one = -1;
    if (!size.is_none() && !nb::try_cast(size, one))
      refuse(name, "an integer or a sequence of integers and None");
    out.push_back(one);
  }
  return out;
}

// --- the table ---

const std::vector<Layer>& layers() {
  static const std::vector<Layer>& all = *[] {
    auto* const out = new std::vector<Layer>;
    add_basic_layers(*out);
    add_activations(*out);
    add_large_layers(*out);
    add_losses(*out);
    return out;
  }();
  return all;
}

const Layer* layer_of(const nn::Module& module) {
  static const auto& by_type = *[] {
    auto* const out = new std::unordered_map<std::type_index, const Layer*>;
    for (const Layer& layer : layers()) out->emplace(*layer.type, &layer);
    return out;
  }();
  const auto found = by_type.find(typeid(module));
  return found == by_type.end() ? nullptr : found->second;
}

Tensor* tensor_member(const Layer* layer, nn::Module& module, const std::string& name) {
  if (layer)
    for (const Layer::TensorMember& m : layer->tensors)
      if (name == m.name) return &m.of(module);
  return nullptr;
}

const Layer::ModuleMember* module_member(const Layer* layer, const std::string& name) {
  if (layer)
    for (const Layer::ModuleMember& m : layer->modules)
      if (name == m.name) return &m;
  return nullptr;
}

namespace {
const Layer& layer_named(std::string_view name) {
  for (const Layer& layer : layers())
    if (name == layer.name) return layer;
  fail("there is no layer '", name, "'.");
}
}  // namespace

void bind_nn_layers(nb::module_& m) {
  m.def("_layers", [] {
    nb::list out;
    for (const Layer& l : layers()) out.append(nb::make_tuple(l.name, l.arguments, l.inputs));
    return out;
  });
  m.def("_init_layer", [](nb::handle object, std::string_view name, nb::dict arguments) {
    module_type();
    if (!is_module(object.ptr())) throw nb::type_error("expected a Module");
    PyModule* const self = as_module(object.ptr());
    const Layer& layer = layer_named(name);
    if (!self->module) adopt(self, layer.make(Arguments(std::move(arguments))), &layer);
  });
  m.def("_copy_layer", [](nb::handle from, nb::handle object) {
    nn::Module& original = module_of(from);
    const Layer* const layer = as_module(from.ptr())->layer;
    check(layer != nullptr, "only layers of the library are copied by this");
    if (!is_module(object.ptr())) throw nb::type_error("expected a Module");
    check(!as_module(object.ptr())->module, "a copy goes to an object that has no module yet");
    adopt(as_module(object.ptr()), layer->copy(original), layer);
  });
  m.def("_reset_parameters", [](nb::handle object) {
    nn::Module& module = module_of(object);
    const Layer* const layer = as_module(object.ptr())->layer;
    if (layer && layer->reset_parameters) layer->reset_parameters(module);
  });
}

}  // namespace grapnel::python
