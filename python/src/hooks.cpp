#include <any>

#include "grapnel/autograd/multi_grad.h"
#include "grapnel/autograd/saved_variable.h"
#include "grapnel/base/error_kinds.h"
#include "python/src/callable.h"
#include "python/src/node_type.h"

namespace grapnel::python {

namespace {

constexpr const char* kNodeHookReturns = "it returns a tuple of tensors and None, or None.";

/// What graphs call in an opaque hook's place: nothing stands for "unchanged".
invoke_detail::Body body_of(const Callable& hook, const char* kind, const char* wanted) {
  return [hook, kind, wanted](const variable_list& tensors) {
    return in_python([&]() -> variable_list {
      const nb::object list = nb::steal(as_tuple(tensors));
      const nb::object out = nb::steal(
          list.is_valid() ? PyObject_CallObject(hook.function.get(), list.ptr()) : nullptr);
      if (!out.is_valid()) throw_python();
      return out.is_none() ? variable_list() : list_from(out.ptr(), kind, hook.name, wanted);
    });
  };
}

/// What a hook can learn about the moment it fires, kept for as long as Python wants it.
struct Told {
  NodePtr node;
  int slot, depth;
  uint64_t pass;
  bool creates_graph;
  std::string hook_name, tensor_name;
  explicit Told(const HookContext& c)
      : node(const_cast<Node*>(c.node)),
        slot(c.slot),
        depth(c.depth),
        pass(c.pass),
        creates_graph(c.creates_graph),
        hook_name(c.hook_name()),
        tensor_name(c.tensor_name()) {}
};

class PyTensorHook final : public TensorHook, public Callable {
 public:
  PyTensorHook(nb::handle f, std::string called, bool with_context)
      : Callable(f, std::move(called)), with_context_(with_context) {}
  Tensor call(const Tensor& grad, const HookContext& context) override {
    if (is_opaque) {
      const invoke_detail::Body body = body_of(*this, "tensor hook", kReturns);
      return invoke_detail::call(invoke_detail::Kind::opaque, body, {grad}, 1)[0];
    }
    return in_python([&]() -> Tensor {
      const nb::object out = with_context_
                                 ? (*this)(wrap(grad), nb::cast(Told(context)).release().ptr())
                                 : (*this)(wrap(grad));
      if (out.is_none()) return {};
      if (!is_tensor(out.ptr())) refuse_result("tensor hook", name, out.ptr(), kReturns);
      const Tensor& result = tensor_of(out.ptr());
      return result.is_same(grad) ? Tensor() : result;  // the argument itself is no change
    });
  }
  void compiled_args(CompiledNodeArgs& args) const override { declare(args); }
  bool opaque() const override { return is_opaque; }
  const void* foreign() const override { return Callable::foreign(); }

 private:
  static constexpr const char* kReturns = "it returns a tensor in the gradient's place, or None.";
  const bool with_context_;
};

class PyPostAccumulateHook final : public PostAccumulateGradHook, public Callable {
 public:
  using Callable::Callable;
  void operator()(const Tensor& leaf) override {
    const auto body = [hook = static_cast<const Callable&>(*this)](const variable_list& leaves) {
      in_python([&] {
        const nb::object out = hook(wrap(leaves[0]));
        if (!out.is_none())
          refuse_result("post-accumulate hook", hook.name, out.ptr(),
                        "it gets the leaf, and returns None: change leaf.grad instead.");
      });
      return variable_list();
    };
    if (is_opaque) invoke_detail::call(invoke_detail::Kind::opaque, body, {leaf}, 0);
    else body({leaf});
  }
  void compiled_args(CompiledNodeArgs& args) const override { declare(args); }
  bool opaque() const override { return is_opaque; }
  const void* foreign() const override { return Callable::foreign(); }
};

/// Node hooks are called with one list, or with the gradients of a node's inputs and outputs.
struct PyNodeHook : Callable {
  using Callable::Callable;
  std::optional<variable_list> operator()(const variable_list& grads) const {
    return in_python(
        [&] { return list_of("node pre-hook", Callable::operator()(as_tuple(grads))); });
  }
  std::optional<variable_list> operator()(const variable_list& inputs,
                                          const variable_list& outputs) const {
    return in_python([&] {
      return list_of("node post-hook", Callable::operator()(as_tuple(inputs), as_tuple(outputs)));
    });
  }
  void compiled_args(CompiledNodeArgs& args) const { declare(args); }

 private:
  std::optional<variable_list> list_of(const char* kind, const nb::object& out) const {
    if (out.is_none()) return std::nullopt;
    return list_from(out.ptr(), kind, name, kNodeHookReturns);
  }
};

/// The same for what opaque() returned: graphs call it when they run.
struct PyOpaqueNodeHook {
  PyNodeHook hook;
  const void* foreign() const { return hook.foreign(); }
  variable_list operator()(const variable_list& grads) const {
    return call(grads, grads.size(), [f = hook](const variable_list& x) { return f(x); });
  }
  variable_list operator()(const variable_list& inputs, const variable_list& outputs) const {
    variable_list both = inputs;
    both.insert(both.end(), outputs.begin(), outputs.end());
    return call(both, inputs.size(),
                [f = hook, split = static_cast<ptrdiff_t>(inputs.size())](const variable_list& x) {
                  return f(variable_list(x.begin(), x.begin() + split),
                           variable_list(x.begin() + split, x.end()));
                });
  }

 private:
  template <class F>
  static variable_list call(const variable_list& grads, size_t count, F f) {
    variable_list out = invoke_detail::call(
        invoke_detail::Kind::opaque,
        [f = std::move(f), count](const variable_list& x) {
          // What returns nothing changes nothing.
          return f(x).value_or(variable_list(x.begin(), x.begin() + static_cast<ptrdiff_t>(count)));
        },
        grads, count);
    return out;
  }
};

template <class Register>
HookHandle register_on_node(const nb::object& hook, Register&& add) {
  PyNodeHook made(hook);
  return made.is_opaque ? add(PyOpaqueNodeHook{std::move(made)}) : add(std::move(made));
}

}  // namespace
}  // namespace grapnel::python

namespace grapnel {
template <>
inline constexpr bool is_opaque<python::PyOpaqueNodeHook> = true;
}  // namespace grapnel

namespace grapnel::python {

void bind_hooks(nb::module_& m) {
  nb::class_<HookHandle>(m, "RemovableHandle",
                         "Names one registered hook. Dropping it keeps the hook.")
      .def(
          "remove",
          [](HookHandle& h) {
            const LetGo afterwards;
            h.remove();
          },
          "Removes the hook; twice is silent.")
      .def_prop_ro("id", [](const HookHandle& h) { return h.id(); })
      .def_prop_ro(
          "active", [](const HookHandle& h) { return h.active(); },
          "Whether the hook is registered.")
      .def("__enter__", [](nb::handle self) { return nb::borrow(self); })
      .def("__exit__",
           [](HookHandle& h, nb::args) {
             const LetGo afterwards;
             h.remove();
           })
      .def(
          "__eq__", [](const HookHandle& a, const HookHandle& b) { return a == b; },
          nb::is_operator())
      .def("__hash__", [](const HookHandle& h) { return h.id(); })
      .def("__repr__", [](const HookHandle& h) {
        return str("<RemovableHandle ", h.id(), h.active() ? ">" : ", removed>");
      });

  on_tensor(
      "register_hook",
      [](const Tensor& t, nb::object hook, const std::optional<std::string>& name, bool context) {
        HookOptions options = options_for(hook, name);
        auto made = std::make_shared<PyTensorHook>(hook, options.name, context);
        check_as<ValueError>(!(context && (made->is_opaque || made->declaration)),
                             "register_hook: opaque and declared hooks are given gradients only; "
                             "context=True is for other hooks.");
        return t.register_hook(std::move(made), std::move(options));
      },
      "hook"_a, nb::kw_only(), "name"_a = nb::none(), "context"_a = false,
      "Calls hook(grad), or hook(grad, context), when the gradient of this tensor is complete; "
      "what it returns, unless None, takes the gradient's place.");
  on_tensor(
      "register_post_accumulate_grad_hook",
      [](const Tensor& t, nb::object hook, const std::optional<std::string>& name) {
        HookOptions options = options_for(hook, name);
        auto made = std::make_shared<PyPostAccumulateHook>(hook, options.name);
        return t.register_post_accumulate_grad_hook(std::move(made), std::move(options));
      },
      "hook"_a, nb::kw_only(), "name"_a = nb::none(),
      "Calls hook(leaf) after the grad of this leaf was updated.");

  on_node(
      "register_prehook",
      [](nb::handle self, nb::object hook, const std::optional<std::string>& name) {
        HookOptions options = options_for(hook, name);
        return register_on_node(hook, [&](auto made) {
          return node_of(self)->register_prehook(std::move(made), std::move(options));
        });
      },
      "fn"_a, nb::kw_only(), "name"_a = nb::none(),
      "Calls fn(grad_outputs) before the node runs; a tuple that it returns takes their place.");
  on_node(
      "register_hook",
      [](nb::handle self, nb::object hook, const std::optional<std::string>& name) {
        HookOptions options = options_for(hook, name);
        return register_on_node(hook, [&](auto made) {
          return node_of(self)->register_hook(std::move(made), std::move(options));
        });
      },
      "fn"_a, nb::kw_only(), "name"_a = nb::none(),
      "Calls fn(grad_inputs, grad_outputs) after the node ran; a tuple that it returns takes the "
      "place of grad_inputs.");

  nb::class_<Told>(m, "HookContext", "What a hook can learn about the moment it fires.")
      .def_prop_ro(
          "node", [](const Told& t) { return nb::steal(wrap_node(t.node)); },
          "The node whose gradient this is.")
      .def_ro("slot", &Told::slot, "Which of its outputs.")
      .def_ro("pass_number", &Told::pass, "Of the backward pass; nested passes have their own.")
      .def_ro("depth", &Told::depth, "0 for a pass that no hook started.")
      .def_ro("creates_graph", &Told::creates_graph,
              "Whether what the hook computes is differentiable.")
      .def_ro("hook_name", &Told::hook_name)
      .def_ro("tensor_name", &Told::tensor_name)
      .def_prop_ro(
          "final", [](const Told& t) { return t.depth == 0; },
          "Whether the gradient is the one that the caller of backward() asked for.");
  nb::class_<HookInfo>(m, "HookInfo", "One registered hook.")
      .def_ro("id", &HookInfo::id)
      .def_prop_ro("kind", [](const HookInfo& i) { return std::string(grapnel::name(i.kind)); })
      .def_ro("name", &HookInfo::name)
      .def_ro("site", &HookInfo::site)
      .def_ro("slot", &HookInfo::slot)
      .def("__repr__", [](const HookInfo& i) {
        return str("<", grapnel::name(i.kind), " hook '", i.name, "'>");
      });
  const auto infos = [](const std::vector<HookInfo>& all) {
    nb::list out;
    for (const HookInfo& info : all) out.append(info);
    return out;
  };
  m.def(
      "hooks_of", [infos](const Tensor& t) { return infos(hooks_of(t)); }, "tensor"_a,
      "What is registered on a tensor or a node, in the order of firing.");
  m.def("hooks_of", [infos](nb::handle node) { return infos(hooks_of(node_of(node))); }, "node"_a);
  m.def(
      "will_fire",
      [](const HookHandle& handle, const Tensor& loss) { return will_fire(handle, loss); },
      "handle"_a, "loss"_a, "Whether loss.backward() would call the hook.");

  m.def("_register_multi_grad_hook", [](const Tensors& tensors, nb::object hook, bool any) {
    HookOptions options = options_for(hook, std::nullopt);
    const Callable callable(hook);
    const auto first = [callable](const Tensor& grad) { in_python([&] { callable(wrap(grad)); }); };
    const auto all = [callable](const variable_list& grads) {
      in_python([&] { callable(as_tuple(grads)); });
    };
    const auto add = [&](auto f, MultiGrad mode) {
      return register_multi_grad_hook(tensors.values, std::move(f), mode, std::move(options));
    };
    if (any)
      return callable.is_opaque ? add(opaque(first), MultiGrad::any) : add(first, MultiGrad::any);
    return callable.is_opaque ? add(opaque(all), MultiGrad::all) : add(all, MultiGrad::all);
  });

  m.def("_gradient_edge", [](const Tensor& t) {
    const Edge edge = gradient_edge(t);
    check(static_cast<bool>(edge),
          "get_gradient_edge: the tensor does not require grad, so no gradient flows to it.");
    return nb::make_tuple(nb::steal(wrap_node(edge.node)), edge.slot);
  });

  // Scopes of saved-tensor hooks: entered and left by a class of Python's.
  nb::class_<SavedTensorHooks>(m, "_SavedTensorHooks")
      .def("__init__", [](SavedTensorHooks* self, nb::object pack, nb::object unpack) {
        const Callable p(pack), u(unpack);
        new (self) SavedTensorHooks(
            [p](const Tensor& t) -> std::any {
              return in_python([&]() -> std::any {
                const nb::object packed = p(wrap(t));
                // The library itself looks after a tensor, and notices when it is overwritten.
                if (Py_TYPE(packed.ptr()) == tensor_type()) return tensor_of(packed.ptr());
                return Held::borrow(packed.ptr());
              });
            },
            [u](const std::any& packed) -> Tensor {
              return in_python([&] {
                const auto* const tensor = std::any_cast<Tensor>(&packed);
                const nb::object out =
                    u(tensor ? wrap(*tensor) : Py_NewRef(std::any_cast<const Held&>(packed).get()));
                if (!is_tensor(out.ptr()))
                  refuse_result("unpack hook", u.name, out.ptr(), "it returns a tensor.");
                return tensor_of(out.ptr());
              });
            });
      });
  nb::class_<autograd::DisableSavedTensorHooks>(m, "_DisableSavedTensorHooks")
      .def("__init__", [](autograd::DisableSavedTensorHooks* self, std::string message) {
        new (self) autograd::DisableSavedTensorHooks(std::move(message));
      });
}

}  // namespace grapnel::python
