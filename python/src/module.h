/// What the sources of the module share: types that are made once, and who binds what.
#pragma once

#include <Python.h>
#include <nanobind/nanobind.h>

namespace nb = nanobind;

namespace grapnel::python {

/// grapnel.Error and its kinds, and grapnel.InternalError.
enum class ErrorKind : uint8_t { error, graph_break, index, type, value, internal };
PyObject* error_type(ErrorKind kind = ErrorKind::error);

void bind_errors(nb::module_& m);
void bind_interrupts(nb::module_& m);
void bind_lines(nb::module_& m);
void bind_dtypes(nb::module_& m);
void bind_generator(nb::module_& m);
void bind_tensor(nb::module_& m);
void bind_values(nb::module_& m);
void bind_callables(nb::module_& m);
void bind_nodes(nb::module_& m);
void bind_hooks(nb::module_& m);
void bind_functions(nb::module_& m);
void bind_autograd(nb::module_& m);
void bind_collector(nb::module_& m);
void bind_compile(nb::module_& m);
void bind_graphs(nb::module_& m);
void bind_calls(nb::module_& m);
void bind_nn_values(nb::module_& m);
void bind_nn_module(nb::module_& m);
void bind_nn_members(nb::module_& m);
void bind_nn_layers(nb::module_& m);
void bind_nn_hooks(nb::module_& m);
void bind_nn_state(nb::module_& m);
void bind_optim(nb::module_& m);
void bind_lr_scheduler(nb::module_& m);
void bind_interop(nb::module_& m);
void bind_dist(nb::module_& m);
void bind_hook_library(nb::module_& m);
void bind_hook_tools(nb::module_& m);
void bind_train(nb::module_& m);
void bind_shared_memory(nb::module_& m);
void bind_pt(nb::module_& m);
void bind_data(nb::module_& m);
void bind_ops_0(nb::module_& m);
void bind_ops_1(nb::module_& m);
void bind_ops_2(nb::module_& m);
void bind_ops_3(nb::module_& m);

}  // namespace grapnel::python
