// The hooks of grapnel/hooks that look at gradients: statistics, logs, guards, norms per example.
#include "grapnel/hooks/logger.h"
#include "grapnel/hooks/nan_guard.h"
#include "grapnel/hooks/per_sample.h"
#include "grapnel/hooks/statistics.h"
#include "grapnel/optim/in_backward.h"
#include "python/src/archive.h"
#include "python/src/nn_module.h"
#include "python/src/optim.h"
#include "python/src/tool.h"

namespace grapnel::python {

namespace {

template <class T>
nb::object list_of(const std::vector<T>& values) {
  nb::list out;
  for (const T& value : values) out.append(value);
  return out;
}

// --- statistics ---

nb::object rows_of(const hooks::Statistics& statistics) {
  nb::list out;
  for (const auto& r : statistics.report())
    out.append(nb::make_tuple(r.name, r.calls, r.elements, r.mean, r.deviation, r.min, r.max,
                              r.norm, list_of(r.histogram)));
  return out;
}

void bind_statistics(nb::module_& m) {
  using Statistics = Tool<hooks::Statistics>;
  nb::class_<Statistics> type(m, "_Statistics");
  bind_removal(type);
  type.def("__init__",
           [](Statistics* self, int64_t bins, double low, double high) {
             new (self) Statistics("Statistics", hooks::StatisticsOptions{bins, low, high});
           })
      .def("attach", [](Statistics& s, const std::string& name,
                        const Tensor& t) { return s->attach(name, t); })
      .def("attach_module", [](Statistics& s, nb::handle module) { s->attach(module_of(module)); })
      .def("set_active", [](Statistics& s, bool active) { s->set_active(active); })
      .def("report", [](Statistics& s) { return rows_of(*s.operator->()); })
      .def("reset", [](Statistics& s) { s->reset(); })
      .def("save",
           [](Statistics& s) {
             io::Archive out;
             s->save(out);
             return from_archive(out);
           })
      .def("load", [](Statistics& s, nb::handle state) { s->load(to_archive(state)); });
}

// --- logs ---

/// A writer that is written in Python. `find()` gives it, or None.
class PyLogWriter final : public hooks::LogWriter {
 public:
  explicit PyLogWriter(nb::handle find) : find_(Held::borrow(find.ptr())) {}
  void scalar(const std::string& tag, int64_t step, double value) override {
    call("scalar", tag, step, value);
  }
  void histogram(const std::string& tag, int64_t step,
                 const hooks::LoggedHistogram& values) override {
    call("histogram", tag, step, values);
  }
  void flush() override { call("flush"); }

 private:
  template <class... Args>
  void call(const char* method, const Args&... args) {
    in_python([&] {
      const nb::object writer = nb::handle(find_.get())();
      if (!writer.is_none()) writer.attr(method)(args...);
    });
  }
  Held find_;
};

/// The object of Python's around it keeps the writer.
struct Logger {
  std::unique_ptr<PyLogWriter> bridge;
  hooks::GradientLogger logger;
  Logger(nn::Module& module, hooks::LogWriter* writer, std::unique_ptr<PyLogWriter> own,
         const hooks::GradientLoggerOptions& options)
      : bridge(std::move(own)), logger(module, bridge ? *bridge : *writer, options) {}
};

void bind_writers(nb::module_& m) {
  using hooks::LoggedHistogram, hooks::LogWriter;
  nb::class_<LoggedHistogram>(m, "LoggedHistogram",
                              "Counts between limits: counts[i] values are at most limits[i] and "
                              "above the limit before.")
      .def(
          "__init__",
          [](LoggedHistogram* self, double min, double max, double count, double sum,
             double squares, nb::list limits, nb::list counts) {
            new (self) LoggedHistogram{min, max, count, sum, squares, {}, {}};
            for (const nb::handle x : limits) self->limits.push_back(nb::cast<double>(x));
            for (const nb::handle x : counts) self->counts.push_back(nb::cast<double>(x));
          },
          "min"_a, "max"_a, "count"_a, "sum"_a, "sum_squares"_a, "limits"_a, "counts"_a)
      .def_ro("min", &LoggedHistogram::min)
      .def_ro("max", &LoggedHistogram::max)
      .def_ro("count", &LoggedHistogram::count)
      .def_ro("sum", &LoggedHistogram::sum)
      .def_ro("sum_squares", &LoggedHistogram::sum_squares)
      .def_prop_ro("limits", [](const LoggedHistogram& h) { return list_of(h.limits); })
      .def_prop_ro("counts", [](const LoggedHistogram& h) { return list_of(h.counts); });
  nb::class_<LogWriter>(m, "LogWriter", "Where logged values go.")
      .def("scalar", &LogWriter::scalar, "tag"_a, "step"_a, "value"_a)
      .def("histogram", &LogWriter::histogram, "tag"_a, "step"_a, "values"_a)
      .def("flush", &LogWriter::flush);
  nb::class_<hooks::JsonLinesWriter, LogWriter>(
      m, "JsonLinesWriter",
      "One object per line: {\"step\":10,\"tag\":\"fc.weight/norm\",\"value\":0.5}. Appends to a "
      "file that exists.")
      .def(
          "__init__",
          [](hooks::JsonLinesWriter* self, nb::handle path) {
            new (self) hooks::JsonLinesWriter(path_of(path));
          },
          "path"_a);
  nb::class_<hooks::TensorBoardWriter, LogWriter>(
      m, "TensorBoardWriter",
      "An event file in `folder`, as TensorBoard reads it: tensorboard --logdir folder.")
      .def(
          "__init__",
          [](hooks::TensorBoardWriter* self, nb::handle folder) {
            new (self) hooks::TensorBoardWriter(path_of(folder));
          },
          "folder"_a)
      .def_prop_ro("path", [](const hooks::TensorBoardWriter& w) { return w.path().string(); });
}

void bind_logger(nb::module_& m) {
  using GradientLogger = Tool<Logger>;
  nb::class_<GradientLogger> type(m, "_GradientLogger");
  bind_removal(type);
  type.def(
          "__init__",
          [](GradientLogger* self, nb::handle module, hooks::LogWriter* writer, nb::handle find,
             int64_t every, bool all_steps, int64_t bins, double low, double high) {
            auto own = writer ? nullptr : std::make_unique<PyLogWriter>(find);
            new (self)
                GradientLogger("GradientLogger", module_of(module), writer, std::move(own),
                               hooks::GradientLoggerOptions{every, all_steps, {bins, low, high}});
          },
          "module"_a, "writer"_a.none(), "find"_a.none(), "every"_a, "all_steps"_a, "bins"_a,
          "low"_a, "high"_a)
      .def("step", [](GradientLogger& l) { l->logger.step(); })
      .def("steps", [](GradientLogger& l) { return l->logger.steps(); })
      .def("save",
           [](GradientLogger& l) {
             io::Archive out;
             l->logger.save(out);
             return from_archive(out);
           })
      .def("load", [](GradientLogger& l, nb::handle state) { l->logger.load(to_archive(state)); });
}

// --- guards ---

void bind_guards(nb::module_& m) {
  using NanGuard = Tool<hooks::NanGuard>;
  nb::class_<NanGuard> guard(m, "_NanGuard");
  bind_removal(guard);
  guard
      .def("__init__",
           [](NanGuard* self, nb::handle module, const std::string& rank, bool gradients) {
             new (self)
                 NanGuard("NanGuard", module_of(module), hooks::NanGuardOptions{rank, gradients});
           })
      .def("check",
           [](NanGuard& g) {
             const WithoutInterpreter others_run;
             g->check();
           })
      .def("find", [](NanGuard& g) -> nb::object {
        std::optional<hooks::NanGuard::Report> report;
        {
          const WithoutInterpreter others_run;
          report = g->find();
        }
        if (!report) return nb::none();
        return nb::make_tuple(report->phase, report->op, report->where, report->layer);
      });

  using Norms = Tool<hooks::PerSampleNorms>;
  nb::class_<Norms> norms(m, "_PerSampleNorms");
  bind_removal(norms);
  norms
      .def("__init__",
           [](Norms* self, nb::handle module, bool mean) {
             new (self) Norms("PerSampleNorms", *share(module), hooks::PerSampleNormsOptions{mean});
           })
      .def("take", [](Norms& n) { return run(false, [&] { return n->take(); }); });

  using InBackward = Tool<optim::StepInBackward>;
  nb::class_<InBackward> stepping(m, "_StepInBackward");
  bind_removal(stepping);
  stepping.def(
      "__init__",
      [](InBackward* self, nb::handle optimizer, int64_t accumulate,
         std::optional<double> clip_value, std::optional<double> clip_norm) {
        new (self) InBackward("StepInBackward", *optimizer_of(optimizer).optimizer,
                              optim::StepInBackwardOptions{accumulate, clip_value, clip_norm});
      },
      "optimizer"_a, "accumulate"_a, "clip_value"_a.none(), "clip_norm"_a.none());
}

}  // namespace

void bind_hook_tools(nb::module_& m) {
  bind_statistics(m);
  bind_writers(m);
  bind_logger(m);
  bind_guards(m);
}

}  // namespace grapnel::python
