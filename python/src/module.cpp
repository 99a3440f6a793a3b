/// grapnel._core: the library as Python sees it. Start at bind.h; the functions themselves come from
/// generate.py.
#include "python/src/module.h"

#include "grapnel/base/error.h"
#include "grapnel/base/interrupt.h"
#include "python/src/held.h"

namespace grapnel::python {

namespace {
PyObject* errors[6];

void make_error(nb::module_& m, ErrorKind kind, const char* name, const char* says,
                nb::object bases) {
  const bool builtin = PyTuple_Check(bases.ptr());  // whose name it has
  const std::string full = str(builtin ? "grapnel.errors." : "grapnel.", name);
  PyObject* const type = PyErr_NewExceptionWithDoc(full.c_str(), says, bases.ptr(), nullptr);
  if (!type) throw nb::python_error();
  errors[static_cast<int>(kind)] = type;
  m.attr(str("_", name).c_str()) = nb::handle(type);
}

unsigned long main_thread = 0;

/// Ctrl-C in long work: Python runs handlers of signals on its main thread only.
void check_signals() {
  if (PyThread_get_thread_ident() != main_thread) return;
  in_python([] {
    if (PyErr_CheckSignals()) throw_python();
  });
}
}  // namespace

PyObject* error_type(ErrorKind kind) { return errors[static_cast<int>(kind)]; }

void bind_errors(nb::module_& m) {
  const nb::object general = nb::borrow(PyExc_RuntimeError);
  make_error(m, ErrorKind::error, "Error", "What the caller has to mend; the text says what to do.",
             general);
  make_error(m, ErrorKind::internal, "InternalError", "A mistake of the library. Please report it.",
             general);
  const nb::object general_error = nb::borrow(error_type());
  const auto with = [&](PyObject* builtin) {
    return nb::object(nb::make_tuple(general_error, nb::handle(builtin)));
  };
  make_error(m, ErrorKind::graph_break, "GraphBreak",
             "A value was read where a graph may not break.", general_error);
  make_error(m, ErrorKind::index, "IndexError", "A dimension or position that is not there.",
             with(PyExc_IndexError));
  make_error(m, ErrorKind::type, "TypeError", "Elements of a type that is not defined there.",
             with(PyExc_TypeError));
  make_error(m, ErrorKind::value, "ValueError",
             "A setting that makes no sense, whatever the tensors are.", with(PyExc_ValueError));
  nb::register_exception_translator([](const std::exception_ptr& error, void*) {
    try {
      std::rethrow_exception(error);
    } catch (const PythonError&) {
      set_python_error();
    } catch (const Error&) {
      set_python_error();
    } catch (const InternalError&) {
      set_python_error();
    }
  });
  // What the library lets go of after this stays where it is.
  nb::module_::import_("atexit").attr("register")(nb::cpp_function([] {
    let_go_of_dying();
    set_interrupt_check(nullptr);
    interpreter_ends();
  }));
}

void bind_interrupts(nb::module_&) {
  const nb::object thread = nb::module_::import_("threading").attr("main_thread")();
  main_thread = nb::cast<unsigned long>(thread.attr("ident"));
  set_interrupt_check(check_signals);
}

}  // namespace grapnel::python

NB_MODULE(_core, m) {
  using namespace grapnel::python;
  nb::set_leak_warnings(false);
  bind_errors(m);
  bind_interrupts(m);
  bind_lines(m);
  bind_tensor(m);
  bind_dtypes(m);
  bind_generator(m);
  bind_values(m);
  bind_callables(m);
  bind_nodes(m);
  bind_hooks(m);
  bind_functions(m);
  bind_autograd(m);
  bind_compile(m);
  bind_graphs(m);
  bind_calls(m);
  bind_nn_values(m);
  bind_nn_module(m);
  bind_nn_members(m);
  bind_nn_layers(m);
  bind_nn_hooks(m);
  bind_nn_state(m);
  bind_optim(m);
  bind_lr_scheduler(m);
  bind_interop(m);
  bind_dist(m);
  bind_hook_library(m);
  bind_train(m);
  bind_shared_memory(m);
  bind_pt(m);
  bind_data(m);
  bind_ops_0(m);
  bind_ops_1(m);
  bind_ops_2(m);
  bind_ops_3(m);
  bind_collector(m);
}
