// What io::load_pt reads, as Python's objects.
#include <unordered_map>

#include "grapnel/io/pt.h"
#include "python/src/archive.h"

namespace grapnel::python {

namespace {

using io::PtValue;
using Kind = PtValue::Kind;

/// What was one object in the file is one object here. Values are nested 200 deep at most.
class Objects {
 public:
  nb::object of(const PtValue& value) {
    switch (value.kind()) {
      case Kind::none: return nb::none();
      case Kind::boolean: return nb::bool_(value.to_bool());
      case Kind::integer: return nb::int_(value.to_int());
      case Kind::number: return nb::float_(value.to_double());
      case Kind::tensor: return result(value.tensor());
      default: break;
    }
    nb::object& known = known_[value.node()];
    if (!known.is_valid()) known = made(value);
    return known;
  }

 private:
  nb::object made(const PtValue& value) {
    const Kind kind = value.kind();
    if (kind == Kind::bytes) return nb::bytes(value.text().data(), value.text().size());
    if (kind == Kind::text) {
      const std::string& text = value.text();
      PyObject* const out =
          PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "surrogatepass");
      if (!out) throw nb::python_error();
      return nb::steal(out);
    }
    if (kind == Kind::dict) {
      nb::dict out;
      for (const auto& [key, inside] : value.entries()) {
        const nb::object name = of(key), content = of(inside);
        if (PyDict_SetItem(out.ptr(), name.ptr(), content.ptr())) throw nb::python_error();
      }
      return out;
    }
    nb::list out;
    for (const PtValue& item : value.items()) out.append(of(item));
    return kind == Kind::tuple ? nb::object(nb::tuple(out)) : nb::object(out);
  }

  // References to values of an unordered_map stay, however it grows.
  std::unordered_map<const PtValue::Node*, nb::object> known_;
};

}  // namespace

void bind_pt(nb::module_& m) {
  m.def("_load_pt", [](nb::handle path) {
    const std::string text = path_of(path);
    PtValue value;
    {
      const WithoutInterpreter others_run;
      value = io::load_pt(text);
    }
    return Objects().of(value);
  });
  m.def("_parse_pt", [](nb::bytes data) {
    return Objects().of(
        io::parse_pt({reinterpret_cast<const std::byte*>(data.c_str()), data.size()}, "bytes"));
  });
}

}  // namespace grapnel::python
