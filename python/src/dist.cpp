// Several ranks: groups and their collectives, futures, and the wrapper that averages gradients.
#include "grapnel/dist/dist.h"

#include "python/src/callable.h"
#include "python/src/nn_module.h"
#include "python/src/nn_value.h"

namespace grapnel::python {

namespace {

using dist::Future;
using dist::ProcessGroup;

/// A future of any Python object.
struct PyFuture {
  Future<Held> future = Future<Held>::make();
};

Held held_list(const std::vector<Tensor>& tensors) {
  return in_python([&] {
    nb::list out;
    for (const Tensor& t : tensors) out.append(nb::cast(t));
    return Held::steal(out.release().ptr());
  });
}

nb::object object_of(const Held& held) { return nb::borrow(held.get()); }

/// What a comm hook's future must hold: the tensor, alone or in a list as PyTorch's built-in hooks have it.
Tensor tensor_in(const Held& held) {
  return in_python([&] {
    nb::object value = object_of(held);
    if ((PyList_Check(value.ptr()) || PyTuple_Check(value.ptr())) && nb::len(value) == 1)
      value = nb::object(value[0]);
    if (!is_tensor(value.ptr()))
      refuse(PyExc_TypeError, str("the future of a comm hook holds an object of type '",
                                  Py_TYPE(value.ptr())->tp_name, "'; it is to hold a tensor."));
    return Tensor(tensor_of(value.ptr()));
  });
}

/// A comm hook that is a Python callable: hook(state, bucket) -> Future.
struct CommHook : Callable {
  Held state;
  CommHook(nb::handle f, nb::handle s) : Callable(f), state(Held::borrow(s.ptr())) {}
  Future<Tensor> operator()(dist::GradBucket& bucket) const {
    const Future<Held> future = in_python([&] {
      const nb::object out = Callable::operator()(
          Py_NewRef(state.get()), nb::cast(dist::GradBucket(bucket)).release().ptr());
      if (!nb::isinstance<PyFuture>(out))
        refuse_result("comm hook", name, out.ptr(),
                      "it returns a grapnel.dist.Future of the bucket's tensor.");
      return nb::cast<PyFuture&>(out).future;
    });
    return future.then([](const Held& value) { return tensor_in(value); });
  }
};

/// The part of DistributedDataParallel that is not the module's own: Python's wrapper is a module itself.
class DataParallel final : public dist::DataParallelModule {
 public:
  using DataParallelModule::after_forward;
  using DataParallelModule::before_forward;
  using DataParallelModule::DataParallelModule;
};

/// What Python's wrapper holds. It comes and goes with the interpreter's lock; what waits for other ranks gives it away.
struct Wrapper {
  std::shared_ptr<DataParallel> model;
  std::vector<std::shared_ptr<dist::NoSync>> local =
      {};  ///< a scope for each no_sync() that is entered
};

dist::ReduceOp reduction(const std::string& name) {
  using dist::ReduceOp;
  if (name == "sum") return ReduceOp::sum;
  if (name == "min") return ReduceOp::min;
  if (name == "max") return ReduceOp::max;
  if (name == "product") return ReduceOp::product;
  fail("op is 'sum', 'min', 'max' or 'product', got '", name, "'.");
}

/// Calls a method of a group, while others run.
template <class F>
auto without(F&& f) {
  const LetGo afterwards;
  const WithoutInterpreter others_run;
  return f();
}

void bind_futures(nb::module_& m) {
  nb::class_<PyFuture>(m, "Future", "A value that is still on its way.")
      .def(nb::init<>())
      .def("done", [](const PyFuture& f) { return f.future.done(); })
      .def(
          "wait",
          [](const PyFuture& f) { return object_of(without([&] { return f.future.wait(); })); },
          "The value, once it has arrived; raises what was set instead of one.")
      .def("value", [](const PyFuture& f) { return object_of(f.future.value()); })
      .def(
          "set_result",
          [](const PyFuture& f, nb::handle value) {
            const Held held = Held::borrow(value.ptr());
            without([&] { f.future.set_result(held); });
          },
          "result"_a.none())
      .def(
          "set_exception",
          [](const PyFuture& f, nb::handle error) {
            PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
            const auto thrown = std::make_exception_ptr(PythonError());
            without([&] { f.future.set_error(thrown); });
          },
          "exception"_a)
      .def(
          "then",
          [](const PyFuture& f, nb::handle callback) {
            return without([&, call = Callable(callback)] {
              return PyFuture{f.future.then([call](const Future<Held>& done) {
                return in_python([&] {
                  return Held::steal(
                      call(nb::cast(PyFuture{done}).release().ptr()).release().ptr());
                });
              })};
            });
          },
          "callback"_a, "A future of callback(self), called when this one is complete.");

  nb::class_<dist::Work>(m, "Work", "A collective under way.")
      .def(
          "wait", [](const dist::Work& w) { without([&] { w.wait(); }); }, "Until it is done.")
      .def("is_completed", [](const dist::Work& w) { return w.future().done(); })
      .def(
          "result",
          [](const dist::Work& w) {
            const std::vector<Tensor> out = without([&] { return w.wait(); });
            return object_of(held_list(out));
          },
          "The tensors it gives, when it is done.")
      .def(
          "get_future",
          [](const dist::Work& w) {
            return without([&] { return PyFuture{w.future().then(held_list)}; });
          },
          "A future of the list of the tensors it gives.");
}

void bind_groups(nb::module_& m) {
  nb::class_<ProcessGroup>(m, "ProcessGroup", "Ranks that work together.")
      .def("rank", &ProcessGroup::rank)
      .def("size", &ProcessGroup::size)
      .def("name", &ProcessGroup::name)
      .def(
          "__eq__", [](const ProcessGroup& a, const ProcessGroup& b) { return a == b; },
          nb::is_operator())
      .def("__hash__",
           [](const ProcessGroup& g) { return std::hash<const void*>()(&g.communicator()); })
      .def(
          "all_reduce",
          [](const ProcessGroup& g, const Tensor& t, const std::string& op) {
            return without([&] { return g.all_reduce(t, reduction(op)); });
          },
          "tensor"_a, "op"_a = "sum",
          "Replaces the tensor on every rank by the sum over all ranks.")
      .def(
          "broadcast",
          [](const ProcessGroup& g, const Tensor& t, int root) {
            return without([&] { return g.broadcast(t, root); });
          },
          "tensor"_a, "root"_a = 0, "Replaces the tensor by that of the root.")
      .def(
          "all_gather",
          [](const ProcessGroup& g, const Tensor& t) {
            return without([&] { return g.all_gather(t); });
          },
          "tensor"_a, "The tensors of all ranks.")
      .def(
          "reduce_scatter",
          [](const ProcessGroup& g, const Tensor& t, const std::string& op) {
            return without([&] { return g.reduce_scatter(t, reduction(op)); });
          },
          "tensor"_a, "op"_a = "sum", "Rank r gets the sum of all parts r.")
      .def(
          "all_to_all",
          [](const ProcessGroup& g, const Tensor& t) {
            return without([&] { return g.all_to_all(t); });
          },
          "tensor"_a)
      .def("barrier", [](const ProcessGroup& g) { return without([&] { return g.barrier(); }); })
      .def(
          "abort",
          [](const ProcessGroup& g, const std::string& reason) {
            without([&] { g.abort(reason); });
          },
          "reason"_a);
  m.def(
      "_run_threads",
      [](int count, nb::handle f) {
        const Callable call(f);
        without([&] {
          dist::run_threads(count, [&](const ProcessGroup& group) {
            in_python([&] { call(nb::cast(group).release().ptr()); });
          });
        });
      },
      "count"_a, "function"_a);
  m.def("_group_of_this_thread", [] { return dist::group_of_this_thread(); });
  m.def("_init", [] { return without([] { return dist::init(); }); });
  m.def("_launched_by_mpi", dist::launched_by_mpi);

  nb::class_<dist::GradBucket>(m, "GradBucket",
                               "Gradients that travel together, as a comm hook sees them.")
      .def("index", &dist::GradBucket::index, "Its place in the order of launch.")
      .def("is_last", &dist::GradBucket::is_last)
      .def("buffer", &dist::GradBucket::buffer,
           "All gradients of the bucket back to back, this rank's own.")
      .def("gradients",
           [](const dist::GradBucket& b) { return object_of(held_list(b.gradients())); })
      .def("parameters",
           [](const dist::GradBucket& b) { return object_of(held_list(b.parameters())); })
      .def("group", &dist::GradBucket::group, "The bucket's own channel of the wrapper's group.");
}

}  // namespace

void bind_dist(nb::module_& parent) {
  nb::module_ m = parent.def_submodule("_dist");
  bind_futures(m);
  bind_groups(m);
  nb::class_<Wrapper>(m, "_DataParallel")
      .def("__init__",
           [](Wrapper* self, nb::handle module, const ProcessGroup& group,
              const std::optional<int64_t>& bucket_bytes, bool find_unused_parameters,
              bool static_graph, bool gradient_as_bucket_view, bool broadcast_buffers) {
             const std::shared_ptr<nn::Module> inner = share(module);
             const dist::DataParallelOptions options{
                 .bucket_bytes = bucket_bytes,
                 .find_unused_parameters = find_unused_parameters,
                 .static_graph = static_graph,
                 .gradient_as_bucket_view = gradient_as_bucket_view,
                 .broadcast_buffers = broadcast_buffers};
             new (self) Wrapper{
                 without([&] { return std::make_shared<DataParallel>(inner, group, options); })};
           })
      .def("before_forward", [](Wrapper& w) { without([&] { w.model->before_forward(); }); })
      .def(
          "after_forward",
          [](Wrapper& w, nb::handle result) {
            nn::Value value = to_value(result.ptr());
            w.model->after_forward(value);
            return from_value(value);
          },
          "result"_a.none())
      .def(
          "register_comm_hook",
          [](Wrapper& w, nb::handle state, nb::handle hook) {
            CommHook call(hook, state);
            dist::CommHookOptions options{.name = call.name};
            w.model->register_comm_hook(
                [call = std::move(call)](dist::GradBucket& bucket) { return call(bucket); },
                std::move(options));
          },
          "state"_a.none(), "hook"_a)
      .def("register_builtin_comm_hook",
           [](Wrapper& w, const std::string& name) { w.model->register_builtin_comm_hook(name); })
      .def("enter_no_sync",
           [](Wrapper& w) { w.local.push_back(std::make_shared<dist::NoSync>(*w.model)); })
      .def("leave_no_sync", [](Wrapper& w) { w.local.pop_back(); })
      .def("bucket_layout", [](const Wrapper& w) {
        nb::list out;
        for (const auto& bucket : w.model->bucket_layout()) {
          nb::list members;
          for (const size_t i : bucket) members.append(i);
          out.append(members);
        }
        return out;
      });
}

}  // namespace grapnel::python
