/// Fault sweeps: one failure at every place of a training step. What is left is the state before
/// the step, or one that eager mode goes through, never a mixture; and training goes on from there
/// with the bits of a run that never failed.
///
/// What eager mode goes through is known from failing between any two calls of Backend::eager,
/// which runs the calls of a step one by one in eager's order. Plain eager mode itself is held to
/// the same states, and opaque calls, which are at the same places in all modes, have to leave
/// exactly what they leave there.
///
/// Of the CNN every fifth place is tried, and all with GRAPNEL_FAULT_SWEEP=all. See
/// docs/notes/027-a-step-that-fails.md.
#include "tests/compile/failing.h"

using namespace grapnel;
using namespace grapnel::failing;

namespace {

constexpr int kSteps = 3;

/// A model in training.
struct Model {
  std::vector<Tensor> params, buffers;
  std::shared_ptr<optim::Adam> opt;
  std::function<void()> step;
};

Snapshot look(const Model& m) { return failing::look(m.buffers, m.params, *m.opt); }

void put_back(Model& m, const Snapshot& s) {
  NoGradGuard no_grad;
  size_t i = 0;
  for (const Tensor& b : m.buffers) b.copy_(s.values[i++]);
  for (size_t k = 0; k < m.params.size(); ++k) {
    auto& state = m.opt->state(m.params[k]);
    state.exp_avg = copy_of(s.values[i++]);
    state.exp_avg_sq = copy_of(s.values[i++]);
    state.step = s.counts[k];
    m.params[k].copy_(s.values[i++]);
    m.params[k].set_grad(copy_of(s.grads[k]));
  }
  default_generator().set_state(s.generator);
}

/// What is trained, and how.
struct Kind {
  bool cnn = false;
  bool in_backward = false;  ///< parameters are stepped there
  bool opaque = false;       ///< has opaque hooks and calls everywhere
};

Model make(const Kind& kind) {
  manual_seed(11);
  nn::Sequential net =
      kind.cnn ? nn::Sequential(nn::Conv2d(nn::Conv2dOptions(2, 6, 3).padding(1)),
                                nn::BatchNorm2d(6), nn::ReLU(),
                                nn::Conv2d(nn::Conv2dOptions(6, 4, 3)), nn::BatchNorm2d(4),
                                nn::Dropout(0.3), nn::Flatten(), nn::Linear(4 * 6 * 6, 5))
               : nn::Sequential(nn::Linear(12, 20), nn::Tanh(), nn::Linear(20, 20), nn::ReLU(),
                                nn::Linear(20, 5));
  const Tensor x = kind.cnn ? randn({4, 2, 8, 8}) : randn({30, 12}),
               target = arange(x.size(0)).remainder(5);
  Model m;
  m.params = net->parameters();
  // Of each norm: the count moves before mean and variance.
  const std::vector<Tensor> buffers = net->buffers();
  for (size_t i = 0; i < buffers.size(); i += 3)
    m.buffers.insert(m.buffers.end(), {buffers[i + 2], buffers[i], buffers[i + 1]});
  m.opt = std::make_shared<optim::Adam>(m.params, 0.01);
  if (kind.opaque) {
    for (const auto& layer : net->children())
      layer->register_forward_hook([](nn::Module&, const nn::Args&, const Tensor& out) {
        invoke(OpaqueCall::place(), out.detach());
        out.register_hook(OpaqueCall::place());
      });
    for (const Tensor& p : m.params) {
      p.register_hook(OpaqueCall::place());
      p.register_post_accumulate_grad_hook(OpaqueCall::place());
    }
  }
  const auto stepping =
      kind.in_backward ? std::make_shared<optim::StepInBackward>(*m.opt) : nullptr;
  m.step = [net, x, target, opt = m.opt, stepping, kind]() mutable {
    if (!stepping) opt->zero_grad();
    const Tensor loss = cross_entropy(net(x), target);
    if (kind.opaque) invoke(OpaqueCall::place(), loss.detach());
    loss.backward();
    if (!stepping) opt->step();
    if (kind.opaque) invoke(OpaqueCall::place(), loss.detach());
  };
  return m;
}

/// All failures of one step of one kind of model.
class Sweep {
 public:
  Sweep(Kind kind, int step) : kind_(kind), step_(step) {
    Model model = make(kind_);
    states_.push_back(look(model));
    for (int i = 0; i < kSteps; ++i) {
      model.step();
      states_.push_back(look(model));
    }
    find_path();
  }

  /// Every `stride`-th place in plain eager mode; how many there are.
  template <class Fault>
  int64_t eager(int64_t stride) {
    size_t at_least = 0;
    return places<Fault>({}, stride, [&](int64_t, const Snapshot& left) {
      // The optimiser counts all parameters before it moves them together.
      if (!kind_.in_backward && left.counts != before().counts)
        check_between(before(), left, after(), {.halves = 2, .counts_first = true});
      else
        check_on_path(left, at_least);
    });
  }

  /// The same compiled. Allocations and items are in the order in which the graph runs.
  template <class Fault>
  int64_t compiled(const CompileOptions& options, int64_t stride) {
    size_t at_least = 0;
    return places<Fault>(options, stride, [&](int64_t, const Snapshot& left) {
      check_on_path(left, at_least);
    });
  }

  /// Places in the recording: nothing has run.
  int64_t recording(const CompileOptions& options, int64_t stride) {
    return places<TapeOp>(options, stride,
                          [&](int64_t, const Snapshot& left) { CHECK(same(left, before())); });
  }

  /// Opaque calls: they leave what they leave in eager mode.
  int64_t opaque_calls(const CompileOptions& options) {
    if (opaque_.empty())
      places<OpaqueCall>({}, 1, [&](int64_t, const Snapshot& left) { opaque_.push_back(left); });
    const int64_t count =
        places<OpaqueCall>(options, 1, [&](int64_t at, const Snapshot& left) {
          CHECK(same(left, opaque_.at(static_cast<size_t>(at))));
        });
    CHECK(count == static_cast<int64_t>(opaque_.size()));
    return count;
  }

 private:
  const Snapshot& before() const { return states_[static_cast<size_t>(step_)]; }
  const Snapshot& after() const { return states_[static_cast<size_t>(step_) + 1]; }

  void find_path() {
    reset_compile_cache();
    places<Item>(CompileOptions{.backend = Backend::eager}, 1,
                 [&](int64_t, const Snapshot& left) {
                   // The update of one parameter is three calls that write.
                   check_between(before(), left, after(),
                                 {.in_order = !kind_.in_backward, .halves = 1});
                   if (path_.empty() || !same(path_.back(), left)) path_.push_back(left);
                 });
    REQUIRE(path_.size() > 1);
    CHECK(same(path_.front(), before()));
    CHECK(same(path_.back(), after()));
  }

  /// That `left` is a state of the path, not before the one that an earlier failure has left.
  void check_on_path(const Snapshot& left, size_t& at_least) const {
    size_t i = at_least;
    while (i < path_.size() && !same(path_[i], left)) ++i;
    CHECK(i < path_.size());
    if (i < path_.size()) at_least = i;
  }

  /// Calls check(at, what is left) for failures at 0, stride, ...; how many failed. Afterwards, the
  /// training goes on.
  template <class Fault, class Check>
  int64_t places(const std::optional<CompileOptions>& options, int64_t stride, Check check) {
    int64_t failures = 0;
    for (int64_t at = 0;; at += stride) {
      CAPTURE(at);
      Model model = make(kind_);
      default_generator().set_state(states_[0].generator);
      const std::function<void()> step =
          options ? std::function<void()>(compile(model.step, *options)) : model.step;
      bool failed = false;
      for (int i = 0; i < kSteps; ++i) {
        if (i == step_) {
          try {
            const Fault fault(at);
            step();
          } catch (const std::exception&) {
            failed = true;
          }
          if (failed) {
            const Snapshot left = look(model);
            check(at, left);
            // A step that has not happened is simply taken again; it clears gradients by itself.
            const bool clean = kind_.in_backward ? same(left, before())
                                                 : same_but_grads(left, before());
            if (!clean) put_back(model, before());
            step();
          }
        } else {
          step();
        }
        CHECK(same(look(model), states_[static_cast<size_t>(i) + 1]));
      }
      if (!failed) return failures;
      ++failures;
    }
  }

  const Kind kind_;
  const int step_;
  std::vector<Snapshot> states_;  ///< of a run that never fails, before each step
  std::vector<Snapshot> path_;    ///< what eager mode goes through in the step that fails
  std::vector<Snapshot> opaque_;  ///< what opaque calls that fail leave in eager mode
};

void sweep_model(Kind kind, int64_t few) {
  const int64_t stride = sweeps_all() ? 1 : few;
  // In the first step the optimiser makes its averages.
  for (int step = stride == 1 ? 0 : 1; step < 2; ++step) {
    CAPTURE(step);
    Sweep sweep(kind, step);
    kind.opaque = true;
    Sweep with_opaque(kind, step);
    kind.opaque = false;
    std::string counts = grapnel::str("step ", step, ", no graph: ");
    const auto add = [&](int64_t n, const char* what) {
      counts += grapnel::str(counts.ends_with(' ') ? "" : ", ", n, " ", what);
    };
    add(sweep.eager<base::AllocationFault>(stride), "allocations");
    add(sweep.eager<TapeOp>(stride), "ops and nodes");
    on_each_backend([&](CompileOptions options) {
      counts += grapnel::str("; ", name(options.backend), ": ");
      add(sweep.compiled<base::AllocationFault>(options, stride), "allocations");
      add(sweep.compiled<Item>(options, stride), "items");
      add(sweep.recording(options, stride), "while recording");
      add(with_opaque.opaque_calls(options), "opaque calls");
    });
    if (sweeps_all()) MESSAGE(counts);
  }
}

}  // namespace

TEST_CASE("an MLP with Adam survives a failure at any place of a step") { sweep_model({}, 1); }
TEST_CASE("an MLP that steps in backward survives a failure at any place of a step") {
  sweep_model({.in_backward = true}, 1);
}
TEST_CASE("a CNN with batch norm and dropout survives a failure at any place of a step") {
  sweep_model({.cnn = true}, 5);
}
