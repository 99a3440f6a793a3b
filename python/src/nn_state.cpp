// What modules save and load, with the hooks around it.
#include "python/src/callable.h"
#include "python/src/nn_module.h"
#include "python/src/nn_value.h"

namespace grapnel::python {

namespace {

PyObject* new_ref(nb::object object) { return object.release().ptr(); }

/// The entries as the package's OrderedDict, and back. Hooks change the dict; the library's own is
/// made of it again.
PyObject* dict_type = nullptr;

nb::object to_dict(const nn::StateDict& state) {
  nb::object out = nb::handle(dict_type)();
  for (const auto& item : state) out[nb::str(item.key().c_str())] = result(*item);
  return out;
}

void from_dict(nb::handle dict, nn::StateDict& out) {
  nn::StateDict fresh;
  fresh.metadata = std::move(out.metadata);
  for (const nb::handle pair : dict.attr("items")()) {
    const nb::object key = pair[0], value = pair[1];
    if (!nb::isinstance<nb::str>(key))
      throw nb::type_error("load_state_dict: the names of a state are strings");
    const auto name = nb::cast<std::string>(key);
    if (!is_tensor(value.ptr()))
      throw nb::type_error(str("load_state_dict: '", name, "' is an object of type '",
                               Py_TYPE(value.ptr())->tp_name, "', expected a tensor")
                               .c_str());
    fresh.insert(name, tensor_of(value.ptr()));
  }
  out = std::move(fresh);
}

nb::object to_metadata(const nn::Metadata& metadata) { return from_kwargs(metadata); }
void from_metadata(nb::handle dict, nn::Metadata& out) { out = to_kwargs(dict.ptr()); }

nb::object names(const std::vector<std::string>& list) {
  nb::list out;
  for (const std::string& name : list) out.append(nb::str(name.c_str()));
  return out;
}
void take_names(nb::handle list, std::vector<std::string>& out) {
  out.clear();
  for (const nb::handle name : list) out.push_back(nb::cast<std::string>(name));
}

struct StatePre : Callable {
  using Callable::Callable;
  void operator()(nn::Module& m, const std::string& prefix, bool keep_vars) const {
    in_python([&] {
      Callable::operator()(new_ref(wrap_module(m)), PyUnicode_FromString(prefix.c_str()),
                           PyBool_FromLong(keep_vars));
    });
  }
};

struct StatePost : Callable {
  using Callable::Callable;
  void operator()(nn::Module& m, nn::StateDict& state, const std::string& prefix,
                  nn::Metadata& metadata) const {
    in_python([&] {
      nb::object dict = to_dict(state);
      const nb::object local = to_metadata(metadata);
      const nb::object out = Callable::operator()(
          new_ref(wrap_module(m)), Py_NewRef(dict.ptr()), PyUnicode_FromString(prefix.c_str()),
          Py_NewRef(local.ptr()));
      if (!out.is_none()) dict = out;
      from_dict(dict, state);
      from_metadata(local, metadata);
    });
  }
};

struct LoadPre : Callable {
  using Callable::Callable;
  void operator()(nn::Module& m, nn::LoadContext& load) const {
    in_python([&] {
      const nb::object dict = to_dict(load.state_dict), metadata = to_metadata(load.metadata);
      const nb::object missing = names(load.missing_keys), unexpected = names(load.unexpected_keys),
                       errors = names(load.errors);
      Callable::operator()(new_ref(wrap_module(m)), Py_NewRef(dict.ptr()),
                           PyUnicode_FromString(load.prefix.c_str()), Py_NewRef(metadata.ptr()),
                           PyBool_FromLong(load.strict), Py_NewRef(missing.ptr()),
                           Py_NewRef(unexpected.ptr()), Py_NewRef(errors.ptr()));
      from_dict(dict, load.state_dict);
      take_names(missing, load.missing_keys);
      take_names(unexpected, load.unexpected_keys);
      take_names(errors, load.errors);
    });
  }
};

/// Called with lists of names that it may change.
struct LoadPost : Callable {
  PyObject* keys_type;  // lives as long as the package
  LoadPost(nb::handle f, nb::handle type) : Callable(f), keys_type(type.ptr()) {}
  void operator()(nn::Module& m, nn::IncompatibleKeys& keys) const {
    in_python([&] {
      const nb::object missing = names(keys.missing_keys), unexpected = names(keys.unexpected_keys);
      const nb::object pair = nb::handle(keys_type)(missing, unexpected);
      const nb::object out =
          Callable::operator()(new_ref(wrap_module(m)), Py_NewRef(pair.ptr()));
      if (!out.is_none())
        refuse_result("load_state_dict post-hook", name, out.ptr(),
                      "it returns None: change the lists in incompatible_keys instead.");
      take_names(missing, keys.missing_keys);
      take_names(unexpected, keys.unexpected_keys);
    });
  }
};

template <class Wanted, class List>
int visit_list(const List& list, visitproc visit, void* arg) {
  const auto now = list.snapshot();
  if (!now || now.use_count() > 2) return 0;
  for (const auto& entry : *now) {
    const Wanted* const callable = entry->hook.call.template target<Wanted>();
    if (callable && entry.use_count() == 2 && callable->function.copies() == 1)
      Py_VISIT(callable->function.get());
  }
  return 0;
}

}  // namespace

int visit_state_hooks(const nn::ModuleHooks& h, visitproc visit, void* arg) {
  if (const int stop = visit_list<StatePre>(h.state_dict_pre, visit, arg)) return stop;
  if (const int stop = visit_list<StatePost>(h.state_dict_post, visit, arg)) return stop;
  if (const int stop = visit_list<LoadPre>(h.load_pre, visit, arg)) return stop;
  return visit_list<LoadPost>(h.load_post, visit, arg);
}

void bind_nn_state(nb::module_& m) {
  m.def("_set_state_dict_type", [](nb::object type) { dict_type = type.release().ptr(); });
  m.def("_state_dict", [](nb::handle module, const std::string& prefix, bool keep_vars) {
    const LetGo afterwards;
    const auto owner = share(module);
    const nn::StateDict state = owner->state_dict(prefix, keep_vars);
    nb::dict metadata;
    for (const auto& [path, facts] : state.metadata) metadata[path.c_str()] = to_metadata(facts);
    return nb::make_tuple(to_dict(state), metadata);
  });
  m.def("_load_state_dict", [](nb::handle module, nb::handle dict, nb::handle metadata,
                               bool strict) {
    const LetGo afterwards;
    const auto owner = share(module);
    nn::StateDict state;
    from_dict(dict, state);
    if (!metadata.is_none())
      for (const nb::handle pair : metadata.attr("items")())
        from_metadata(pair[1], state.metadata[nb::cast<std::string>(pair[0])]);
    const nn::IncompatibleKeys keys = owner->load_state_dict(state, strict);
    return nb::make_tuple(names(keys.missing_keys), names(keys.unexpected_keys));
  }, "module"_a, "state_dict"_a, "metadata"_a.none(), "strict"_a);

  const auto adder = [&m](const char* name, HookKind kind, auto list, auto make) {
    m.def(name, [kind, list, make](nb::handle module, nb::handle f, bool prepend) {
      if (!PyCallable_Check(f.ptr())) throw nb::type_error("a hook is a callable");
      return (module_of(module).hooks().*list)
          .add(kind, {make(f)}, {.name = name_of(f.ptr()), .site = {}, .prepend = prepend});
    });
  };
  adder("_add_state_dict_pre_hook", HookKind::state_dict_pre, &nn::ModuleHooks::state_dict_pre,
        [](nb::handle f) { return StatePre(f); });
  adder("_add_state_dict_post_hook", HookKind::state_dict_post, &nn::ModuleHooks::state_dict_post,
        [](nb::handle f) { return StatePost(f); });
  adder("_add_load_state_dict_pre_hook", HookKind::load_state_dict_pre, &nn::ModuleHooks::load_pre,
        [](nb::handle f) { return LoadPre(f); });
  m.def("_add_load_state_dict_post_hook", [](nb::handle module, nb::handle f, nb::handle type) {
    if (!PyCallable_Check(f.ptr())) throw nb::type_error("a hook is a callable");
    return module_of(module).hooks().load_post.add(
        HookKind::load_state_dict_post, {LoadPost(f, type)}, {.name = name_of(f.ptr()), .site = {}});
  });
  m.def("_convert_module", [](nb::handle module, DTypeArg type) { module_of(module).to(type.value); });
  m.def("_zero_grad_module",
        [](nb::handle module, bool set_to_none) { module_of(module).zero_grad(set_to_none); });

  // Members: kinds are "parameters", "buffers" and "modules".
  const auto kind_of = [](std::string_view kind) {
    return kind == "parameters" ? Member::parameter
           : kind == "buffers"  ? Member::buffer
                                : Member::module;
  };
  m.def("_members", [kind_of](nb::handle object, std::string_view what) {
    nn::Module& module = module_of(object);
    const Member kind = kind_of(what);
    nb::list out;
    const auto keys = kind == Member::parameter ? parameters_in(module).keys()
                      : kind == Member::buffer  ? buffers_in(module).keys()
                                                : children_in(module).keys();
    for (const std::string& name : keys)
      out.append(nb::make_tuple(nb::str(name.c_str()),
                                member(as_module(object.ptr()), kind, name)));
    return out;
  });
  m.def("_set_member", [kind_of](nb::handle object, std::string_view what, const std::string& name,
                                 nb::handle value, bool persistent) {
    nn::Module& module = module_of(object);
    PyModule* const self = as_module(object.ptr());
    const Member kind = kind_of(what), before = find_member(self, name);
    (void)module;
    if (before != Member::none && before != kind)
      throw nb::key_error(str("attribute '", name, "' already exists").c_str());
    set_member(self, kind, name, value, persistent);
  }, "module"_a, "kind"_a, "name"_a, "value"_a.none(), "persistent"_a);
}

}  // namespace grapnel::python
