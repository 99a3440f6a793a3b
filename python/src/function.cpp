#include "python/src/function.h"

#include <span>

#include "grapnel/base/error_kinds.h"
#include "python/src/callable.h"
#include "python/src/node_type.h"
#include "python/src/type_slots.h"

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
  return guarded([&] { return f(self).release().ptr(); });
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

/// Names of attributes, made once.
struct Names {
  PyObject *ctx_type, *separate, *forward, *setup_context, *backward;
} names;

nb::object attribute(nb::handle object, PyObject* name) {
  PyObject* const out = PyObject_GetAttr(object.ptr(), name);
  if (!out) throw_python();
  return nb::steal(out);
}

/// f(first, *rest).
nb::object call(const nb::object& f, nb::handle first, std::span<PyObject* const> rest) {
  constexpr size_t kMost = 8;
  PyObject* few[kMost];
  std::vector<PyObject*> many;
  PyObject** list = few;
  if (rest.size() >= kMost) {
    many.resize(rest.size() + 1);
    list = many.data();
  }
  list[0] = first.ptr();
  std::copy(rest.begin(), rest.end(), list + 1);
  PyObject* const out = PyObject_Vectorcall(f.ptr(), list, rest.size() + 1, nullptr);
  if (!out) throw_python();
  return nb::steal(out);
}

/// What forward of a class returns, which may want the ctx first, or leave it to setup_context.
nb::object call_forward(nb::handle function, nb::handle ctx, std::span<PyObject* const> arguments) {
  const autograd::ForwardScope scope;
  const base::UserCodeScope user;
  const nb::object forward = attribute(function, names.forward);
  if (attribute(function, names.separate).ptr() != Py_True) return call(forward, ctx, arguments);
  nb::object out =
      nb::steal(PyObject_Vectorcall(forward.ptr(), arguments.data(), arguments.size(), nullptr));
  if (!out.is_valid()) throw_python();
  nb::object inputs = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(arguments.size())));
  if (!inputs.is_valid()) throw_python();
  for (size_t i = 0; i < arguments.size(); ++i)
    PyTuple_SET_ITEM(inputs.ptr(), static_cast<Py_ssize_t>(i), Py_NewRef(arguments[i]));
  PyObject* const list[] = {inputs.ptr(), out.ptr()};
  call(attribute(function, names.setup_context), ctx, list);
  return out;
}

/// Function.apply, of the class that comes first.
PyObject* apply_to(std::span<PyObject* const> given) {
  const nb::handle function = given[0];
  const std::span<PyObject* const> arguments = given.subspan(1);
  auto state = std::make_shared<FunctionState>();
  variable_list inputs;
  inputs.reserve(arguments.size());
  state->is_tensor.reserve(arguments.size());
  for (PyObject* const argument : arguments) {
    state->is_tensor.push_back(is_tensor(argument));
    if (state->is_tensor.back()) inputs.push_back(tensor_of(argument));
  }
  const nb::object type = attribute(function, names.ctx_type);
  state->type = Held::borrow(type.ptr());
  state->dict = Held::steal(nb::dict().release().ptr());
  state->backward = Held::borrow(attribute(function, names.backward).ptr());
  const auto backward = [s = state.get()](AutogradContext*, const variable_list& grads) {
    return s->run_backward(grads);
  };
  const char* const name =
      PyUnicode_AsUTF8(reinterpret_cast<PyHeapTypeObject*>(type.ptr())->ht_name);
  if (!name) throw_python();
  const auto node = IntrusivePtr<FunctionNode>::adopt(new FunctionNode(name, backward));
  state->node = node.get();
  node->owned = state;
  const bool recorded = node->connect(inputs, state->is_tensor);
  const nb::object ctx = nb::steal(wrap_node(NodePtr(node)));
  if (!ctx.is_valid()) throw_python();

  const nb::object returned = call_forward(function, ctx, arguments);
  const bool several = PyTuple_Check(returned.ptr());
  PyObject* const single = returned.ptr();
  const std::span<PyObject* const> all =
      several ? std::span<PyObject* const>(&PyTuple_GET_ITEM(single, 0),
                                           static_cast<size_t>(PyTuple_GET_SIZE(single)))
              : std::span<PyObject* const>(&single, 1);
  variable_list outputs;
  outputs.reserve(all.size());
  for (PyObject* const output : all) {
    state->output_is_tensor.push_back(is_tensor(output));
    if (state->output_is_tensor.back()) outputs.push_back(tensor_of(output));
  }
  if (outputs.empty() && !several && !returned.is_none())
    refuse_result("forward of", node->name(), single,
                  "it returns a tensor, or a tuple of tensors and other things.");
  node->finish(inputs, outputs, recorded);
  if (!several) return outputs.empty() ? Py_NewRef(single) : wrap(std::move(outputs[0]));
  nb::object out = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(all.size())));
  if (!out.is_valid()) throw_python();
  size_t next = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    PyObject* const item =
        state->output_is_tensor[i] ? wrap(std::move(outputs[next++])) : Py_NewRef(all[i]);
    if (!item) throw_python();
    PyTuple_SET_ITEM(out.ptr(), static_cast<Py_ssize_t>(i), item);
  }
  return out.release().ptr();
}

PyObject* apply(PyObject*, PyObject* const* given, Py_ssize_t count) {
  return guarded([&] {
    check_as<TypeError>(count > 0, "_apply: the class of a Function comes first.");
    return apply_to({given, static_cast<size_t>(count)});
  });
}

PyMethodDef apply_method = {"_apply",
                            reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(apply)),
                            METH_FASTCALL, "Function.apply, of the class that comes first."};

}  // namespace

PyTypeObject* function_node_type() { return the_type; }

FunctionState* FunctionState::of(const Node& node) {
  const auto* const function = dynamic_cast<const FunctionNode*>(&node);
  return function ? static_cast<FunctionState*>(function->owned.get()) : nullptr;
}

variable_list FunctionState::run_backward(const variable_list& grads) const {
  return in_python([&] {
    const nb::object ctx = nb::steal(wrap_node(NodePtr(node)));
    if (!ctx.is_valid()) throw_python();
    std::vector<nb::object> owned;
    std::vector<PyObject*> arguments;
    owned.reserve(output_is_tensor.size());
    arguments.reserve(output_is_tensor.size());
    size_t next = 0;
    for (const bool tensor : output_is_tensor) {
      owned.push_back(tensor ? result(grads[next++]) : nb::none());
      arguments.push_back(owned.back().ptr());
    }
    const nb::object out = call(nb::borrow(backward.get()), ctx, arguments);
    if (out.is_none()) return variable_list(1);
    return list_from(out.ptr(), "backward of", node->name(),
                     "it returns a gradient or None for each argument of forward.");
  });
}

void bind_functions(nb::module_& m) {
  make_type();
  m.attr("FunctionCtx") = nb::handle(reinterpret_cast<PyObject*>(the_type));
  names = {PyUnicode_InternFromString("_ctx_type"), PyUnicode_InternFromString("_separate"),
           PyUnicode_InternFromString("forward"), PyUnicode_InternFromString("setup_context"),
           PyUnicode_InternFromString("backward")};
  const nb::object function = nb::steal(PyCFunction_New(&apply_method, nullptr));
  if (!function.is_valid()) throw nb::python_error();
  m.attr("_apply") = function;
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
