/// Fault sweeps: one failure at every place of a training step. Whatever fails, parameters and what
/// the optimiser remembers about them are as after the step up to some place, and as before it
/// behind, in the order in which they change; and training goes on with the bits of a run that
/// never failed.
///
/// GRAPNEL_FAULT_SWEEP=all tries every place; otherwise it is a few of them.
#include "grapnel/base/allocation_fault.h"
#include "grapnel/compile/observe.h"
#include "tests/compile/backends.h"

using namespace grapnel;

namespace {

/// A model in training. `places` are told in the order in which a step changes them.
struct Model {
  std::vector<Tensor> params, buffers;
  std::shared_ptr<optim::Adam> opt;
  std::function<void()> step;
  bool in_backward = false;  ///< parameters change in an order of their own
  bool fused = false;        ///< an update is one kernel
};

struct Snapshot {
  std::vector<Tensor> values, grads;
  std::vector<int64_t> counts;
};

Tensor copy_of(const Tensor& t) { return t.defined() ? t.detach().clone() : Tensor(); }
bool same(const Tensor& a, const Tensor& b) {
  return a.defined() == b.defined() && (!a.defined() || a.equal(b));
}

/// Buffers, then for each parameter its averages and itself.
Snapshot look(const Model& m) {
  Snapshot s;
  for (const Tensor& b : m.buffers) s.values.push_back(copy_of(b));
  for (const Tensor& p : m.params) {
    const auto& state = m.opt->state(p);
    for (const Tensor& t : {state.exp_avg, state.exp_avg_sq, p}) s.values.push_back(copy_of(t));
    s.grads.push_back(copy_of(p.grad()));
    s.counts.push_back(state.step);
  }
  return s;
}

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
}

/// Whether `now` lies between two states as the order of changes allows.
void check_between(const Model& m, const Snapshot& before, const Snapshot& now,
                   const Snapshot& after) {
  bool changed = true, any = false;  // the place before this one; any parameter so far
  int halfway = 0, between = 0;
  size_t i = 0;
  const auto visit = [&](bool is_old, bool is_new) {
    if (is_old && is_new) return;  // a place that the step does not change
    CHECK((changed || is_old));
    // Call by call a failure may come between the two calls of one update.
    between += !is_old && !is_new;
    changed = is_new;
  };
  for (; i < m.buffers.size(); ++i)
    visit(same(now.values[i], before.values[i]), same(now.values[i], after.values[i]));
  for (size_t k = 0; k < m.params.size(); ++k, i += 3) {
    CAPTURE(k);
    if (m.in_backward) changed = true;
    const bool counted = now.counts[k] == after.counts[k];
    const bool made = now.counts[k] > 0 || before.values[i].defined();
    visit(now.counts[k] == before.counts[k], counted);
    for (size_t j = i; j < i + 3; ++j) {
      const Tensor& t = now.values[j];
      // Averages begin as zeros.
      const bool zero = t.defined() && !before.values[j].defined() && t.equal(zeros_like(t));
      visit(same(t, before.values[j]) || zero, same(t, after.values[j]));
    }
    any |= counted;
    halfway += counted && !same(now.values[i + 2], after.values[i + 2]);
    CHECK((made || !counted));
    const Tensor& g = now.grads[k];
    CHECK((!g.defined() || same(g, before.grads[k]) || same(g, after.grads[k]) || m.in_backward));
    if (any && !m.in_backward) CHECK(same(g, after.grads[k]));
  }
  CHECK(halfway <= 1);
  CHECK(between <= (m.fused ? 0 : 1));
}

/// Throws when the graph has run so many items.
class FailingItem final : public RunObserver {
 public:
  explicit FailingItem(int64_t fails) : fails_(fails), outer_(std::exchange(current, this)) {}
  ~FailingItem() { current = outer_; }
  void on_graph(const capture::Trace&) override { count(); }
  void on_item(const capture::Trace&, const Item&) override { count(); }
  int64_t seen() const { return seen_; }

 private:
  void count() {
    if (seen_++ == fails_) throw std::runtime_error("item");
  }
  const int64_t fails_;
  int64_t seen_ = 0;
  RunObserver* const outer_;
};

/// Runs two models side by side; step `n` of one of them fails at place 0, 1, ... until there is no
/// such place. How many there were.
template <class Fault, class Make>
int64_t sweep(Make make, bool compiled, CompileOptions options, int64_t stride) {
  int64_t failures = 0;
  for (int64_t at = 0;; at += stride) {
    CAPTURE(at);
    manual_seed(11);
    Model twin = make();
    manual_seed(11);
    Model model = make();
    std::function<void()> step = model.step;
    if (compiled) step = compile(model.step, options);
    model.fused = compiled && options.backend == Backend::fused;
    bool failed = false;
    for (int i = 0; i < 3; ++i) {
      const Snapshot before = look(twin);
      const GeneratorState drawn = default_generator().state();
      twin.step();
      const GeneratorState end = default_generator().state();
      const Snapshot after = look(twin);
      default_generator().set_state(drawn);
      if (i == 1) {
        try {
          const Fault fault(at);
          step();
        } catch (const std::exception&) {
          failed = true;
        }
        if (failed) {
          // Eager mode counts the whole step before it moves the first parameter.
          if (compiled) check_between(model, before, look(model), after);
          put_back(model, before);
          default_generator().set_state(drawn);
          step();
        }
      } else {
        step();
      }
      CHECK(default_generator().state() == end);
      default_generator().set_state(end);
      const Snapshot now = look(model);
      for (size_t k = 0; k < now.values.size(); ++k) CHECK(same(now.values[k], after.values[k]));
      CHECK(now.counts == after.counts);
    }
    if (!failed) return failures;
    ++failures;
  }
}

template <class Net>
Model adam_model(Net net, Tensor x, Tensor target, bool in_backward = false) {
  Model m;
  m.params = net->parameters();
  // Of each norm: the count moves before mean and variance.
  const std::vector<Tensor> buffers = net->buffers();
  for (size_t i = 0; i < buffers.size(); i += 3)
    m.buffers.insert(m.buffers.end(), {buffers[i + 2], buffers[i], buffers[i + 1]});
  m.opt = std::make_shared<optim::Adam>(m.params, optim::AdamOptions(0.01).amsgrad(false));
  m.in_backward = in_backward;
  const auto stepping =
      in_backward ? std::make_shared<optim::StepInBackward>(*m.opt) : nullptr;
  m.step = [net, x, target, opt = m.opt, stepping]() mutable {
    if (!stepping) opt->zero_grad();
    cross_entropy(net(x), target).backward();
    if (!stepping) opt->step();
  };
  return m;
}

Model mlp(bool in_backward) {
  return adam_model(nn::Sequential(nn::Linear(12, 20), nn::Tanh(), nn::Linear(20, 20), nn::ReLU(),
                                   nn::Linear(20, 5)),
                    randn({30, 12}), arange(30).remainder(5), in_backward);
}
Model cnn() {
  return adam_model(
      nn::Sequential(nn::Conv2d(nn::Conv2dOptions(2, 6, 3).padding(1)), nn::BatchNorm2d(6),
                     nn::ReLU(), nn::Conv2d(nn::Conv2dOptions(6, 4, 3)), nn::BatchNorm2d(4),
                     nn::Dropout(0.3), nn::Flatten(), nn::Linear(4 * 6 * 6, 5)),
      randn({4, 2, 8, 8}), arange(4).remainder(5));
}

bool sweeps_all() {
  const char* all = std::getenv("GRAPNEL_FAULT_SWEEP");
  return all && std::string_view(all) == "all";
}

template <class Make>
void sweep_model(Make make, int64_t few) {
  const int64_t stride = sweeps_all() ? 1 : few;
  using base::AllocationFault;
  std::string counts = grapnel::str(
      "no graph: ", sweep<AllocationFault>(make, false, {}, stride), " allocations");
  on_each_backend([&](CompileOptions options) {
    counts += grapnel::str("; ", name(options.backend), ": ",
                           sweep<AllocationFault>(make, true, options, stride), " allocations");
    if (options.backend != Backend::eager)
      counts += grapnel::str(" and ", sweep<FailingItem>(make, true, options, stride), " items");
  });
  if (sweeps_all()) MESSAGE(counts);
}

}  // namespace

TEST_CASE("an MLP with Adam survives a failure at any place of a step") {
  sweep_model([] { return mlp(false); }, 7);
}
TEST_CASE("an MLP that steps in backward survives a failure at any place of a step") {
  sweep_model([] { return mlp(true); }, 7);
}
TEST_CASE("a CNN with batch norm and dropout survives a failure at any place of a step") {
  sweep_model([] { return cnn(); }, 29);
}
