/// Compiled functions of Python.
#pragma once

#include <cstring>
#include <thread>
#include <unordered_set>

#include "grapnel/compile/compile.h"
#include "grapnel/compile/graph_compiler.h"
#include "python/src/callable.h"

namespace grapnel::python {

/// A backend written in Python: compile(graph, inputs) returns a Backend or its name, the graph, or
/// a function of the inputs.
class PyGraphCompiler final : public GraphCompiler {
 public:
  PyGraphCompiler(nb::handle f, uint64_t identity) : GraphCompiler(identity), function_(f) {}
  Runner compile(const Graph& graph, const std::vector<Tensor>& inputs) override;
  /// For the collector: the callable, while nobody else has a copy.
  PyObject* function_if_sole() const {
    return function_.function.copies() == 1 ? function_.function.get() : nullptr;
  }

 private:
  Callable function_;
};

/// Calls a pure function, or replays what it did with such arguments. The arguments are those of a
/// vectorcall.
nb::object replay(compiler::Replays& replays, const nb::object& function,
                  PyObject* const* arguments, size_t count, PyObject* names);

}  // namespace grapnel::python
