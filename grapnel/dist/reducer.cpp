#include "grapnel/dist/reducer.h"

#include <unordered_map>
#include <unordered_set>

#include "grapnel/autograd/accumulate.h"
#include "grapnel/autograd/engine.h"
#include "grapnel/autograd/grad_mode.h"
#include "grapnel/base/log.h"
#include "grapnel/ops/factories.h"
#include "grapnel/ops/functions.h"
#include "grapnel/ops/invoke.h"
#include "grapnel/ops/record.h"

namespace grapnel::dist {

Reducer::Reducer(std::vector<Parameter> parameters, ProcessGroup group, ReducerOptions options)
    : options_(std::move(options)) {
  for (Parameter& p : parameters) {
    slots_.emplace_back();
    slots_.back().name = std::move(p.name);
    slots_.back().tensor = std::move(p.tensor);
    slots_.back().after = std::make_unique<HookList<std::function<void(const Tensor&)>>>();
  }
  reset(std::move(group));
  attach_hooks();
}

Reducer::~Reducer() {
  settle();
  for (Slot& slot : slots_) {
    slot.ready_hook.remove();
    if (slot.full.defined()) slot.tensor.set_data(slot.full);
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
  for (size_t i = 0; i < slots_.size(); ++i)
    slots_[i].ready_hook = grad_accumulator(slots_[i].tensor)
                               ->register_hook(
                                   [this, i](const variable_list&, const variable_list& grads) {
                                     on_grad(i, grads[0].defined());
                                   },
                                   HookOptions("data-parallel: gradient ready"));
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
  for (Slot& slot : slots_) slot.used = false;

  std::vector<std::vector<size_t>> layout = options_.buckets;
  if (layout.empty()) {
    std::vector<int64_t> limits{options_.first_bucket_bytes, options_.bucket_bytes};
    if (will_rebuild()) limits = {std::numeric_limits<int64_t>::max()};
    layout = assign_buckets(items(), limits).buckets;
    // Gradients tend to arrive in reverse of the order of definition.
    std::reverse(layout.begin(), layout.end());
  }
  make_buckets(std::move(layout));
}

std::vector<BucketItem> Reducer::items() const {
  std::vector<BucketItem> out;
  for (const Slot& slot : slots_) {
    const DType dtype = options_.reduced_precision.value_or(slot.tensor.dtype());
    out.push_back({slot.tensor.numel() * static_cast<int64_t>(element_size(dtype)), dtype});
  }
  return out;
}

void Reducer::make_buckets(std::vector<std::vector<size_t>> layout) {
  check(engine::current_depth() == 0, here(),
        " buckets cannot be laid out during a backward pass.");
  const std::vector<BucketItem> all = items();
  check_buckets(layout, all);
  NoGradGuard no_grad;
  std::vector<Bucket> old = std::exchange(buckets_, {});
  for (size_t b = 0; b < layout.size(); ++b) {
    Bucket& bucket = buckets_.emplace_back();
    int64_t count = 0;
    std::vector<Tensor> tensors;
    std::vector<std::string> names;
    for (size_t i : layout[b]) {
      count += slots_[i].tensor.numel();
      tensors.push_back(slots_[i].tensor);
      names.push_back(slots_[i].name);
      slots_[i].bucket = b;
      slots_[i].position = bucket.members.size();
      bucket.members.push_back(i);
    }
    bucket.buffer = zeros({count}, all[layout[b][0]].dtype);
    bucket.handle = GradBucket(b, layout.size(), bucket.buffer, std::move(tensors),
                               std::move(names), group_.channel(str("bucket ", b)));
    bucket.views = bucket.handle.gradients();
    if (!options_.gradient_as_bucket_view) continue;
    for (size_t i : bucket.members) {
      // A gradient that lies in an old bucket moves to its new place.
      const Tensor grad = slots_[i].tensor.grad();
      const Tensor& view = bucket.views[slots_[i].position];
      for (const Bucket& o : old)
        if (grad.defined() && grad.is_alias_of(o.buffer)) {
          view.copy_(grad);
          slots_[i].tensor.set_grad(view);
        }
    }
  }
  stats_.buckets = buckets_.size();
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
              "returns; or a hook of yours threw during that pass."
            : "If some parameters take no part in the loss, wrap the module with "
              "find_unused_parameters = true; if a hook of yours threw "
              "during that pass, call reset().");
  if (rebuilt_ || !will_rebuild() || arrival_.size() != slots_.size()) return;
  rebuild();
}

std::string Reducer::list_missing() const {
  std::string text;
  size_t count = 0;
  for (const Slot& slot : slots_)
    if (!slot.ready && ++count <= 10) text += str(text.empty() ? "" : ", ", slot.name);
  return count > 10 ? str(text, " and ", count - 10, " more") : text;
}

void Reducer::rebuild() {
  const record::Suspend now;  // all about the last pass, which is over
  NoGradGuard no_grad;
  const std::array limits{
      options_.small_bucket_last ? options_.bucket_bytes : options_.first_bucket_bytes,
      options_.bucket_bytes};
  BucketLayout mine = assign_buckets(items(), limits, arrival_);
  if (options_.small_bucket_last) {
    // The same from the other end: fill up starting with the gradients that arrive last.
    const std::vector<size_t> backwards(arrival_.rbegin(), arrival_.rend());
    mine = assign_buckets(items(), std::array{options_.first_bucket_bytes, options_.bucket_bytes},
                          backwards);
    std::reverse(mine.buckets.begin(), mine.buckets.end());
    for (auto& bucket : mine.buckets) std::reverse(bucket.begin(), bucket.end());
  }
  // Gradients may have arrived in another order elsewhere; rank 0 decides for all.
  const auto n = static_cast<int64_t>(slots_.size());
  Tensor order = zeros({n + 1}, kInt64);
  auto* p = order.data_ptr<int64_t>();
  p[0] = static_cast<int64_t>(mine.buckets.size());
  int64_t at = 1;
  for (const auto& bucket : mine.buckets)
    for (size_t i : bucket) p[at++] = static_cast<int64_t>(i);
  group_.broadcast(order).wait();
  const int64_t count = p[0];
  Tensor sizes = zeros({count}, kInt64);
  auto* s = sizes.data_ptr<int64_t>();
  if (group_.rank() == 0)
    for (size_t b = 0; b < mine.buckets.size(); ++b)
      s[b] = static_cast<int64_t>(mine.buckets[b].size());
  group_.broadcast(sizes).wait();
  std::vector<std::vector<size_t>> layout;
  at = 1;
  for (int64_t b = 0; b < count; ++b) {
    layout.emplace_back();
    for (int64_t i = 0; i < s[b]; ++i) layout.back().push_back(static_cast<size_t>(p[at++]));
  }
  make_buckets(std::move(layout));
  rebuilt_ = true;
}

void Reducer::disarm() { armed_ = false; }

void Reducer::start_pass() {
  for (Bucket& bucket : buckets_) {
    bucket.pending = bucket.members.size();
    bucket.result = {};
  }
  for (Slot& slot : slots_) {
    slot.ready = false;
    slot.fired = 0;
  }
  next_launch_ = 0;
  used_map_ = {};
}

void Reducer::prepare(const std::vector<Tensor>& outputs) {
  start_pass();
  armed_ = true;
  // Passes inside the one to come, as checkpointing starts them, are parts of it.
  pass_depth_ = engine::current_depth();
  if (hook_.drops_gradients)
    for (const Slot& slot : slots_)
      check(!slot.tensor.grad().defined(), here(),
            " the optimiser runs inside backward, so gradients cannot accumulate, but ", slot.name,
            " has one already.");
  if (counting()) counts_.assign(slots_.size(), 0);
  unused_.clear();
  if (options_.find_unused_parameters && !options_.static_graph) {
    unused_ = unreachable_from(outputs);
    if (unused_.empty() && !std::exchange(warned_all_used_, true) && group_.rank() == 0)
      base::warn(
          "DistributedDataParallel: find_unused_parameters is set, but all parameters were used. "
          "The search walks the graph in every "
          "iteration; leave it out if no parameter is ever unused.");
  } else if (options_.static_graph) {
    for (size_t i = 0; i < expected_.size(); ++i)
      if (expected_[i] == 0) unused_.push_back(i);
  }
}

std::vector<size_t> Reducer::unreachable_from(const std::vector<Tensor>& outputs) const {
  std::unordered_set<const TensorImpl*> leaves;
  std::unordered_set<const Node*> seen;
  std::vector<const Node*> stack;
  const auto visit = [&](const Edge& edge) {
    if (edge && seen.insert(edge.node.get()).second) stack.push_back(edge.node.get());
  };
  for (const Tensor& t : outputs)
    if (t.defined() && t.requires_grad()) visit(gradient_edge(t));
  while (!stack.empty()) {
    const Node* node = stack.back();
    stack.pop_back();
    if (node->is_accumulate())
      leaves.insert(static_cast<const AccumulateGrad*>(node)->leaf().impl_ptr());
    for (const Edge& edge : node->next_edges()) visit(edge);
  }
  std::vector<size_t> out;
  for (size_t i = 0; i < slots_.size(); ++i)
    if (!leaves.contains(slots_[i].tensor.impl_ptr())) out.push_back(i);
  return out;
}

// --- during a pass ---

void Reducer::on_grad(size_t index, bool defined) {
  Slot& slot = slots_[index];
  if (defined) slot.used = true;
  if (!armed_) return;
  check_usable();
  if (GradMode::is_enabled() && !std::exchange(warned_graph_, true) && group_.rank() == 0)
    base::warn(
        "DistributedDataParallel: the backward pass builds a graph (create_graph), but averaged "
        "gradients are not part of it: "
        "gradients of gradients stay local to each rank.");
  NoGradGuard no_grad;
  if (!in_pass_) {
    in_pass_ = began_ = true;
    // Nothing will come for these, so buckets must not wait for them.
    for (size_t i : std::exchange(unused_, {})) mark_ready(i);
  }
  event(ReducerEvent::Kind::grad_ready, index);
  if (counting()) {
    ++counts_[index];
    return;
  }
  if (options_.static_graph) {
    ++slot.fired;
    check(slot.fired <= expected_[index], here(), " the graph was declared static, but parameter ",
          slot.name,
          expected_[index] == 0
              ? " was unused in the first iteration and is used now."
              : str(" received a gradient ", slot.fired, " times; in the first iteration it was ",
                    expected_[index], "."));
    if (slot.fired < expected_[index]) return;
  }
  mark_ready(index);
}

void Reducer::mark_ready(size_t index) {
  Slot& slot = slots_[index];
  check(!slot.ready, here(), " parameter ", slot.name,
        " got its gradient twice in one backward pass, after its bucket may have been "
        "sent.\nLikely causes: it is used "
        "in several passes that run inside one another (checkpointing, a backward inside a hook), "
        "or outside of the wrapped module's forward, or the module's "
        "forward ran twice before backward. If the graph is the same in every iteration, "
        "static_graph = true allows this.");
  slot.ready = true;
  if (!rebuilt_ && arrival_.size() < slots_.size() && !(options_.static_graph && counting()))
    arrival_.push_back(index);
  copy_in(slot);
  if (--buckets_[slot.bucket].pending == 0) launch_full_buckets();
}

void Reducer::copy_in(Slot& slot) {
  Bucket& bucket = buckets_[slot.bucket];
  const Tensor& view = bucket.views[slot.position];
  const Tensor grad = slot.tensor.grad();
  if (!slot.used || !grad.defined()) {
    // If it turns out to be unused everywhere, grad() has to stay as it is, even where it lies in
    // the bucket.
    if (grad.defined() && grad.is_alias_of(bucket.buffer)) slot.untouched = grad.clone();
    view.zero_();
    return;
  }
  check(grad.dtype() == bucket.buffer.dtype(), here(), " the gradient of ", slot.name, " is ",
        grad.dtype(), ", its bucket ", bucket.buffer.dtype(),
        ".\nThe module was converted after it was wrapped; wrap it again.");
  if (grad.is_alias_of(bucket.buffer)) return;
  view.copy_(grad.detach());
  if (options_.gradient_as_bucket_view) slot.tensor.set_grad(view);
}

void Reducer::launch_full_buckets() {
  while (next_launch_ < buckets_.size() && buckets_[next_launch_].pending == 0)
    launch(buckets_[next_launch_++]);
  if (next_launch_ < buckets_.size()) return;
  if (options_.find_unused_parameters && !options_.static_graph) launch_used_map();
  // In the first pass over a static graph, the end has come already.
  if (!counting()) autograd::queue_callback([this] { finish(); }, pass_depth_);
}

void Reducer::launch(Bucket& bucket) {
  if (!has_hook()) bucket.buffer.div_(divisor_);
  as_effect(bucket, 0, [this, &bucket] {
    send(bucket);
    return Tensor();
  });
}

void Reducer::send(Bucket& bucket) {
  GradBucket& handle = bucket.handle;
  handle.set_buffer(bucket.buffer);
  event(ReducerEvent::Kind::launch, handle.index());
  try {
    bucket.result =
        has_hook() ? hook_.call(handle) : handle.group().all_reduce(bucket.buffer).single();
    check(bucket.result.valid(), "the hook returned an empty Future.");
  } catch (...) {
    give_up(handle.index());
  }
}

Tensor Reducer::as_effect(Bucket& bucket, size_t outputs, std::function<Tensor()> fn) {
  if (!record::active()) return fn();
  auto body = [fn = std::move(fn)](const variable_list&) { return variable_list{fn()}; };
  const variable_list result =
      invoke_detail::call(invoke_detail::Kind::effect, std::move(body), {bucket.buffer}, outputs);
  return outputs ? result[0] : Tensor();
}

Tensor Reducer::receive(Bucket& bucket) {
  const Clock::time_point begin = Clock::now();
  try {
    const Tensor result = bucket.result.wait();
    stats_.exposed_seconds += std::chrono::duration<double>(Clock::now() - begin).count();
    check(result.defined() && result.numel() == bucket.buffer.numel(), "the hook's result ",
          result.defined() ? str("has ", result.numel()) : std::string("is undefined, expected"),
          result.defined() ? " elements, the bucket has " : " ", bucket.buffer.numel(),
          result.defined() ? "." : " elements.");
    return result.dim() == 1 && result.is_contiguous() ? result.detach()
                                                       : result.detach().contiguous().view({-1});
  } catch (...) {
    give_up(bucket.handle.index());
  }
}

void Reducer::launch_used_map() {
  const record::Suspend now;  // made of plain numbers, and sent on a channel of its own
  std::vector<int32_t> used;
  for (const Slot& slot : slots_) used.push_back(slot.used);
  Tensor map = empty({static_cast<int64_t>(used.size())}, kInt32);
  std::copy(used.begin(), used.end(), map.data_ptr<int32_t>());
  used_map_ = used_channel_.all_reduce(map).single();
}

void Reducer::on_outputs() {
  if (!armed_ || !counting()) return;
  autograd::queue_callback([this] { launch_counted(); }, pass_depth_);
}

// The first pass over a static graph: only now is it known how often each parameter is reached.
void Reducer::launch_counted() {
  if (!in_pass_) return;
  NoGradGuard no_grad;
  for (size_t i = 0; i < slots_.size(); ++i)
    if (!slots_[i].ready) mark_ready(i);
  launch_used_map();
  finish();
  expected_ = std::exchange(counts_, {});
}

void Reducer::finish() {
  NoGradGuard no_grad;
  find_used_anywhere();
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const Tensor averaged = as_effect(buckets_[b], 1, [this, b] { return receive(buckets_[b]); });
    try {
      write_back(buckets_[b], averaged);
    } catch (...) {
      give_up(b);
    }
    event(ReducerEvent::Kind::written, b);
  }
  ++stats_.iterations;
  armed_ = in_pass_ = false;
  for (Slot& slot : slots_) slot.used = false;
  run_after_hooks();
}

void Reducer::find_used_anywhere() {
  const bool all_used =
      std::all_of(slots_.begin(), slots_.end(), [](const Slot& s) { return s.used; });
  if (!options_.static_graph) used_anywhere_.assign(slots_.size(), true);
  if (!used_map_.valid() || (!options_.static_graph && all_used)) return;
  try {
    const Tensor map = used_map_.wait();
    used_anywhere_.resize(slots_.size());
    for (size_t i = 0; i < slots_.size(); ++i) used_anywhere_[i] = map.data_ptr<int32_t>()[i] > 0;
  } catch (...) {
    give_up(0);
  }
}

void Reducer::write_back(Bucket& bucket, const Tensor& flat) {
  if (options_.gradient_as_bucket_view && !options_.reduced_precision &&
      !flat.is_alias_of(bucket.buffer))
    bucket.buffer.copy_(flat);
  const std::vector<Tensor> averaged = bucket.handle.views_of(flat);
  for (size_t k = 0; k < bucket.members.size(); ++k) {
    Slot& slot = slots_[bucket.members[k]];
    if (slot.full.defined()) {
      slot.tensor.set_data(slot.full);
      slot.full = {};
      if (used_anywhere_[bucket.members[k]])
        slot.tensor.set_grad(averaged[k].to(slot.tensor.dtype()).clone());
      continue;
    }
    const Tensor untouched = std::exchange(slot.untouched, {});
    if (hook_.drops_gradients) slot.tensor.reset_grad();
    else if (used_anywhere_[bucket.members[k]]) write_grad(slot, bucket.views[k], averaged[k]);
    else if (untouched.defined()) bucket.views[k].copy_(untouched);
  }
}

void Reducer::write_grad(Slot& slot, const Tensor& view, const Tensor& averaged) {
  const Tensor grad = slot.tensor.grad();
  if (options_.gradient_as_bucket_view) {
    check(!grad.defined() || grad.is_alias_of(view), "the gradient of ", slot.name,
          " was replaced by another tensor during the backward pass.\nWith "
          "gradient_as_bucket_view, grad() stays where the wrapper put it; change it in place.");
    if (!grad.defined()) slot.tensor.set_grad(view);
    return;
  }
  if (grad.defined() && !grad.requires_grad()) {
    grad.copy_(averaged);
    return;
  }
  Tensor fresh =
      empty_strided(slot.tensor.sizes(), bucket_strides(slot.tensor), slot.tensor.dtype());
  fresh.copy_(averaged);
  slot.tensor.set_grad(fresh);
}

void Reducer::run_after_hooks() {
  for (const Bucket& bucket : buckets_)
    for (size_t i : bucket.members)
      if (const auto entries = slots_[i].after->snapshot())
        for (const auto& entry : *entries) entry->hook(slots_[i].tensor);
}

HookHandle Reducer::add_after_reduction_hook(const Tensor& parameter,
                                             std::function<void(const Tensor&)> hook,
                                             HookOptions options) {
  for (Slot& slot : slots_)
    if (slot.tensor.is_same(parameter))
      return slot.after->add(std::move(hook), std::move(options.name), options.site, false);
  fail(here(),
       " register_after_reduction_hook: the tensor is no parameter of the wrapped module that "
       "requires grad.");
}

// Called while an exception is being handled: the other ranks must not wait for this one.
void Reducer::give_up(size_t bucket) {
  const std::string prefix =
      str(here(), " bucket ", bucket, ", ",
          has_hook() ? str("comm hook ", hook_.name) : std::string("no comm hook"), ": ");
  const auto poison = [&](const std::string& what) {
    failure_ = prefix + what;
    armed_ = false;
    group_.abort(failure_);
    // Callbacks of other buckets may refer to them, and to what the hook captured; they end soon,
    // since the group is given up.
    settle();
    // What is still under way may write to the buffers later; gradients must not see that.
    if (!options_.gradient_as_bucket_view) return;
    for (Slot& slot : slots_)
      if (const Tensor grad = slot.tensor.grad();
          grad.defined() && grad.is_alias_of(buckets_[slot.bucket].buffer))
        slot.tensor.set_grad(grad.clone());
  };
  try {
    throw;
  } catch (const CommTimeout& e) {
    poison(e.what());
    throw CommTimeout(failure_);
  } catch (const CommAborted& e) {
    poison(e.what());
    throw CommAborted(failure_);
  } catch (const CommMismatch& e) {
    poison(e.what());
    throw CommMismatch(failure_);
  } catch (const std::exception& e) {
    poison(e.what());
    std::throw_with_nested(CommHookError(failure_));
  } catch (...) {
    poison("an exception that is no std::exception");
    std::throw_with_nested(CommHookError(failure_));
  }
}

void Reducer::shadow_pass() {
  NoGradGuard no_grad;
  start_pass();
  began_ = true;
  for (Slot& slot : slots_) slot.used = false;
  // The others will have an order of arrival to lay buckets out by, so this rank needs one, too.
  if (arrival_.empty())
    for (size_t i = 0; i < slots_.size(); ++i) arrival_.push_back(i);
  for (Bucket& bucket : buckets_) {
    bucket.buffer.zero_();
    launch(bucket);
  }
  if (options_.find_unused_parameters && !options_.static_graph) launch_used_map();
  size_t b = 0;
  try {
    if (used_map_.valid()) used_map_.wait();
    for (; b < buckets_.size(); ++b) buckets_[b].result.wait();
  } catch (...) {
    give_up(b);
  }
  ++stats_.iterations;
}

ReducerStats Reducer::stats() const {
  ReducerStats out = stats_;
  out.rebuilt = rebuilt_;
  return out;
}

std::vector<std::vector<size_t>> Reducer::layout() const {
  std::vector<std::vector<size_t>> out;
  for (const Bucket& bucket : buckets_) out.push_back(bucket.members);
  return out;
}

void Reducer::restore(int64_t iterations, bool rebuilt, std::vector<std::vector<size_t>> buckets,
                      std::vector<int64_t> expected) {
  check(expected.empty() || expected.size() == slots_.size(), here(), " the saved wrapper has ",
        expected.size(), " parameters, this one ", slots_.size(), ".");
  make_buckets(std::move(buckets));
  rebuilt_ = rebuilt;
  expected_ = std::move(expected);
  used_anywhere_.assign(slots_.size(), true);
  for (size_t i = 0; i < expected_.size(); ++i) used_anywhere_[i] = expected_[i] > 0;
  stats_.iterations = iterations;
}

void Reducer::lower_precision() {
  if (!options_.reduced_precision) return;
  NoGradGuard no_grad;
  for (Slot& slot : slots_) {
    if (slot.full.defined()) continue;
    slot.full = slot.tensor.detach();
    slot.tensor.set_data(slot.full.to(*options_.reduced_precision));
  }
}

}  // namespace grapnel::dist
