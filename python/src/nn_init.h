/// What functions of nn/init.h take from Python and give back, beside what bind.h has.
#pragma once

#include <string_view>

#include "grapnel/base/error_kinds.h"
#include "grapnel/functions/one_call.h"
#include "grapnel/nn/init.h"
#include "python/src/bind.h"

namespace grapnel::python {

/// "fan_in" or "fan_out".
struct FanModeName {
  std::string_view text;
};
/// "linear", "relu", ...; a convolution counts as linear.
struct NonlinearityName {
  std::string_view text;
};

inline nn::FanMode given(FanModeName name) {
  if (name.text == "fan_in") return nn::FanMode::in;
  check_as<ValueError>(name.text == "fan_out", "mode is 'fan_in' or 'fan_out', got '", name.text,
                       "'.");
  return nn::FanMode::out;
}
inline nn::Nonlinearity given(NonlinearityName name) {
  using enum nn::Nonlinearity;
  const std::string_view text = name.text;
  if (text == "linear" || text.starts_with("conv")) return linear;
  if (text == "sigmoid") return sigmoid;
  if (text == "tanh") return tanh;
  if (text == "relu") return relu;
  check_as<ValueError>(text == "leaky_relu", "there is no nonlinearity '", text,
                       "'; there are linear, conv1d, conv2d, sigmoid, tanh, relu and leaky_relu.");
  return leaky_relu;
}
inline nb::object given(const nn::init::Fans& fans) { return nb::make_tuple(fans.in, fans.out); }

}  // namespace grapnel::python

NAMESPACE_BEGIN(NB_NAMESPACE)
NAMESPACE_BEGIN(detail)

/// Names of choices are strings, and say themselves what they may be.
template <class T>
struct name_caster {
  NB_TYPE_CASTER(T, const_name("str"))
  bool from_python(handle src, uint32_t, cleanup_list*) noexcept {
    Py_ssize_t size = 0;
    const char* const text =
        PyUnicode_Check(src.ptr()) ? PyUnicode_AsUTF8AndSize(src.ptr(), &size) : nullptr;
    if (!text) return PyErr_Clear(), false;
    value.text = {text, static_cast<size_t>(size)};
    return true;
  }
};
template <>
struct type_caster<grapnel::python::FanModeName> : name_caster<grapnel::python::FanModeName> {};
template <>
struct type_caster<grapnel::python::NonlinearityName>
    : name_caster<grapnel::python::NonlinearityName> {};

NAMESPACE_END(detail)
NAMESPACE_END(NB_NAMESPACE)
