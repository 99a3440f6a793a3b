// Python callables as hooks of modules, and hooks of C++ code listed for Python.
#include "python/src/callable.h"
#include "python/src/nn_module.h"
#include "python/src/nn_value.h"

namespace grapnel::python {

namespace {

PyObject* new_ref(nb::object object) { return object.release().ptr(); }

// Each is called with the interpreter's lock or without it, and takes it.

struct ForwardPre : Callable {
  bool with_kwargs;
  ForwardPre(nb::handle f, bool kwargs) : Callable(f), with_kwargs(kwargs) {}
  void operator()(nn::Module& m, nn::Args& args, nn::Kwargs& kwargs) const {
    in_python([&] {
      const nb::object module = wrap_module(m);
      if (with_kwargs) {
        const nb::object out = Callable::operator()(Py_NewRef(module.ptr()),
                                                    new_ref(from_args(args)),
                                                    new_ref(from_kwargs(kwargs)));
        if (out.is_none()) return;
        if (!PyTuple_Check(out.ptr()) || PyTuple_GET_SIZE(out.ptr()) != 2 ||
            !PyTuple_Check(PyTuple_GET_ITEM(out.ptr(), 0)) ||
            !PyDict_Check(PyTuple_GET_ITEM(out.ptr(), 1)))
          refuse_result("forward pre-hook", name, out.ptr(),
                        "registered with_kwargs, it returns None or a tuple (args, kwargs).");
        args = to_args(PyTuple_GET_ITEM(out.ptr(), 0));
        kwargs = to_kwargs(PyTuple_GET_ITEM(out.ptr(), 1));
        return;
      }
      const nb::object out =
          Callable::operator()(Py_NewRef(module.ptr()), new_ref(from_args(args)));
      if (out.is_none()) return;
      if (PyTuple_Check(out.ptr())) args = to_args(out.ptr());
      else args.assign(1, to_value(out.ptr()));
    });
  }
};

struct Forward : Callable {
  bool with_kwargs;
  Forward(nb::handle f, bool kwargs) : Callable(f), with_kwargs(kwargs) {}
  void operator()(nn::Module& m, const nn::Args& args, const nn::Kwargs& kwargs,
                  nn::Value& result) const {
    in_python([&] {
      const nb::object module = wrap_module(m);
      PyObject* const self = Py_NewRef(module.ptr());
      const nb::object out =
          with_kwargs
              ? Callable::operator()(self, new_ref(from_args(args)), new_ref(from_kwargs(kwargs)),
                                     new_ref(from_value(result)))
              : Callable::operator()(self, new_ref(from_args(args)), new_ref(from_value(result)));
      if (!out.is_none()) result = to_value(out.ptr());
    });
  }
};

ListHookResult list_or_none(const char* kind, const Callable& hook, const nb::object& out) {
  if (out.is_none()) return std::nullopt;
  return list_from(out.ptr(), kind, hook.name,
                   "it returns a tuple of tensors and None, or None.");
}

struct BackwardPre : Callable {
  using Callable::Callable;
  ListHookResult operator()(nn::Module& m, const variable_list& grads) const {
    return in_python([&] {
      return list_or_none("full backward pre-hook", *this,
                          Callable::operator()(new_ref(wrap_module(m)), as_tuple(grads)));
    });
  }
};

struct Backward : Callable {
  using Callable::Callable;
  ListHookResult operator()(nn::Module& m, const variable_list& inputs,
                            const variable_list& outputs) const {
    return in_python([&] {
      return list_or_none("full backward hook", *this,
                          Callable::operator()(new_ref(wrap_module(m)), as_tuple(inputs),
                                               as_tuple(outputs)));
    });
  }
};

/// The callable behind a hook, if it is one of Python's.
template <class Wanted, class... F>
const Callable* callable_of(const std::function<F...>& f) {
  return f.template target<Wanted>();
}

template <class Wanted, class List>
int visit_list(const List& list, visitproc visit, void* arg) {
  const auto now = list.snapshot();
  // The list's own copy of what it holds, and this one; another is somebody's who may call them.
  if (!now || now.use_count() > 2) return 0;
  for (const auto& entry : *now) {
    if (entry.use_count() > 2) continue;
    const Callable* const callable = callable_of<Wanted>(entry->hook.call);
    if (callable && callable->function.copies() == 1) Py_VISIT(callable->function.get());
  }
  return 0;
}

template <class Hook>
HookHandle add(HookKind kind, HookList<Hook>& list, Hook hook, nb::handle f, bool prepend) {
  return list.add(kind, std::move(hook),
                  {.name = name_of(f.ptr()), .site = {}, .prepend = prepend});
}

nn::ModuleHooks& hooks_on(nb::handle module) {
  return module.is_none() ? nn::global_module_hooks() : module_of(module).hooks();
}

void check_callable(nb::handle f) {
  if (!PyCallable_Check(f.ptr()))
    throw nb::type_error(
        str("a hook is a callable, got an object of type '", Py_TYPE(f.ptr())->tp_name, "'")
            .c_str());
}

}  // namespace

int visit_module_hooks(const nn::Module& module, visitproc visit, void* arg) {
  const nn::ModuleHooks& h = module.hooks();
  if (const int stop = visit_list<ForwardPre>(h.forward_pre, visit, arg)) return stop;
  if (const int stop = visit_list<Forward>(h.forward, visit, arg)) return stop;
  if (const int stop = visit_list<BackwardPre>(h.backward_pre, visit, arg)) return stop;
  if (const int stop = visit_list<Backward>(h.backward, visit, arg)) return stop;
  return visit_state_hooks(h, visit, arg);
}

void bind_nn_hooks(nb::module_& m) {
  // With None in the module's place a hook is for all modules.
  m.def("_add_forward_pre_hook",
        [](nb::handle module, nb::handle f, bool with_kwargs, bool prepend) {
          check_callable(f);
          return add(HookKind::forward_pre, hooks_on(module).forward_pre, {ForwardPre(f, with_kwargs)},
                     f, prepend);
        },
        "module"_a.none(), "hook"_a, "with_kwargs"_a, "prepend"_a);
  m.def("_add_forward_hook",
        [](nb::handle module, nb::handle f, bool with_kwargs, bool prepend, bool always_call) {
          check_callable(f);
          return add(HookKind::forward, hooks_on(module).forward,
                     {Forward(f, with_kwargs), always_call}, f, prepend);
        },
        "module"_a.none(), "hook"_a, "with_kwargs"_a, "prepend"_a, "always_call"_a);
  m.def("_add_full_backward_pre_hook",
        [](nb::handle module, nb::handle f, bool prepend) {
          check_callable(f);
          return add(HookKind::full_backward_pre, hooks_on(module).backward_pre, {BackwardPre(f)}, f,
                     prepend);
        },
        "module"_a.none(), "hook"_a, "prepend"_a);
  m.def("_add_full_backward_hook",
        [](nb::handle module, nb::handle f, bool prepend, bool after_parameters) {
          check_callable(f);
          return add(HookKind::full_backward, hooks_on(module).backward,
                     {Backward(f), after_parameters}, f, prepend);
        },
        "module"_a.none(), "hook"_a, "prepend"_a, "after_parameters"_a);

  // Hooks on registration are called as hook(module, name, value); a result replaces the value.
  const auto on_tensors = [&m](const char* name, auto& list) {
    m.def(name, [&list](nb::handle f) {
      check_callable(f);
      return list.add(
          HookKind::registration,
          [hook = Callable(f)](nn::Module& on, const std::string& path, const Tensor& value) {
            return in_python([&]() -> Tensor {
              const nb::object out =
                  hook(new_ref(wrap_module(on)), PyUnicode_FromString(path.c_str()), wrap(value));
              return out.is_none() ? Tensor() : nb::cast<Tensor>(out);
            });
          },
          {.name = name_of(f.ptr()), .site = {}});
    });
  };
  nn::RegistrationHooks& all = nn::registration_hooks();
  on_tensors("_add_parameter_registration_hook", all.parameter);
  on_tensors("_add_buffer_registration_hook", all.buffer);
  m.def("_add_module_registration_hook", [&all](nb::handle f) {
    check_callable(f);
    return all.module.add(
        HookKind::registration,
        [hook = Callable(f)](nn::Module& on, const std::string& path,
                             const std::shared_ptr<nn::Module>& value) {
          return in_python([&]() -> std::shared_ptr<nn::Module> {
            const nb::object out = hook(new_ref(wrap_module(on)), PyUnicode_FromString(path.c_str()),
                                        new_ref(wrap_module(*value)));
            return out.is_none() ? nullptr : share(out);
          });
        },
        {.name = name_of(f.ptr()), .site = {}});
  });

  m.def("_module_hooks", [](nb::handle module) {
    nb::list out;
    nn::ModuleHooks::for_each_list(hooks_on(module), [&](HookKind kind, const auto& list) {
      if (const auto entries = list.snapshot())
        for (const auto& e : *entries) {
          const std::string_view text = name(kind);
          out.append(nb::make_tuple(nb::str(text.data(), text.size()), e->id, e->name));
        }
    });
    return out;
  }, "module"_a.none());
  m.def("_copy_module_hooks", [](nb::handle from, nb::handle to) {
    module_of(to).hooks() = module_of(from).hooks();
  });
}

}  // namespace grapnel::python
