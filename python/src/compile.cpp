// compile(f): the Python type of compiled functions, and the scope of compiled backward passes.
#include "python/src/compile.h"

#include <thread>

#include "grapnel/compile/backward.h"
#include "grapnel/compile/session.h"
#include "python/src/type_slots.h"

namespace grapnel::python {

using compiler::CompileScope;
using compiler::Session;

namespace {

struct PyCompiled {
  PyObject_HEAD PyObject* dict;
  PyObject* weak_references;
  vectorcallfunc call;
  PyObject* function;
  std::shared_ptr<Session> session;
  std::shared_ptr<compiler::Replays> replays;  ///< null unless asked for
};

PyTypeObject* the_type = nullptr;
PyCompiled* self_of(PyObject* object) { return reinterpret_cast<PyCompiled*>(object); }

// --- calls ---

/// What runs after the call has returned is not recorded by it.
void check_result(PyObject* function, PyObject* result) {
  const char* const kind = PyGen_CheckExact(result)        ? "generator"
                           : PyCoro_CheckExact(result)     ? "coroutine"
                           : PyAsyncGen_CheckExact(result) ? "asynchronous generator"
                                                           : nullptr;
  if (!kind) return;
  PyErr_SetString(PyExc_TypeError,
                  str("compile: '", name_of(function), "' returned a ", kind,
                      ", whose body runs when the call is over. Compile what it calls instead.")
                      .c_str());
  throw_python();
}

PyObject* call(PyObject* object, PyObject* const* arguments, size_t count, PyObject* names) {
  try {
    const LetGo afterwards;
    const auto session = self_of(object)->session;
    const auto replays = self_of(object)->replays;
    const nb::object function = nb::borrow(self_of(object)->function);
    if (replays && !compiler::is_nested())
      return replay(*replays, function, arguments, count, names).release().ptr();
    nb::object result;
    {
      // Whatever runs or compiles the graph, also when the body raises, lets others run.
      const WithoutInterpreter others_run;
      CompileScope scope(session);
      const base::UserCodeScope user;
      {
        const WithInterpreter interpreter;
        // What died in the body is none of its results.
        const LetGo before_the_end;
        result = nb::steal(PyObject_Vectorcall(function.ptr(), arguments, count, names));
        if (!result.is_valid()) throw_python();
        check_result(function.ptr(), result.ptr());
      }
      scope.finish();
    }
    return result.release().ptr();
  } catch (...) {
    set_python_error();
    return nullptr;
  }
}

PyObject* get(PyObject* self, PyObject* instance, PyObject*) {
  return !instance || instance == Py_None ? Py_NewRef(self) : PyMethod_New(self, instance);
}

/// What it does not have itself is that of the function or module behind it.
PyObject* get_attribute(PyObject* self, PyObject* name) {
  PyObject* const own = PyObject_GenericGetAttr(self, name);
  if (own || !PyErr_ExceptionMatches(PyExc_AttributeError)) return own;
  PyErr_Clear();
  return PyObject_GetAttr(self_of(self)->function, name);
}

PyObject* repr(PyObject* self) {
  return PyUnicode_FromFormat("<compiled %R>", self_of(self)->function);
}

}  // namespace

Runner PyGraphCompiler::compile(const Graph& graph, const std::vector<Tensor>& inputs) {
  return in_python([&]() -> Runner {
    const nb::object given = nb::cast(graph);
    const nb::object list = nb::steal(as_tuple(inputs));
    if (!list.is_valid()) throw_python();
    const nb::object answer = nb::steal(
        PyObject_CallFunctionObjArgs(function_.function.get(), given.ptr(), list.ptr(), nullptr));
    if (!answer.is_valid()) throw_python();
    // The graph itself, or its own method: it is run as it was recorded.
    const bool is_method =
        PyMethod_Check(answer.ptr()) && PyMethod_GET_SELF(answer.ptr()) == given.ptr();
    if (answer.is(given) || is_method) return Backend::eager;
    if (Backend backend; nb::try_cast(answer, backend)) return backend;
    if (nb::isinstance<nb::str>(answer)) {
      const std::string name = nb::cast<std::string>(answer);
      for (const Backend b : {Backend::eager, Backend::aot_eager, Backend::fused})
        if (grapnel::name(b) == name) return b;
    }
    if (!PyCallable_Check(answer.ptr()))
      refuse_result("backend", function_.name, answer.ptr(),
                    "it returns 'eager', 'aot_eager' or 'fused', the graph, or a function of the "
                    "inputs.");
    return [f = Callable(answer)](const std::vector<Tensor>& x) {
      return in_python([&]() -> std::vector<Tensor> {
        const nb::object arguments = nb::steal(as_tuple(x));
        const nb::object out =
            nb::steal(arguments.is_valid() ? PyObject_CallObject(f.function.get(), arguments.ptr())
                                           : nullptr);
        if (!out.is_valid()) throw_python();
        return out.is_none() ? std::vector<Tensor>()
                             : list_from(out.ptr(), "compiled graph", f.name,
                                         "it returns a tensor, or a tuple of tensors.");
      });
    };
  });
}

namespace {

// --- life and death ---

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(self_of(self)->dict);
  Py_VISIT(self_of(self)->function);
  const Session* const session = self_of(self)->session.get();
  if (!session || self_of(self)->session.use_count() > (self_of(self)->replays ? 2 : 1)) return 0;
  const auto& compiler = session->options().compiler;
  if (compiler.use_count() == 1)
    Py_VISIT(static_cast<const PyGraphCompiler&>(*compiler).function_if_sole());
  return 0;
}
int clear(PyObject* self) {
  Py_CLEAR(self_of(self)->dict);
  PyObject* const function = self_of(self)->function;
  self_of(self)->function = Py_NewRef(Py_None);  // it may still be called
  Py_DECREF(function);
  return 0;
}
void dealloc(PyObject* object) {
  PyCompiled* const self = self_of(object);
  PyTypeObject* const type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  if (self->weak_references) PyObject_ClearWeakRefs(object);
  Py_CLEAR(self->dict);
  Py_CLEAR(self->function);
  self->session.~shared_ptr();
  self->replays.~shared_ptr();
  type->tp_free(object);
  Py_DECREF(type);
  const LetGo now;
}

PyMemberDef members[] = {
    GRAPNEL_DICT_AND_WEAK_REFERENCES(PyCompiled),
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(PyCompiled, call), READONLY, nullptr},
    {"__wrapped__", T_OBJECT, offsetof(PyCompiled, function), READONLY, nullptr},
    kNoMoreMembers};
PyGetSetDef properties[] = {kDictProperty, kNoMoreProperties};

void make_type() {
  PyType_Slot slots[] = {{Py_tp_doc, const_cast<char*>("What compile() returns: the same function, "
                                                       "with its arithmetic fused and cached.")},
                         {Py_tp_call, slot(PyVectorcall_Call)},
                         {Py_tp_descr_get, slot(get)},
                         {Py_tp_getattro, slot(get_attribute)},
                         {Py_tp_repr, slot(repr)},
                         {Py_tp_dealloc, slot(dealloc)},
                         {Py_tp_traverse, slot(traverse)},
                         {Py_tp_clear, slot(clear)},
                         {Py_tp_members, members},
                         {Py_tp_getset, properties},
                         {0, nullptr}};
  PyType_Spec spec = {"grapnel.Compiled", sizeof(PyCompiled), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                          Py_TPFLAGS_METHOD_DESCRIPTOR | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                      slots};
  the_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  if (!the_type) throw nb::python_error();
}

nb::object make(nb::handle function, const CompileOptions& options) {
  nb::object out = nb::steal(the_type->tp_alloc(the_type, 0));
  if (!out.is_valid()) throw nb::python_error();
  PyCompiled* const self = self_of(out.ptr());
  new (&self->session) std::shared_ptr(std::make_shared<Session>(options));
  new (&self->replays) std::shared_ptr<compiler::Replays>();
  if (options.replay) self->replays = std::make_shared<compiler::Replays>(self->session);
  self->call = call;
  self->function = function.inc_ref().ptr();
  return out;
}

template <class F, class... Extra>
void on_compiled(const char* name, F&& f, const Extra&... extra) {
  nb::cpp_function_def(std::forward<F>(f), nb::scope(reinterpret_cast<PyObject*>(the_type)),
                       nb::name(name), nb::is_method(), extra...);
}

// --- compiled backward passes ---

/// CompiledBackward for Python, which may enter it several times, or drop it when it is entered.
class BackwardScopes {
 public:
  explicit BackwardScopes(const CompileOptions& options)
      : session_(std::make_shared<Session>(options)) {}
  ~BackwardScopes() {
    // A thread that is still inside keeps its scope.
    for (Entered& e : entered_) (void)e.scope.release();
  }
  BackwardScopes(const BackwardScopes&) = delete;
  BackwardScopes& operator=(const BackwardScopes&) = delete;

  void enter() {
    entered_.push_back({std::this_thread::get_id(), std::make_unique<CompiledBackward>(session_)});
  }
  void leave() {
    check(!entered_.empty(), "CompiledBackward: left more often than entered.");
    check(entered_.back().thread == std::this_thread::get_id(),
          "CompiledBackward: left on another thread than entered.");
    entered_.back().scope->end();  // if it throws, the scope goes on
    entered_.pop_back();
  }
  CompileStats stats() const { return session_->stats(); }
  void reset() { session_->reset(); }

 private:
  struct Entered {
    std::thread::id thread;
    std::unique_ptr<CompiledBackward> scope;
  };
  std::shared_ptr<Session> session_;
  std::vector<Entered> entered_;
};

}  // namespace

void bind_compile(nb::module_& m) {
  nb::class_<Reason>(m, "Reason", "Why a graph was compiled, or broken.")
      .def_ro("what", &Reason::what)
      .def_ro("where", &Reason::where, "File, line and function; empty when unknown.")
      .def("__str__", &Reason::str)
      .def("__repr__", [](const Reason& r) { return str("<Reason: ", r.str(), ">"); });
  const auto reasons = [](const std::vector<Reason>& list) {
    nb::list out;
    for (const Reason& r : list) out.append(r);
    return out;
  };
  nb::class_<CompileStats>(m, "CompileStats", "What compiling has done so far.")
      .def_ro("graphs", &CompileStats::graphs, "Graphs that were compiled.")
      .def_ro("hits", &CompileStats::hits, "Graphs that were run from the cache.")
      .def_ro("misses", &CompileStats::misses, "Graphs that were not found in the cache.")
      .def_ro("breaks", &CompileStats::breaks, "Graphs that ran early because a value was read.")
      .def_ro("calls", &CompileStats::calls, "Recorded ops, over all runs.")
      .def_ro("kernels", &CompileStats::kernels, "Fused kernels in the compiled graphs.")
      .def_ro("fused_calls", &CompileStats::fused_calls, "Ops that went into them.")
      .def_ro("bytes_read", &CompileStats::bytes_read, "By fused kernels, over all runs.")
      .def_ro("bytes_written", &CompileStats::bytes_written)
      .def_ro("fallbacks", &CompileStats::fallbacks,
              "Graphs that could not be compiled and run call by call.")
      .def_ro("skipped_hooks", &CompileStats::skipped_hooks,
              "Calls of declared hooks that were not needed.")
      .def_ro("compile_ms", &CompileStats::compile_ms)
      .def_prop_ro("miss_reasons",
                   [reasons](const CompileStats& s) { return reasons(s.miss_reasons); })
      .def_prop_ro("break_reasons",
                   [reasons](const CompileStats& s) { return reasons(s.break_reasons); })
      .def("__str__", &CompileStats::str)
      .def("__repr__", [](const CompileStats& s) { return str("<CompileStats: ", s.str(), ">"); });

  nb::enum_<Backend>(m, "Backend", "How a recorded graph is run. All give the same bits.")
      .value("eager", Backend::eager, "Call by call, as recorded.")
      .value("aot_eager", Backend::aot_eager, "Call by call, after all passes.")
      .value("fused", Backend::fused, "Chains of ops become generated kernels.");
  nb::class_<CompileOptions>(m, "_CompileOptions")
      .def(
          "__init__",
          [](CompileOptions* self, Backend backend, bool fullgraph, bool dynamic, bool replay,
             bool fast, bool error, nb::object compiler, uint64_t identity) {
            std::shared_ptr<GraphCompiler> own;
            if (!compiler.is_none()) own = std::make_shared<PyGraphCompiler>(compiler, identity);
            new (self) CompileOptions{.backend = backend,
                                      .fullgraph = fullgraph,
                                      .dynamic = dynamic,
                                      .replay = replay,
                                      .numerics = fast ? Numerics::fast : Numerics::exact,
                                      .on_failure = error ? OnFailure::error : OnFailure::fall_back,
                                      .compiler = std::move(own)};
          },
          "backend"_a, "fullgraph"_a, "dynamic"_a, "replay"_a, "fast"_a, "error"_a,
          "compiler"_a.none(), "identity"_a);

  m.def("_next_identity", GraphCompiler::next_identity);
  make_type();
  m.attr("Compiled") = nb::handle(reinterpret_cast<PyObject*>(the_type));
  m.def("_compile", make);
  on_compiled(
      "stats", [](nb::handle self) { return self_of(self.ptr())->session->stats(); },
      "What compiling this function has done so far.");
  on_compiled(
      "reset",
      [](nb::handle self) {
        const LetGo afterwards;
        const auto session = self_of(self.ptr())->session;
        const auto replays = self_of(self.ptr())->replays;
        const WithoutInterpreter others_run;
        session->reset();
        if (replays) replays->forget();
      },
      "Forgets the statistics and the graphs compiled for this function.");

  nb::class_<BackwardScopes>(m, "_CompiledBackward")
      .def(nb::init<const CompileOptions&>())
      .def("enter", &BackwardScopes::enter)
      .def("leave", &BackwardScopes::leave)
      .def("stats", &BackwardScopes::stats)
      .def("reset", &BackwardScopes::reset);

  m.def(
      "reset_compile_cache",
      [] {
        const LetGo afterwards;
        const WithoutInterpreter others_run;
        reset_compile_cache();
      },
      "Forgets every compiled graph of the program (not those on disk).");
  m.def("set_replay_audit", set_replay_audit, "on"_a,
        "Whether replayed functions run beside every replay, to be compared.");
  m.def("set_hook_audit", set_hook_audit, "every"_a,
        "Calls declared hooks at every so-many-th time all the same, to compare; 0: never.");
}

}  // namespace grapnel::python
