#include "grapnel/autograd/checkpoint.h"

#include <mutex>

#include "grapnel/autograd/grad_mode.h"
#include "grapnel/autograd/saved_variable.h"
#include "grapnel/ops/generator.h"

namespace grapnel::autograd {

namespace {

/// What is kept instead of the saved tensors: enough to make them again. Saved tensors are known by
/// their number.
class Recipe {
 public:
  Recipe(CheckpointFn fn, const variable_list& inputs)
      : fn_(std::move(fn)), random_(default_generator().state()) {
    for (const Tensor& t : inputs) inputs_.emplace_back(t);
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
  void run_again() {
    const GeneratorState now = default_generator().state();
    default_generator().set_state(random_);
    struct Restore {
      GeneratorState state;
      ~Restore() { default_generator().set_state(state); }
    } restore{now};
    EnableGradGuard grad;
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
  std::vector<Input> inputs_;
  GeneratorState random_;
  size_t count_ = 0, asked_ = 0;
  std::vector<Tensor> values_;
  std::mutex mutex_;
};

}  // namespace

variable_list checkpoint(CheckpointFn fn, const variable_list& inputs) {
  auto recipe = std::make_shared<Recipe>(fn, inputs);
  SavedTensorHooks hooks([recipe](const Tensor&) { return recipe->next_number(); },
                         [recipe](size_t number) { return recipe->value(number); });
  return fn(inputs);
}

}  // namespace grapnel::autograd
