#include "grapnel/autograd/recompute.h"

#include <mutex>
#include <unordered_map>

#include "grapnel/autograd/tape_observer.h"
#include "grapnel/base/context.h"
#include "grapnel/functions/generator.h"

namespace grapnel::autograd {

namespace {

/// What decides, beside its arguments, what a function computes on this thread. A member that is
/// added here is kept and comes back with the others.
struct ForwardState {
  GeneratorState random = default_generator().state();
  Modes modes = this_context.modes;
  DType default_dtype = get_default_dtype();

  void set() const {
    default_generator().set_state(random);
    if (get_default_dtype() != default_dtype) set_default_dtype(default_dtype);  // the program's
  }
};

/// While it lives, things are as they were at some other time.
class AsThen {
 public:
  explicit AsThen(const ForwardState& then)
      : modes_(then.modes), saved_hooks_(std::exchange(this_context.saved_hooks, &none_)) {
    then.set();
  }
  ~AsThen() {
    this_context.saved_hooks = saved_hooks_;
    now_.set();
  }
  AsThen(const AsThen&) = delete;
  AsThen& operator=(const AsThen&) = delete;

 private:
  const ForwardState now_;
  const ModesScope modes_;
  const TapeObserver::Pause unobserved_;  // all of it was observed the first time
  SavedHookStack none_;
  SavedHookStack* const saved_hooks_;
};

/// What is kept instead of the saved tensors: enough to make them again. Saved tensors are known by
/// their number.
class Recipe final : public CheckpointRun {
 public:
  Recipe(CheckpointFn fn, const variable_list& inputs, const CheckpointOptions& options)
      : CheckpointRun(current()), fn_(std::move(fn)), options_(options) {
    for (const Tensor& t : inputs) inputs_.emplace_back(t);
  }

  /// The first time.
  static variable_list run(const std::shared_ptr<Recipe>& self, const CheckpointFn& fn,
                           const variable_list& inputs) {
    const SavedTensorHooks hooks([self](const Tensor&) { return self->next_number(); },
                                 [self](size_t number) { return self->value(number); });
    // Hooks that are called again save as the rest of the function does.
    self->place_ =
        self->options_.hooks_again ? SIZE_MAX - 1 : SavedHookStack::current().pairs.size() - 1;
    const Current current(self->options_.hooks_again && !self->outer_ ? nullptr : self.get());
    struct Leave {
      CheckpointRun*& outer;
      ~Leave() { outer = nullptr; }
    } leave{self->outer_};
    return fn(inputs);
  }

  bool again() const override { return again_ || (outer_ && outer_->again()); }
  void leave(const void* key, std::any what) override {
    if (outer_) outer_->leave(key, what);
    if (!options_.hooks_again) left_[key].things.push_back(std::move(what));
  }
  std::any take(const void* key) override {
    if (!again_) return outer_->take(key);
    Left& left = left_[key];
    return left.taken < left.things.size() ? left.things[left.taken++] : std::any();
  }

  size_t next_number() { return count_++; }

  Tensor value(size_t number) {
    std::lock_guard guard(mutex_);
    if (values_.empty()) run_again();
    const Tensor value = values_[number];
    // Freed as soon as every one was asked for; a second pass over a retained graph makes them
    // again.
    if (++asked_ == count_) {
      values_.clear();
      asked_ = 0;
    }
    return value;
  }

 private:
  struct Current {
    CheckpointRun* const before;
    explicit Current(CheckpointRun* run) : before(std::exchange(this_context.checkpoint, run)) {}
    ~Current() { this_context.checkpoint = before; }
  };
  struct Left {
    std::vector<std::any> things;
    size_t taken = 0;
  };

  void run_again() {
    const AsThen as_then(then_);
    const Current current(options_.hooks_again ? nullptr : this);
    again_ = true;
    for (auto& [key, left] : left_) left.taken = 0;
    std::vector<Tensor> values;
    {
      SavedTensorHooks keep(
          [&](const Tensor& t) {
            values.push_back(t.detach());
            return 0;
          },
          [](int) -> Tensor { fail("checkpoint: the recomputed graph is never run."); });
      variable_list inputs;
      for (const Input& input : inputs_) inputs.push_back(input.again());
      fn_(inputs);
    }
    check(values.size() == count_, "checkpoint: the function saved ", count_,
          " tensors in forward but ", values.size(),
          " when it was run again.\nIt must do the same both times: no outside state, the same "
          "branches.");
    values_ = std::move(values);
  }

  /// Values without history: an input whose history came to lead through the checkpoint would own
  /// itself otherwise.
  struct Input {
    Tensor values;
    bool requires_grad = false;
    uint32_t version = 0;

    explicit Input(const Tensor& t) {
      if (!t.defined()) return;
      values = t.detach();
      requires_grad = t.requires_grad();
      version = t._version();
    }
    Tensor again() const {
      if (!values.defined()) return {};
      check(values._version() == version, "checkpoint: an input of shape ", values.shape(),
            " was changed by an in-place operation since, so the function",
            " cannot be run again on what it saw.\nPass a copy: clone().");
      return values.detach().set_requires_grad(requires_grad);
    }
  };

  CheckpointFn fn_;
  const CheckpointOptions options_;
  std::vector<Input> inputs_;
  const ForwardState then_;
  std::unordered_map<const void*, Left> left_;
  bool again_ = false;
  size_t count_ = 0, asked_ = 0;
  std::vector<Tensor> values_;
  std::mutex mutex_;
};

}  // namespace

CheckpointRun::Pause::Pause() : paused_(std::exchange(this_context.checkpoint, nullptr)) {
  auto& pairs = SavedHookStack::current().pairs;
  // Pairs of scopes inside the function are still the hooks' to use.
  for (const CheckpointRun* run = paused_; run && pairs.size() == run->place_ + 1;
       run = run->outer_) {
    pairs_.push_back(std::move(pairs.back()));
    pairs.pop_back();
  }
}
CheckpointRun::Pause::~Pause() {
  auto& pairs = SavedHookStack::current().pairs;
  for (; !pairs_.empty(); pairs_.pop_back()) pairs.push_back(std::move(pairs_.back()));
  this_context.checkpoint = paused_;
}

variable_list checkpoint(CheckpointFn fn, const variable_list& inputs,
                         const CheckpointOptions& options) {
  // The copy that runs again is one from before the first run.
  return Recipe::run(std::make_shared<Recipe>(fn, inputs, options), fn, inputs);
}

}  // namespace grapnel::autograd
