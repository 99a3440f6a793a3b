#include "python/src/function.h"

#include "python/src/callable.h"
#include "python/src/node_type.h"

namespace grapnel::python {

using autograd::AutogradContext;
using autograd::FunctionNode;

namespace {

PyTypeObject* the_type = nullptr;

FunctionNode& function_of(nb::handle ctx) {
  auto* const node = dynamic_cast<FunctionNode*>(node_of(ctx).get());
  if (!node) throw nb::type_error("expected the ctx of a Function");
  return *node;
}

variable_list tensors_in(const nb::args& args, const char* what) {
  variable_list out;
  for (const nb::handle arg : args) {
    if (!arg.is_none() && !is_tensor(arg.ptr()))
      throw nb::type_error(str(what, ": expected tensors, got an object of type '",
                               Py_TYPE(arg.ptr())->tp_name,
                               "'; keep other things as attributes of ctx.")
                               .c_str());
    out.push_back(arg.is_none() ? Tensor() : tensor_of(arg.ptr()));
  }
  return out;
}

nb::object needs_input_grad(nb::handle ctx) {
  const FunctionNode& node = function_of(ctx);
  const FunctionState* const state = FunctionState::of(node);
  nb::list out;
  size_t next = 0;
  for (const bool tensor : state ? state->is_tensor : std::vector<bool>())
    out.append(nb::bool_(tensor && node.context.needs_input_grad(next++)));
  return nb::tuple(out);
}

nb::object saved_tensors(nb::handle ctx) {
  return result(function_of(ctx).context.get_saved_variables());
}

template <nb::object (*f)(nb::handle)>
PyObject* getter(PyObject* self, void*) {
  try {
    const LetGo afterwards;
    return f(self).release().ptr();
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

PyGetSetDef properties[] = {
    {"saved_tensors", getter<saved_tensors>, nullptr, "What save_for_backward was given.", nullptr},
    {"needs_input_grad", getter<needs_input_grad>, nullptr,
     "Whether the gradient of each argument of forward is wanted.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

void make_type() {
  PyType_Slot slots[] = {
      {Py_tp_doc, const_cast<char*>("The node of a Function, which is its ctx as well.")},
      {Py_tp_getset, properties},
      {0, nullptr}};
  PyType_Spec spec = {"grapnel.autograd.FunctionCtx", 0, 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                      slots};
  the_type = reinterpret_cast<PyTypeObject*>(
      PyType_FromSpecWithBases(&spec, reinterpret_cast<PyObject*>(node_type())));
  if (!the_type) throw nb::python_error();
}

template <class F, class... Extra>
void on_ctx(const char* name, F&& f, const Extra&... extra) {
  nb::cpp_function_def(std::forward<F>(f), nb::scope(reinterpret_cast<PyObject*>(the_type)),
                       nb::name(name), nb::is_method(), extra...);
}

/// Function.apply, of the class that comes first.
nb::object apply(nb::handle function, const nb::args& args) {
  const LetGo afterwards;
  auto state = std::make_shared<FunctionState>();
  variable_list inputs;
  for (const nb::handle arg : args) {
    state->is_tensor.push_back(is_tensor(arg.ptr()));
    if (state->is_tensor.back()) inputs.push_back(tensor_of(arg.ptr()));
  }
  const nb::object type = function.attr("_ctx_type");
  state->type = Held::borrow(type.ptr());
  state->dict = Held::steal(nb::dict().release().ptr());
  state->backward = Held::borrow(nb::object(function.attr("backward")).ptr());
  const auto backward = [s = state.get()](AutogradContext*, const variable_list& grads) {
    return s->run_backward(grads);
  };
  const auto node = IntrusivePtr<FunctionNode>::adopt(
      new FunctionNode(nb::cast<std::string>(type.attr("__name__")), backward));
  state->node = node.get();
  node->owned = state;
  const bool recorded = node->connect(inputs, state->is_tensor);
  const nb::object ctx = nb::steal(wrap_node(NodePtr(node)));
  if (!ctx.is_valid()) throw nb::python_error();

  nb::object returned;
  {
    const autograd::ForwardScope scope;
    const base::UserCodeScope user;
    if (nb::cast<bool>(function.attr("_separate"))) {
      returned = function.attr("forward")(*args);
      function.attr("setup_context")(ctx, args, returned);
    } else {
      returned = function.attr("forward")(ctx, *args);
    }
  }
  const bool several = PyTuple_Check(returned.ptr());
  const nb::object all = several ? returned : nb::object(nb::make_tuple(returned));
  variable_list outputs;
  for (const nb::handle output : all) {
    state->output_is_tensor.push_back(is_tensor(output.ptr()));
    if (state->output_is_tensor.back()) outputs.push_back(tensor_of(output.ptr()));
  }
  if (outputs.empty() && !all.is(returned) && !returned.is_none())
    refuse_result("forward of", node->name(), returned.ptr(),
                  "it returns a tensor, or a tuple of tensors and other things.");
  node->finish(inputs, outputs, recorded);
  nb::list out;
  size_t next = 0;
  for (const nb::handle output : all)
    if (is_tensor(output.ptr())) out.append(result(outputs[next++]));
    else out.append(output);
  return several ? nb::object(nb::tuple(out)) : nb::object(out[0]);
}

}  // namespace

PyTypeObject* function_node_type() { return the_type; }

FunctionState* FunctionState::of(const Node& node) {
  const auto* const function = dynamic_cast<const FunctionNode*>(&node);
  return function ? static_cast<FunctionState*>(function->owned.get()) : nullptr;
}

variable_list FunctionState::run_backward(const variable_list& grads) const {
  return in_python([&] {
    std::vector<nb::object> owned{nb::steal(wrap_node(NodePtr(node)))};
    if (!owned[0].is_valid()) throw_python();
    size_t next = 0;
    for (const bool tensor : output_is_tensor)
      owned.push_back(tensor ? result(grads[next++]) : nb::none());
    std::vector<PyObject*> arguments;
    for (const nb::object& argument : owned) arguments.push_back(argument.ptr());
    const nb::object out =
        nb::steal(PyObject_Vectorcall(backward.get(), arguments.data(), arguments.size(), nullptr));
    if (!out.is_valid()) throw_python();
    if (out.is_none()) return variable_list(1);
    return list_from(out.ptr(), "backward of", node->name(),
                     "it returns a gradient or None for each argument of forward.");
  });
}

void bind_functions(nb::module_& m) {
  make_type();
  m.attr("FunctionCtx") = nb::handle(reinterpret_cast<PyObject*>(the_type));
  m.def("_apply", apply);
  on_ctx(
      "save_for_backward",
      [](nb::handle ctx, const nb::args& tensors) {
        function_of(ctx).context.save_for_backward(tensors_in(tensors, "save_for_backward"));
      },
      "Keeps tensors, inputs or outputs of forward included, without making cycles.");
  on_ctx(
      "mark_dirty",
      [](nb::handle ctx, const nb::args& tensors) {
        function_of(ctx).context.mark_dirty(tensors_in(tensors, "mark_dirty"));
      },
      "Declares inputs that forward changed in place.");
  on_ctx(
      "mark_non_differentiable",
      [](nb::handle ctx, const nb::args& tensors) {
        function_of(ctx).context.mark_non_differentiable(
            tensors_in(tensors, "mark_non_differentiable"));
      },
      "Declares outputs that have no gradient.");
  on_ctx(
      "set_materialize_grads",
      [](nb::handle ctx, bool on) { function_of(ctx).context.set_materialize_grads(on); },
      "value"_a, "Whether backward gets zeros for outputs nobody used (the default), or None.");
}

}  // namespace grapnel::python
