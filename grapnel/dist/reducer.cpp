/// The reducer between passes: what it is told, and what it makes ready. The rest is in
/// reducer_layout.cpp, reducer_pass.cpp and reducer_results.cpp.
#include "grapnel/dist/reducer.h"

#include <algorithm>
#include <limits>

#include "grapnel/autograd/accumulate.h"
#include "grapnel/autograd/engine.h"
#include "grapnel/autograd/grad_mode.h"
#include "grapnel/base/warn.h"
#include "grapnel/functions/functions.h"
#include "grapnel/ops/record.h"

namespace grapnel::dist {

Reducer::Reducer(std::vector<Parameter> parameters, ProcessGroup group, DataParallelOptions options)
    : options_(std::move(options)) {
  check(options_.usual_bytes() > 0 && options_.first_bytes() > 0,
        "DistributedDataParallel: bucket sizes must be positive, got ", options_.usual_bytes(),
        " and ", options_.first_bytes(), ".");
  for (Parameter& p : parameters) {
    members_.emplace_back();
    members_.back().name = std::move(p.name);
    members_.back().tensor = std::move(p.tensor);
    members_.back().after = std::make_unique<HookList<std::function<void(const Tensor&)>>>();
  }
  reset(std::move(group));
  attach_hooks();
}

Reducer::~Reducer() {
  settle();
  for (Member& member : members_) {
    member.ready_hook.remove();
    if (member.full.defined()) member.tensor.set_data(member.full);
  }
}

// A bucket stays where it is until its hook's Future is complete. Every operation has a deadline,
// so that is soon, whatever became of the other ranks.
void Reducer::settle() const {
  for (const Bucket& bucket : buckets_)
    if (bucket.result.valid()) bucket.result.wait_for(group_.timeout());
}

void Reducer::attach_hooks() {
  // A hook of the accumulate node fires after the user's hooks on the leaf and also when no
  // gradient came.
  for (size_t i = 0; i < members_.size(); ++i)
    members_[i].ready_hook = grad_accumulator(members_[i].tensor)
                               ->register_hook(
                                   [this, i](const variable_list&, const variable_list& grads) {
                                     on_grad(i, grads[0].defined());
                                   },
                                   {.name = "data-parallel: gradient ready", .site = {}});
}

void Reducer::listen() {
  std::vector<const TensorImpl*> leaves;
  for (const Member& member : members_) leaves.push_back(member.tensor.impl_ptr());
  engine::add_failure_listener(weak_from_this(), std::move(leaves));
}

void Reducer::reset(ProcessGroup group) {
  check(engine::current_depth() == 0,
        "reset: a backward pass is under way; buckets cannot be laid out now.");
  settle();
  group_ = std::move(group);
  used_channel_ = group_.channel("used parameters");
  divisor_ = group_.size();
  failure_.clear();
  armed_ = in_pass_ = rebuilt_ = false;
  arrival_.clear();
  counts_.clear();
  expected_.clear();
  used_anywhere_.clear();
  for (Member& member : members_) member.used = false;

  std::vector<std::vector<size_t>> layout = options_.buckets;
  if (layout.empty()) {
    std::vector<int64_t> limits{options_.first_bytes(), options_.usual_bytes()};
    if (will_rebuild()) limits = {std::numeric_limits<int64_t>::max()};
    layout = assign_buckets(items(), limits).buckets;
    // Gradients tend to arrive in reverse of the order of definition.
    std::reverse(layout.begin(), layout.end());
  }
  make_buckets(std::move(layout));
}

void Reducer::set_hook(CommHook hook) {
  check(!has_hook(), here(), " register_comm_hook: the hook ", hook_.name,
        " is registered already, and stays.\nA wrapper has one hook for its whole life.");
  check(!began_, here(),
        " register_comm_hook: a backward pass has run already.\nRegister the hook before training, "
        "on all ranks.");
  hook_ = std::move(hook);
}

void Reducer::set_static_graph() {
  if (options_.static_graph) return;
  check(!began_ && !armed_, here(),
        " set_static_graph: training has begun; say so before the first iteration.");
  options_.static_graph = true;
  reset(group_);
}

void Reducer::check_usable() const {
  check(failure_.empty(), here(),
        " the wrapper failed before and has to be reset with a new group: "
        "model.reset(group.renew()).\nWhat happened: ",
        failure_);
}

void Reducer::before_forward() {
  check_usable();
  check(!in_pass_, here(),
        " the last backward pass did not produce gradients for all parameters, so their buckets "
        "were never sent. Missing: ",
        list_missing(), ".\n",
        options_.static_graph
            ? "The graph was declared static, so every pass must reach the same parameters."
        : options_.find_unused_parameters
            ? "All outputs of forward must take part in the loss, or be left out of what forward "
              "returns."
            : "If some parameters take no part in the loss, wrap the module with "
              "find_unused_parameters = true.");
  if (rebuilt_ || !will_rebuild() || arrival_.size() != members_.size()) return;
  rebuild();
}

std::string Reducer::list_missing() const {
  std::string text;
  size_t count = 0;
  for (const Member& member : members_)
    if (!member.ready && ++count <= 10) text += str(text.empty() ? "" : ", ", member.name);
  return count > 10 ? str(text, " and ", count - 10, " more") : text;
}

void Reducer::disarm() { armed_ = false; }

void Reducer::prepare() {
  start_pass();
  armed_ = true;
  searched_ = false;
  // Passes inside the one to come, as checkpointing starts them, are parts of it.
  pass_depth_ = engine::current_depth();
  if (hook_.drops_gradients)
    for (const Member& member : members_)
      check(!member.tensor.grad().defined(), here(),
            " the optimiser runs inside backward, so gradients cannot accumulate, but ", member.name,
            " has one already.");
  if (counting()) counts_.assign(members_.size(), 0);
  unused_.clear();
  for (size_t i = 0; options_.static_graph && i < expected_.size(); ++i)
    if (expected_[i] == 0) unused_.push_back(i);
}

// The pass knows what it will reach, so it does not matter how many forwards led to it, nor which
// of their outputs take part.
void Reducer::find_unused() {
  searched_ = true;
  const auto reached = engine::leaves_of_pass();
  for (size_t i = 0; i < members_.size(); ++i)
    if (!reached.contains(members_[i].tensor.impl_ptr())) unused_.push_back(i);
  if (unused_.empty() && !std::exchange(warned_all_used_, true) && group_.rank() == 0)
    base::warn(
        "DistributedDataParallel: find_unused_parameters is set, but all parameters were used. The "
        "ranks tell each other in every iteration which were; leave it out if no parameter is ever "
        "unused.");
}

HookHandle Reducer::add_after_reduction_hook(const Tensor& parameter,
                                             std::function<void(const Tensor&)> hook,
                                             HookOptions options) {
  for (Member& member : members_)
    if (member.tensor.is_same(parameter))
      return member.after->add(HookKind::after_reduction, std::move(hook), std::move(options));
  fail(here(),
       " register_after_reduction_hook: the tensor is no parameter of the wrapped module that "
       "requires grad.");
}

ReducerStats Reducer::stats() const {
  ReducerStats out = stats_;
  out.rebuilt = rebuilt_;
  return out;
}

void Reducer::lower_precision() {
  if (!options_.reduced_precision) return;
  NoGradGuard no_grad;
  for (size_t i = 0; i < members_.size(); ++i) {
    Member& member = members_[i];
    if (member.full.defined()) continue;
    // A recorded step that does not run takes set_data back, and so what stands beside it.
    record::on_undo([self = weak_from_this(), i] {
      if (const auto reducer = self.lock()) reducer->members_[i].full = {};
    });
    member.full = member.tensor.detach();
    member.tensor.set_data(member.full.to(options_.reduced_precision->parameters));
  }
}

}  // namespace grapnel::dist
