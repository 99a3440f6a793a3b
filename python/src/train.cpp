// grapnel._core._train: checkpoints, GradScaler, autocast, and what looks at a whole model.
#include <deque>

#include "grapnel/base/thread_pool.h"
#include "grapnel/nn/summary.h"
#include "grapnel/nn/utils.h"
#include "grapnel/ops/autocast.h"
#include "grapnel/train/checkpoint.h"
#include "grapnel/train/grad_scaler.h"
#include "python/src/archive.h"
#include "python/src/nn_module.h"
#include "python/src/optim.h"

namespace grapnel::python {

namespace {

/// A part whose state Python knows. `find()` gives the object that does, or None.
class PyPart {
 public:
  explicit PyPart(nb::handle find) : find_(Held::borrow(find.ptr())) {}
  void save(io::Archive& out) const {
    in_python([&] { write_dict(out, object().attr("save")()); });
  }
  void load(const io::Archive& in) {
    in_python([&] { object().attr("load")(from_archive(in)); });
  }

 private:
  nb::object object() const {
    nb::object out = nb::handle(find_.get())();
    check(!out.is_none(), "a part of the checkpoint is gone.");
    return out;
  }
  Held find_;
};

/// The object of Python's around it keeps the parts.
struct PyCheckpoint {
  Checkpoint checkpoint;
  std::deque<PyPart> parts;
};

void bind_checkpoint(nb::module_& m) {
  nb::class_<PyCheckpoint>(m, "_Checkpoint")
      .def(nb::init<>())
      .def("add_module", [](PyCheckpoint& c, const std::string& name,
                            nb::handle module) { c.checkpoint.add(name, module_of(module)); })
      .def("add_optimizer",
           [](PyCheckpoint& c, const std::string& name, nb::handle optimizer) {
             c.checkpoint.add(name, *optimizer_of(optimizer).optimizer);
           })
      .def("add_part", [](PyCheckpoint& c, const std::string& name,
                          nb::handle find) { c.checkpoint.add(name, c.parts.emplace_back(find)); })
      .def("save",
           [](PyCheckpoint& c, const std::string& path) {
             const LetGo afterwards;
             const WithoutInterpreter others_run;
             c.checkpoint.save(path);
           })
      .def("load",
           [](PyCheckpoint& c, const std::string& path) {
             const LetGo afterwards;
             const WithoutInterpreter others_run;
             c.checkpoint.load(path);
           })
      .def("resume", [](PyCheckpoint& c, const std::string& path) {
        const LetGo afterwards;
        const WithoutInterpreter others_run;
        return c.checkpoint.resume(path);
      });
}

void bind_grad_scaler(nb::module_& m) {
  nb::class_<GradScaler::Step>(m, "Step", "Whether a step was taken; looks when it is asked.")
      .def("__bool__", [](const GradScaler::Step& step) {
        const WithoutInterpreter others_run;
        return static_cast<bool>(step);
      });
  nb::class_<GradScaler>(m, "_GradScaler")
      .def("__init__",
           [](GradScaler* self, double init_scale, double growth, double backoff, int64_t interval,
              bool enabled) {
             new (self)
                 GradScaler(GradScalerOptions{init_scale, growth, backoff, interval, enabled});
           })
      .def("scale",
           [](const GradScaler& s, const Tensor& loss) {
             return run(work(loss), [&] { return s.scale(loss); });
           })
      .def("unscale_",
           [](GradScaler& s, nb::handle optimizer) {
             const LineScope here;
             s.unscale_(*optimizer_of(optimizer).optimizer);
           })
      .def("step",
           [](GradScaler& s, nb::handle optimizer) {
             const LetGo afterwards;
             optim::Optimizer& o = *optimizer_of(optimizer).optimizer;
             const WithoutInterpreter others_run;
             return s.step(o);
           })
      .def("update", [](GradScaler& s) { s.update(); })
      .def("get_scale", &GradScaler::get_scale)
      .def("save",
           [](const GradScaler& s) {
             io::Archive out;
             s.save(out);
             return from_archive(out);
           })
      .def("load", [](GradScaler& s, nb::handle state) { s.load(to_archive(state)); });
}

void bind_whole_models(nb::module_& m) {
  m.def("_summary", [](nb::handle module) {
    const nn::ModuleSummary all = nn::summary(module_of(module));
    nb::list rows;
    for (const auto& r : all.rows)
      rows.append(nb::make_tuple(r.path, r.layer, r.depth, r.parameters));
    return nb::make_tuple(rows, all.parameters, all.trainable, all.buffers, all.bytes, str(all));
  });
  m.def("_clip_grad_norm_",
        [](const Tensors& parameters, double max_norm, double norm_type, bool error_if_nonfinite) {
          return run(work(parameters), [&] {
            return nn::utils::clip_grad_norm_(parameters.values, max_norm,
                                              {norm_type, error_if_nonfinite});
          });
        });
}

}  // namespace

void bind_train(nb::module_& m) {
  m.def("set_num_threads", set_num_threads, "count"_a, "How many threads compute.");
  m.def("get_num_threads", get_num_threads);
  nb::module_ train = m.def_submodule("_train");
  bind_checkpoint(train);
  bind_grad_scaler(train);
  bind_whole_models(train);
  train.def(
      "default_generator", [] { return default_generator(); },
      "The generator that draws what names none.");
  train.def("_autocast", [] { return dtype_object(Autocast::dtype()); });
  train.def("_set_autocast", [](DTypeArg type) {
    {
      const Autocast checked(type.value);
    }
    this_context.modes.autocast = type.value;
  });
}

}  // namespace grapnel::python
