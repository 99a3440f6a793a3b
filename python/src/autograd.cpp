// Backward passes, the scopes around them, and functions that are part of them.
#include "grapnel/autograd/anomaly.h"
#include "grapnel/autograd/engine.h"
#include "grapnel/autograd/grad_mode.h"
#include "grapnel/autograd/gradcheck.h"
#include "grapnel/autograd/recompute.h"
#include "python/src/bind.h"
#include "python/src/pass_line.h"

namespace grapnel::python {

namespace {

/// One gradient for each tensor; None stands for 1, which only a scalar may leave out.
variable_list seeds_of(nb::handle seeds, size_t count) {
  variable_list out;
  if (seeds.is_none()) return out;
  const auto add = [&](nb::handle seed) {
    if (!seed.is_none() && !is_tensor(seed.ptr()))
      throw nb::type_error(str("a gradient to start from is a tensor or None, got '",
                               Py_TYPE(seed.ptr())->tp_name, "'")
                               .c_str());
    out.push_back(seed.is_none() ? Tensor() : tensor_of(seed.ptr()));
  };
  if (is_tensor(seeds.ptr())) add(seeds);
  else
    for (const nb::handle seed : nb::cast<nb::sequence>(seeds)) add(seed);
  if (out.size() != count)
    throw nb::value_error(str("got ", out.size(), " gradients for ", count, " tensors").c_str());
  return out;
}

variable_list tensors_of(nb::handle tensors, const char* what) {
  if (is_tensor(tensors.ptr())) return {tensor_of(tensors.ptr())};
  Tensors out;
  const nb::object list = nb::steal(PySequence_Tuple(tensors.ptr()));
  if (!list.is_valid()) throw nb::python_error();
  if (!nb::detail::tensors_from(list.ptr(), out.values))
    throw nb::type_error(str(what, ": expected a tensor, or a list of tensors").c_str());
  return std::move(out.values);
}

/// `f` takes a tuple of tensors and returns one.
auto function_of_tuples(nb::handle f, const char* what) {
  return [kept = Held::borrow(f.ptr()), what](const variable_list& in) -> variable_list {
    return in_python([&] {
      const nb::object list = result(in);
      const nb::object out = nb::steal(PyObject_CallOneArg(kept.get(), list.ptr()));
      if (!out.is_valid()) throw_python();
      return tensors_of(out, what);
    });
  };
}

}  // namespace

void bind_autograd(nb::module_& m) {
  on_tensor(
      "backward",
      [](const Tensor& t, const MaybeTensor& gradient, std::optional<bool> retain_graph,
         bool create_graph, nb::handle inputs) {
        const LetGo afterwards;
        std::optional<variable_list> wanted;
        if (!inputs.is_none()) wanted = tensors_of(inputs, "backward(inputs=)");
        const PassLine here;
        const WithoutInterpreter others_run;
        if (wanted) t.backward(gradient.tensor, retain_graph, create_graph, *wanted);
        else t.backward(gradient.tensor, retain_graph, create_graph);
      },
      "gradient"_a = nb::none(), "retain_graph"_a = nb::none(), "create_graph"_a = false,
      "inputs"_a = nb::none(),
      "Adds the gradient of this tensor to the grad of the leaves that it was computed from.");
  on_tensor(
      "retain_grad", [](const Tensor& t) { t.retain_grad(); },
      "Keeps the gradient of a non-leaf in grad.");
  on_tensor(
      "requires_grad_",
      [](const Tensor& t, bool on) {
        t.set_requires_grad(on);
        return t;
      },
      "requires_grad"_a = true, "Says whether a gradient is wanted; only for leaves.");
  on_tensor(
      "is_inference", [](const Tensor& t) { return t.is_inference(); },
      "Whether it was made in inference mode.");

  m.def(
      "_backward",
      [](nb::handle tensors, nb::handle seeds, std::optional<bool> retain_graph, bool create_graph,
         nb::handle inputs) {
        const LetGo afterwards;
        const variable_list roots = tensors_of(tensors, "backward");
        const variable_list grads = seeds_of(seeds, roots.size());
        const variable_list wanted =
            inputs.is_none() ? variable_list() : tensors_of(inputs, "backward(inputs=)");
        const PassLine here;
        const WithoutInterpreter others_run;
        autograd::backward(roots, grads, retain_graph, create_graph, wanted);
      },
      "tensors"_a, "grad_tensors"_a.none(), "retain_graph"_a.none(), "create_graph"_a,
      "inputs"_a.none());
  m.def(
      "_grad",
      [](nb::handle outputs, nb::handle inputs, nb::handle seeds, std::optional<bool> retain_graph,
         bool create_graph, bool allow_unused) {
        const LetGo afterwards;
        const variable_list roots = tensors_of(outputs, "grad"),
                            wanted = tensors_of(inputs, "grad");
        const variable_list grads = seeds_of(seeds, roots.size());
        variable_list out;
        {
          const PassLine here;
          const WithoutInterpreter others_run;
          out = autograd::grad(roots, wanted, grads, retain_graph, create_graph, allow_unused);
        }
        return result(out);
      },
      "outputs"_a, "inputs"_a, "grad_outputs"_a.none(), "retain_graph"_a.none(), "create_graph"_a,
      "allow_unused"_a);
  m.def("_queue_callback", [](nb::object f) {
    queue_callback([kept = Held::borrow(f.ptr())] {
      in_python([&] {
        PyObject* const out = PyObject_CallNoArgs(kept.get());
        if (!out) throw_python();
        Py_DECREF(out);
      });
    });
  });

  m.def(
      "is_grad_enabled", [] { return GradMode::is_enabled(); },
      "Whether operations are recorded for backward on this thread.");
  m.def("_set_grad_enabled", [](bool on) { GradMode::set_enabled(on); });
  m.def(
      "is_inference_mode_enabled", [] { return InferenceMode::is_enabled(); },
      "Whether new tensors can never be recorded.");
  m.def("_set_inference_mode", [](bool on) { InferenceMode::set_enabled(on); });
  m.def("is_anomaly_enabled", [] { return AnomalyMode::is_enabled(); });
  m.def("is_anomaly_check_nan_enabled", [] { return AnomalyMode::should_check_nan(); });
  m.def(
      "set_anomaly_enabled",
      [](bool on, bool check_nan) { AnomalyMode::set_enabled(on, check_nan); }, "mode"_a,
      "check_nan"_a = true);
  nb::class_<DetectAnomalyGuard>(m, "_DetectAnomaly").def(nb::init<bool>());

  m.def("_gradcheck", [](nb::object f, const Tensors& inputs, double eps, double atol, double rtol,
                         bool raises, bool second) {
    const LetGo afterwards;
    const auto fn = function_of_tuples(f, "gradcheck");
    const autograd::GradcheckOptions options{
        .eps = eps, .atol = atol, .rtol = rtol, .raise_exception = raises};
    const PassLine here;
    const WithoutInterpreter others_run;
    return second ? autograd::gradgradcheck(fn, inputs.values, {}, options)
                  : autograd::gradcheck(fn, inputs.values, options);
  });
  m.def("_checkpoint", [](nb::object f, const Tensors& inputs, bool hooks_again) {
    const LetGo afterwards;
    const auto fn = function_of_tuples(f, "checkpoint");
    variable_list out;
    {
      const PassLine here;
      const WithoutInterpreter others_run;
      out = autograd::checkpoint(fn, inputs.values, {.hooks_again = hooks_again});
    }
    return result(out);
  });
}

}  // namespace grapnel::python
