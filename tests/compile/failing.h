/// Ways in which a training step may fail at its n-th place, for sweeps over all places, and what a
/// model in training remembers. Places are counted on the thread that makes the fault.
#pragma once

#include <cstdlib>

#include "grapnel/autograd/tape_observer.h"
#include "grapnel/base/allocation_fault.h"
#include "grapnel/capture/trace.h"
#include "grapnel/compile/observe.h"
#include "tests/compile/backends.h"

namespace grapnel::failing {

struct Planned : std::runtime_error {
  Planned() : std::runtime_error("planned") {}
};

/// Throws when graphs have begun, or run an item, so many times. An item is one call with
/// Backend::eager.
class Item final : public RunObserver {
 public:
  explicit Item(int64_t fails) : left_(fails), outer_(current()) { set_current(this); }
  ~Item() { set_current(outer_); }
  void on_graph(const capture::Trace&) override { count(); }
  void on_item(const capture::Trace&, const RunObserver::Item&) override { count(); }

 private:
  void count() {
    if (left_-- == 0) throw Planned();
  }
  int64_t left_;
  RunObserver* const outer_;
};

/// Throws behind an op that was put on the tape, or where a backward pass comes to its node. While
/// a step is recorded, that is in the middle of the recording.
class TapeOp {
 public:
  explicit TapeOp(int64_t fails) : observer_(std::make_shared<Observer>(fails)) {
    TapeObserver::add(observer_);
  }

 private:
  struct Observer final : TapeObserver, std::enable_shared_from_this<Observer> {
    explicit Observer(int64_t fails) : left(fails) {}
    void on_op(Node& node, std::span<const Tensor>) override {
      count();
      node.register_prehook([weak = weak_from_this()](const variable_list&) {
        if (const auto self = weak.lock()) self->count();
      });
    }
    void count() {
      if (left-- == 0) throw Planned();
    }
    int64_t left;
  };
  const std::shared_ptr<Observer> observer_;
};

/// Throws in an opaque call: one of place().
class OpaqueCall {
 public:
  explicit OpaqueCall(int64_t fails) : left_(fails) { current_ = this; }
  ~OpaqueCall() { current_ = nullptr; }
  OpaqueCall(const OpaqueCall&) = delete;
  OpaqueCall& operator=(const OpaqueCall&) = delete;

  static auto place() {
    return opaque([](const Tensor&) {
      if (current_ && current_->left_-- == 0) throw Planned();
    });
  }

 private:
  static inline thread_local OpaqueCall* current_ = nullptr;
  int64_t left_;
};

/// What a step may change, in the order in which it does: buffers, then for each parameter its
/// averages and itself. Averages that are zeros, made for a step that did not count, are none.
struct Snapshot {
  std::vector<Tensor> values, grads;
  std::vector<int64_t> counts;
  GeneratorState generator;
};

inline Tensor copy_of(const Tensor& t) { return t.defined() ? t.detach().clone() : Tensor(); }
inline bool same(const Tensor& a, const Tensor& b) {
  return a.defined() == b.defined() && (!a.defined() || a.equal(b));
}
inline bool same(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  return std::ranges::equal(a, b, [](const Tensor& x, const Tensor& y) { return same(x, y); });
}
/// Whether parameters, averages, buffers, counts and generator agree.
inline bool same_but_grads(const Snapshot& a, const Snapshot& b) {
  return same(a.values, b.values) && a.counts == b.counts && a.generator == b.generator;
}
inline bool same(const Snapshot& a, const Snapshot& b) {
  return same_but_grads(a, b) && same(a.grads, b.grads);
}

inline Snapshot look(const std::vector<Tensor>& buffers, const std::vector<Tensor>& params,
                     optim::Adam& opt) {
  Snapshot s;
  for (const Tensor& b : buffers) s.values.push_back(copy_of(b));
  for (const Tensor& p : params) {
    const auto& state = opt.state(p);
    for (const Tensor& t : {state.exp_avg, state.exp_avg_sq}) {
      const bool none = t.defined() && state.step == 0 && t.equal(zeros_like(t));
      s.values.push_back(none ? Tensor() : copy_of(t));
    }
    s.values.push_back(copy_of(p));
    s.grads.push_back(copy_of(p.grad()));
    s.counts.push_back(state.step);
  }
  s.generator = default_generator().state();
  return s;
}

/// How a step goes from one state to the next.
struct Between {
  bool in_order = true;       ///< parameters change in the order in which they stand
  int halves = 0;             ///< values that may be anything, amid an update of several calls
  bool counts_first = false;  ///< all parameters are counted before the first one moves
};
/// Checks that `now` lies between two states: every value is one of the two, and those that have
/// changed come before those that have not.
inline void check_between(const Snapshot& before, const Snapshot& now, const Snapshot& after,
                          Between how = {}) {
  const size_t params = now.counts.size(), buffers = now.values.size() - 3 * params;
  bool changed = true;  // the place before this one
  int halves = 0;
  const auto visit = [&](bool is_old, bool is_new) {
    if (is_old && is_new) return;  // a place that the step does not change
    if (is_old || is_new) CHECK((changed || is_old));
    halves += !is_old && !is_new;
    changed = is_new;
  };
  size_t i = 0;
  for (; i < buffers; ++i)
    visit(same(now.values[i], before.values[i]), same(now.values[i], after.values[i]));
  for (size_t k = 0; k < params; ++k, i += 3) {
    CAPTURE(k);
    if (!how.in_order) changed = true;
    const bool not_counted = now.counts[k] == before.counts[k],
               counted = now.counts[k] == after.counts[k];
    if (how.counts_first) CHECK((not_counted || counted));
    else visit(not_counted, counted);
    for (size_t j = i; j < i + 3; ++j) {
      const Tensor& t = now.values[j];
      // Averages begin as zeros, which are there when their step is counted.
      const bool zero = t.defined() && !before.values[j].defined() && t.equal(zeros_like(t));
      visit(same(t, before.values[j]) || zero, same(t, after.values[j]));
    }
  }
  CHECK(halves <= how.halves);
}

/// GRAPNEL_FAULT_SWEEP=all tries every place.
inline bool sweeps_all() {
  const char* all = std::getenv("GRAPNEL_FAULT_SWEEP");
  return all && std::string_view(all) == "all";
}

}  // namespace grapnel::failing
