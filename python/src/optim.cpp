#include "python/src/optim.h"

#include <unordered_map>

#include "grapnel/autograd/grad_mode.h"
#include "grapnel/optim/optim.h"
#include "python/src/callable.h"

namespace grapnel::python {

using namespace optim;

namespace {

std::unordered_map<const Optimizer*, PyOptimizer*>& owners() {
  static auto* const table = new std::unordered_map<const Optimizer*, PyOptimizer*>;
  return *table;
}

/// How many handles an optimiser has of a parameter: in its group, and beside its state.
constexpr uint32_t kHandles = 2;

using Numbers = std::map<std::string, Scalar>;

Numbers to_numbers(nb::handle dict) {
  Numbers out;
  for (const nb::handle pair : dict.attr("items")())
    out[nb::cast<std::string>(pair[0])] = nb::cast<Scalar>(pair[1]);
  return out;
}
nb::object from_numbers(const Numbers& numbers) {
  nb::dict out;
  for (const auto& [name, value] : numbers) out[name.c_str()] = nb::steal(from_scalar(value));
  return out;
}

// --- optimisers that are written in Python ---

/// The group's dict in Python is what counts. `find(number)` gives it, so that no C++ object holds it.
class DictOptions final : public OptimizerOptions {
 public:
  DictOptions(Held find, int64_t number) : find_(std::move(find)), number_(number) {}
  std::unique_ptr<OptimizerOptions> clone() const override {
    return std::make_unique<DictOptions>(find_, number_);
  }
  double get_lr() const override {
    return in_python([&] { return nb::cast<double>(dict()["lr"]); });
  }
  void set_lr(double lr) override {
    in_python([&] { dict()["lr"] = lr; });
  }
  Numbers to_map() const override {
    return in_python([&] {
      Numbers out;
      for (const nb::handle pair : dict().attr("items")()) {
        Scalar value;
        if (to_scalar(nb::object(pair[1]).ptr(), value, false))
          out[nb::cast<std::string>(pair[0])] = value;
      }
      return out;
    });
  }
  void from_map(const Numbers& values) override {
    in_python([&] {
      const nb::object mine = dict();
      for (const auto& [name, value] : values) mine[name.c_str()] = nb::steal(from_scalar(value));
    });
  }
  void validate() const override {}

 private:
  nb::object dict() const { return nb::handle(find_.get())(number_); }
  Held find_;
  int64_t number_;
};

struct NoState final : OptimizerParamState {
  std::map<std::string, Entry> to_map() const override { return {}; }
  void from_map(const std::map<std::string, Entry>&) override {}
};

/// Its step is a function of Python's, step(closure).
class PythonOptimizer final : public Optimizer {
 public:
  PythonOptimizer(std::unique_ptr<OptimizerOptions> defaults, Held step)
      : Optimizer(std::move(defaults)), step_(std::move(step)) {}

 protected:
  std::unique_ptr<OptimizerParamState> make_state() const override {
    return std::make_unique<NoState>();
  }
  // There is nothing in it.
  std::unique_ptr<OptimizerParamState> copy_of(const OptimizerParamState&) const override {
    return std::make_unique<NoState>();
  }
  void assign(OptimizerParamState&, const OptimizerParamState&) const override {}
  Update update(const Tensor&, const Tensor&, const OptimizerOptions&,
                OptimizerParamState&) override {
    fail("step_param: an optimiser that is written in Python steps all parameters at once.");
  }
  Tensor run(const LossClosure& closure) override {
    return in_python([&]() -> Tensor {
      // A weak reference to the method.
      const nb::object step = nb::handle(step_.get())();
      if (step.is_none()) return {};
      NoGradGuard no_grad;
      nb::object given = nb::none();
      if (closure) given = nb::cpp_function([closure] {
          EnableGradGuard grad;
          return closure();
        });
      const nb::object out = step(given);
      return is_tensor(out.ptr()) ? tensor_of(out.ptr()) : Tensor();
    });
  }

 private:
  Held step_;
};

// --- the table ---

template <class O, class Options>
std::unique_ptr<Optimizer> make(const Numbers& defaults, nb::handle text) {
  Options options(1e-3);
  options.from_map(defaults);
  if constexpr (requires { options.line_search_fn(); }) {
    if (!text.is_none()) options.line_search_fn(nb::cast<std::string>(text));
    // It wants its parameters at once; this one gives way to them.
    return std::make_unique<O>(std::vector<Tensor>{empty({1})}, options);
  } else {
    return std::make_unique<O>(std::vector<OptimizerParamGroup>(), options);
  }
}

struct Kind {
  const char* name;
  std::unique_ptr<Optimizer> (*make)(const Numbers&, nb::handle);
};
constexpr Kind kKinds[] = {
    {"SGD", make<SGD, SGDOptions>},         {"Adam", make<Adam, AdamOptions>},
    {"AdamW", make<AdamW, AdamWOptions>},   {"Adagrad", make<Adagrad, AdagradOptions>},
    {"RMSprop", make<RMSprop, RMSpropOptions>}, {"Lion", make<Lion, LionOptions>},
    {"LBFGS", make<LBFGS, LBFGSOptions>},
};

// --- hooks ---

nb::tuple closure_args(const Optimizer::LossClosure& closure) {
  if (!closure) return nb::make_tuple();
  return nb::make_tuple(nb::cpp_function([closure] { return closure(); }));
}

Optimizer::LossClosure closure_of(nb::handle f) {
  if (f.is_none()) return nullptr;
  return [kept = Held::borrow(f.ptr())]() -> Tensor {
    return in_python([&]() -> Tensor {
      const nb::object out = nb::handle(kept.get())();
      if (out.is_none()) return {};
      if (is_tensor(out.ptr())) return tensor_of(out.ptr());
      return scalar_tensor(nb::cast<Scalar>(out), kFloat64);
    });
  };
}

/// What the library has of a hook is a token; the callable itself is with the Python object, where
/// the collector sees it. `find(token)` gives it, or None.
struct StepHook {
  Held find, token;
  nb::object call(Optimizer& optimizer, const Optimizer::LossClosure& closure) const {
    const nb::object f = nb::handle(find.get())(nb::handle(token.get()));
    if (f.is_none()) return nb::none();
    return f(wrap_optimizer(optimizer), closure_args(closure), nb::dict());
  }
};

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  for (PyObject* const object : nb::inst_ptr<PyOptimizer>(self)->kept) Py_VISIT(object);
  return 0;
}
int clear(PyObject* self) {
  if (nb::inst_ready(self)) nb::inst_ptr<PyOptimizer>(self)->let_go();
  return 0;
}

}  // namespace

PyOptimizer::~PyOptimizer() {
  if (optimizer) owners().erase(optimizer.get());
  optimizer.reset();
  let_go();
  Py_CLEAR(owner);
}

void PyOptimizer::let_go() {
  for (PyObject* const object : std::exchange(kept, {})) {
    reinterpret_cast<PyTensor*>(object)->co_owners -= kHandles;
    Py_DECREF(object);
  }
}

void PyOptimizer::keep() {
  let_go();
  for (const OptimizerParamGroup& group : optimizer->param_groups())
    for (const Tensor& p : group.params()) {
      kept.push_back(result(p).release().ptr());
      reinterpret_cast<PyTensor*>(kept.back())->co_owners += kHandles;
    }
}

nb::object wrap_optimizer(Optimizer& optimizer) {
  const auto found = owners().find(&optimizer);
  if (found == owners().end() || !found->second->owner) return nb::none();
  return nb::handle(found->second->owner)();
}

PyOptimizer& optimizer_of(nb::handle object) {
  return nb::cast<PyOptimizer&>(object.attr("_impl"));
}

void bind_optim(nb::module_& m) {
  PyType_Slot slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                         {Py_tp_clear, reinterpret_cast<void*>(clear)},
                         {0, nullptr}};
  nb::class_<PyOptimizer>(m, "_Optimizer", nb::type_slots(slots))
      .def("__init__",
           [](PyOptimizer* self, std::string_view name, nb::handle defaults, nb::handle more,
              nb::object owner) {
             new (self) PyOptimizer();
             if (name == "python")
               self->optimizer = std::make_unique<PythonOptimizer>(
                   std::make_unique<DictOptions>(Held::borrow(defaults.ptr()), -1),
                   Held::borrow(more.ptr()));
             self->waits = name == "LBFGS";
             for (const Kind& kind : kKinds)
               if (name == kind.name) self->optimizer = kind.make(to_numbers(defaults), more);
             self->owner = owner.release().ptr();
             owners()[self->optimizer.get()] = self;
           },
           "name"_a, "defaults"_a, "more"_a.none(), "owner"_a)
      .def("defaults", [](PyOptimizer& o) { return from_numbers(o.optimizer->defaults().to_map()); })
      .def("add_group",
           [](PyOptimizer& o, const Tensors& params, nb::handle options, bool shared) {
             std::unique_ptr<OptimizerOptions> own;
             if (shared)
               own = std::make_unique<DictOptions>(
                   Held::borrow(options.ptr()),
                   static_cast<int64_t>(o.optimizer->param_groups().size()));
             else (own = o.optimizer->defaults().clone())->from_map(to_numbers(options));
             auto& groups = o.optimizer->param_groups();
             if (std::exchange(o.waits, false)) {
               groups[0].params() = params.values;
               groups[0].set_options(std::move(own));
               o.optimizer->state_dict();  // takes them over
             } else {
               o.optimizer->add_param_group({params.values, std::move(own)});
             }
             o.keep();
           })
      .def("params",
           [](PyOptimizer& o, size_t i) {
             nb::list out;
             for (const Tensor& p : o.optimizer->param_groups().at(i).params()) out.append(result(p));
             return out;
           })
      .def("set_params",
           [](PyOptimizer& o, size_t i, const Tensors& params) {
             o.optimizer->param_groups().at(i).params() = params.values;
             o.optimizer->state_dict();  // takes them over
             o.keep();
           })
      .def("options",
           [](PyOptimizer& o, size_t i) {
             return from_numbers(o.optimizer->param_groups().at(i).options().to_map());
           })
      .def("set_options",
           [](PyOptimizer& o, size_t i, nb::handle values) {
             OptimizerOptions& options = o.optimizer->param_groups().at(i).options();
             const auto before = options.clone();
             options.from_map(to_numbers(values));
             try {
               options.validate();
             } catch (...) {
               options.from_map(before->to_map());
               throw;
             }
           })
      .def("step",
           [](PyOptimizer& o, nb::handle closure) {
             const LetGo afterwards;
             const Optimizer::LossClosure f = closure_of(closure);
             Tensor loss;
             {
               const WithoutInterpreter others_run;
               loss = o.optimizer->step(f);
             }
             return result(loss);
           },
           "closure"_a.none())
      .def("step_param",
           [](PyOptimizer& o, const Tensor& p, const MaybeTensor& grad) {
             if (grad.tensor.defined()) o.optimizer->step_param(p, grad.tensor);
             else o.optimizer->step_param(p);
           })
      .def("zero_grad", [](PyOptimizer& o, bool none) { o.optimizer->zero_grad(none); })
      .def("state_dict",
           [](PyOptimizer& o) {
             const OptimizerStateDict dict = o.optimizer->state_dict();
             nb::dict state;
             for (const auto& [number, entries] : dict.state) {
               nb::dict one;
               for (const auto& [name, entry] : entries)
                 if (const Tensor* t = std::get_if<Tensor>(&entry)) one[name.c_str()] = result(*t);
                 else one[name.c_str()] = nb::steal(from_scalar(std::get<Scalar>(entry)));
               state[nb::int_(number)] = one;
             }
             nb::list groups;
             for (const auto& group : dict.param_groups) {
               nb::list numbers;
               for (const int64_t number : group.params) numbers.append(number);
               groups.append(nb::make_tuple(from_numbers(group.options), numbers));
             }
             return nb::make_tuple(state, groups);
           })
      .def("load_state_dict",
           [](PyOptimizer& o, nb::dict state, nb::list groups) {
             OptimizerStateDict dict;
             for (const auto& [number, entries] : state)
               for (const nb::handle pair : entries.attr("items")()) {
                 const nb::object value = pair[1];
                 auto& one = dict.state[nb::cast<int64_t>(number)];
                 const auto name = nb::cast<std::string>(pair[0]);
                 if (is_tensor(value.ptr())) one[name] = tensor_of(value.ptr());
                 else one[name] = nb::cast<Scalar>(value);
               }
             for (const nb::handle group : groups) {
               auto& one = dict.param_groups.emplace_back();
               one.options = to_numbers(group[0]);
               for (const nb::handle n : nb::object(group[1])) one.params.push_back(nb::cast<int64_t>(n));
             }
             o.optimizer->load_state_dict(dict);
           });

  // optimizer None: hooks of all. `find` and `token`: see StepHook.
  m.def(
      "_add_step_pre_hook",
      [](nb::handle optimizer, nb::handle find, nb::handle token, std::string name, bool prepend) {
        auto hook = [h = StepHook{Held::borrow(find.ptr()), Held::borrow(token.ptr())}](
                        Optimizer& o, Optimizer::LossClosure& closure) {
          in_python([&] {
            const nb::object out = h.call(o, closure);
            if (out.is_none()) return;
            if (!PyTuple_Check(out.ptr()) || PyTuple_GET_SIZE(out.ptr()) != 2)
              throw nb::type_error("a step pre-hook returns None or a tuple (args, kwargs)");
            const nb::object args = out[0], kwargs = out[1];
            if (nb::len(args) > 0) closure = closure_of(nb::object(args[0]));
            else if (kwargs.attr("get")("closure").is_none()) closure = nullptr;
            else closure = closure_of(nb::object(kwargs["closure"]));
          });
        };
        HookOptions options{.name = std::move(name), .site = {}, .prepend = prepend};
        auto& hooks = global_optimizer_hooks().step_pre;
        if (optimizer.is_none())
          return hooks.add(HookKind::step_pre, std::move(hook), std::move(options));
        return optimizer_of(optimizer).optimizer->register_step_pre_hook(
            [hook](Optimizer& o, const Optimizer::LossClosure& closure) {
              Optimizer::LossClosure changed = closure;
              hook(o, changed);
              return std::optional(changed);
            },
            std::move(options));
      },
      "optimizer"_a.none(), "find"_a, "token"_a, "name"_a, "prepend"_a);
  m.def(
      "_add_step_post_hook",
      [](nb::handle optimizer, nb::handle find, nb::handle token, std::string name, bool prepend) {
        auto hook = [h = StepHook{Held::borrow(find.ptr()), Held::borrow(token.ptr())}](
                        Optimizer& o) { in_python([&] { h.call(o, nullptr); }); };
        HookOptions options{.name = std::move(name), .site = {}, .prepend = prepend};
        return optimizer.is_none()
                   ? register_optimizer_step_post_hook(hook, std::move(options))
                   : optimizer_of(optimizer).optimizer->register_step_post_hook(
                         hook, std::move(options));
      },
      "optimizer"_a.none(), "find"_a, "token"_a, "name"_a, "prepend"_a);
}

}  // namespace grapnel::python
