/// Archives as dicts: tensors, numbers and texts by name. And paths.
#pragma once

#include "grapnel/io/archive.h"
#include "python/src/bind.h"

namespace grapnel::python {

/// A path, or what os.fspath makes one of.
inline std::string path_of(nb::handle path) {
  const nb::object text = nb::steal(PyOS_FSPath(path.ptr()));
  if (!text.is_valid()) throw nb::python_error();
  return nb::cast<std::string>(text);
}

inline nb::dict from_archive(const io::Archive& archive) {
  nb::dict out;
  for (const auto& item : archive.tensors()) out[item.key().c_str()] = result(*item);
  for (const auto& [name, value] : archive.values())
    if (const auto* text = std::get_if<std::string>(&value))
      out[name.c_str()] = nb::str(text->data(), text->size());
    else out[name.c_str()] = nb::steal(from_scalar(std::get<Scalar>(value)));
  return out;
}

inline void write_dict(io::Archive& out, nb::handle dict) {
  for (const nb::handle pair : dict.attr("items")()) {
    const auto name = nb::cast<std::string>(pair[0]);
    const nb::object value = pair[1];
    if (is_tensor(value.ptr())) out.write(name, tensor_of(value.ptr()).detach());
    else if (nb::isinstance<nb::str>(value)) out.write(name, nb::cast<std::string>(value));
    else out.write(name, nb::cast<Scalar>(value));
  }
}

inline io::Archive to_archive(nb::handle dict) {
  io::Archive out;
  write_dict(out, dict);
  return out;
}

}  // namespace grapnel::python
