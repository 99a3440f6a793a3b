// Graphs that Python can look at: trace(f, ...) and the type Graph.
#include "grapnel/capture/trace.h"
#include "grapnel/base/source_site.h"
#include "grapnel/compile/trace.h"
#include "python/src/callable.h"

namespace grapnel::python {

namespace {

/// The attributes of a call, by name.
class AttrDict final : public AttrVisitor {
 public:
  nb::dict dict;
  void on(std::string_view name, bool value) override { set(name, nb::bool_(value)); }
  void on(std::string_view name, int64_t value) override { set(name, nb::int_(value)); }
  void on(std::string_view name, double value) override { set(name, nb::float_(value)); }
  void on(std::string_view name, DType value) override { set(name, dtype_object(value)); }
  void on(std::string_view name, const Shape& value) override {
    set(name, nb::steal(size_object(value)));
  }

 private:
  void set(std::string_view name, const nb::object& value) {
    dict[nb::str(name.data(), name.size())] = value;
  }
};

/// How a value is written in the text of a graph.
nb::object name_of_value(const Graph& graph, Graph::Id id) {
  if (id == capture::kNone) return nb::none();
  const Graph::Value& value = graph.values()[id];
  if (value.number) return nb::steal(from_scalar(*value.number));
  const std::string name = graph.name_of(id);
  return nb::str(name.data(), name.size());
}

template <class Ids>
nb::tuple names_of(const Graph& graph, const Ids& ids) {
  nb::list out;
  for (const Graph::Id id : ids) out.append(name_of_value(graph, id));
  return nb::tuple(out);
}

nb::object instructions(const Graph& graph, nb::handle type) {
  nb::list out;
  const capture::Calls& calls = graph.calls();
  for (const Graph::Instruction& i : graph.instructions()) {
    AttrDict attributes;
    if (i.op->attrs_size > 0) i.op->visit_attrs(calls.attrs_of(i), attributes);
    // What works in place makes nothing that has a name.
    const auto outputs = i.inplace ? std::span<const Graph::Id>() : calls.outputs_of(i);
    out.append(type(std::string(i.op->name), names_of(graph, calls.inputs_of(i)),
                    names_of(graph, outputs), attributes.dict, i.inplace,
                    std::string(calls.hook_of(i)),
                    i.site ? base::describe({i.site}) : std::string()));
  }
  return nb::tuple(out);
}

nb::object values(const Graph& graph, nb::handle type) {
  nb::dict out;
  for (Graph::Id id = 0; id < graph.values().size(); ++id) {
    const Graph::Value& v = graph.values()[id];
    if (v.number) continue;
    out[nb::str(graph.name_of(id).c_str())] =
        type(dtype_object(v.dtype), nb::steal(size_object(v.sizes)), result(v.constant));
  }
  return out;
}

PyObject* instruction_type = nullptr;
PyObject* value_type = nullptr;

}  // namespace

void bind_graphs(nb::module_& m) {
  m.def("_set_graph_types", [](nb::object instruction, nb::object value) {
    instruction_type = instruction.release().ptr();
    value_type = value.release().ptr();
  });
  nb::class_<Graph>(m, "Graph", "A recorded computation: it can be printed, read back and run.")
      .def("str", &Graph::str, "sources"_a = false,
           "The text; with sources, every line ends in where it was recorded.")
      .def("__str__", [](const Graph& graph) { return graph.str(); })
      .def("__repr__", [](const Graph& graph) { return graph.str(); })
      .def_static("parse", &Graph::parse, "text"_a, "The graph that str() printed.")
      .def("dot", &Graph::dot, "A picture in the DOT language.")
      .def("verify", &Graph::verify)
      .def("count", &Graph::count, "op"_a, "How often an op occurs.")
      .def(
          "set_constant",
          [](Graph& graph, std::string_view name, const Tensor& value) {
            const LetGo afterwards;
            graph.set_constant(name, value);
          },
          "name"_a, "value"_a, "Gives the constant of this name its values.")
      .def("_run",
           [](const Graph& graph, const Tensors& inputs) {
             const LetGo afterwards;
             variable_list out;
             {
               const WithoutInterpreter others_run;
               out = graph.run(inputs.values);
             }
             return result(out);
           })
      .def_prop_ro("inputs", [](const Graph& graph) { return names_of(graph, graph.inputs()); })
      .def_prop_ro("outputs", [](const Graph& graph) { return names_of(graph, graph.outputs()); })
      .def_prop_ro(
          "values", [](const Graph& graph) { return values(graph, value_type); },
          "What the names stand for: type, size, and the tensor of a constant.")
      .def_prop_ro(
          "instructions", [](const Graph& graph) { return instructions(graph, instruction_type); },
          "The calls, in their order.");

  m.def("_trace", [](nb::object f, const Tensors& inputs) {
    const LetGo afterwards;
    // `f` takes a tuple of tensors and returns one.
    const auto fn = [kept = Held::borrow(f.ptr())](const variable_list& in) {
      return in_python([&]() -> variable_list {
        const nb::object list = nb::steal(as_tuple(in));
        if (!list.is_valid()) throw_python();
        const nb::object out = nb::steal(PyObject_CallOneArg(kept.get(), list.ptr()));
        if (!out.is_valid()) throw_python();
        return list_from(out.ptr(), "traced function", "f", "it returns a tuple of tensors.");
      });
    };
    const WithoutInterpreter others_run;
    return compiler::trace_list(fn, inputs.values);
  });
}

}  // namespace grapnel::python
