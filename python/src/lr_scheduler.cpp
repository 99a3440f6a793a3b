// Schedules of learning rates. Their objects in Python keep the optimiser.
#include "grapnel/optim/lr_scheduler.h"

#include "python/src/optim.h"

namespace grapnel::python {

using namespace optim;

namespace {

nb::object from_state(const LRScheduler::State& state) {
  nb::dict out;
  for (const auto& [name, value] : state) out[name.c_str()] = nb::steal(from_scalar(value));
  return out;
}
LRScheduler::State to_state(nb::handle dict) {
  LRScheduler::State out;
  for (const nb::handle pair : dict.attr("items")())
    out[nb::cast<std::string>(pair[0])] = nb::cast<Scalar>(pair[1]);
  return out;
}

struct PyScheduler {
  std::shared_ptr<LRScheduler> scheduler;
};

std::shared_ptr<LRScheduler> make(std::string_view name, Optimizer& o,
                                  const std::vector<double>& n, std::vector<int64_t> milestones,
                                  std::vector<std::shared_ptr<LRScheduler>> others) {
  const auto whole = [&](size_t i) { return static_cast<int64_t>(n.at(i)); };
  if (name == "StepLR") return std::make_shared<StepLR>(o, whole(0), n.at(1));
  if (name == "MultiStepLR") return std::make_shared<MultiStepLR>(o, std::move(milestones), n.at(0));
  if (name == "ExponentialLR") return std::make_shared<ExponentialLR>(o, n.at(0));
  if (name == "LinearLR") return std::make_shared<LinearLR>(o, n.at(0), n.at(1), whole(2));
  if (name == "ConstantLR") return std::make_shared<ConstantLR>(o, n.at(0), whole(1));
  if (name == "CosineAnnealingLR") return std::make_shared<CosineAnnealingLR>(o, whole(0), n.at(1));
  if (name == "OneCycleLR")
    return std::make_shared<OneCycleLR>(
        o, n.at(0), whole(1),
        OneCycleOptions{n.at(2), n.at(3) != 0, n.at(4) != 0, n.at(5), n.at(6), n.at(7), n.at(8)});
  if (name == "SequentialLR")
    return std::make_shared<SequentialLR>(o, std::move(others), std::move(milestones));
  fail("there is no schedule '", name, "'.");
}

}  // namespace

void bind_lr_scheduler(nb::module_& m) {
  nb::class_<PyScheduler>(m, "_Scheduler")
      .def("__init__",
           [](PyScheduler* self, std::string_view name, PyOptimizer& optimizer, nb::list numbers,
              const Ints& milestones, nb::list others) {
             std::vector<double> n;
             for (const nb::handle number : numbers) n.push_back(nb::cast<double>(number));
             std::vector<std::shared_ptr<LRScheduler>> list;
             for (const nb::handle other : others)
               list.push_back(nb::cast<PyScheduler&>(other).scheduler);
             new (self) PyScheduler{
                 make(name, *optimizer.optimizer, n, IntArrayRef(milestones).vec(), std::move(list))};
           },
           "name"_a, "optimizer"_a, "numbers"_a, "milestones"_a = nb::make_tuple(),
           "others"_a = nb::list())
      .def("step", [](PyScheduler& s) { s.scheduler->step(); })
      .def("last_epoch", [](PyScheduler& s) { return s.scheduler->last_epoch(); })
      .def("get_last_lr",
           [](PyScheduler& s) {
             nb::list out;
             for (const double lr : s.scheduler->get_last_lr()) out.append(lr);
             return out;
           })
      .def("state_dict", [](PyScheduler& s) { return from_state(s.scheduler->state_dict()); })
      .def("load_state_dict",
           [](PyScheduler& s, nb::handle state) { s.scheduler->load_state_dict(to_state(state)); });

  nb::class_<ReduceLROnPlateau>(m, "_Plateau")
      .def("__init__",
           [](ReduceLROnPlateau* self, PyOptimizer& optimizer, bool max, double factor,
              int64_t patience, double threshold, bool absolute, int64_t cooldown, double min_lr,
              double eps) {
             new (self) ReduceLROnPlateau(
                 *optimizer.optimizer,
                 PlateauOptions{max ? PlateauMode::max : PlateauMode::min, factor, patience,
                                threshold, absolute ? ThresholdMode::abs : ThresholdMode::rel,
                                cooldown, min_lr, eps});
           })
      .def("step", [](ReduceLROnPlateau& s, double metric) { s.step(metric); })
      .def("last_epoch", &ReduceLROnPlateau::last_epoch)
      .def("state_dict", [](const ReduceLROnPlateau& s) { return from_state(s.state_dict()); })
      .def("load_state_dict", [](ReduceLROnPlateau& s, nb::handle state) {
        s.load_state_dict(to_state(state));
      });
}

}  // namespace grapnel::python
