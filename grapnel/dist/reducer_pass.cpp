/// The reducer during a pass: gradients arrive, and full buckets are sent. See Note [Order of launch].
#include <algorithm>

#include "grapnel/autograd/engine.h"
#include "grapnel/autograd/grad_mode.h"
#include "grapnel/base/warn.h"
#include "grapnel/dist/reducer.h"
#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"
#include "grapnel/ops/record.h"
#include "grapnel/ops/vectors.h"

namespace grapnel::dist {

void Reducer::start_pass() {
  for (Bucket& bucket : buckets_) {
    bucket.pending = bucket.members.size();
    bucket.result = {};
  }
  for (Member& member : members_) {
    member.ready = false;
    member.fired = 0;
  }
  next_launch_ = 0;
  used_map_ = {};
}

void Reducer::on_grad(size_t index, bool defined) {
  Member& member = members_[index];
  if (defined) member.used = true;
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
    if (searches() && !searched_) find_unused();
    // Nothing will come for these, so buckets must not wait for them.
    for (size_t i : std::exchange(unused_, {})) mark_ready(i);
  }
  event(ReducerEvent::Kind::grad_ready, index);
  if (counting()) {
    ++counts_[index];
    return;
  }
  if (options_.static_graph) {
    ++member.fired;
    check(member.fired <= expected_[index], here(), " the graph was declared static, but parameter ",
          member.name,
          expected_[index] == 0
              ? " was unused in the first iteration and is used now."
              : str(" received a gradient ", member.fired, " times; in the first iteration it was ",
                    expected_[index], "."));
    if (member.fired < expected_[index]) return;
  }
  mark_ready(index);
}

void Reducer::mark_ready(size_t index) {
  Member& member = members_[index];
  check(!member.ready, here(), " parameter ", member.name,
        " got its gradient twice in one backward pass, after its bucket may have been "
        "sent.\nLikely causes: it is used "
        "in several passes that run inside one another (checkpointing, a backward inside a hook), "
        "or outside of the wrapped module's forward, or the module's "
        "forward ran twice before backward. If the graph is the same in every iteration, "
        "static_graph = true allows this.");
  member.ready = true;
  if (!rebuilt_ && arrival_.size() < members_.size() && !(options_.static_graph && counting()))
    arrival_.push_back(index);
  copy_in(member);
  if (--buckets_[member.bucket].pending == 0) launch_full_buckets();
}

void Reducer::copy_in(Member& member) {
  Bucket& bucket = buckets_[member.bucket];
  const Tensor& view = bucket.views[member.position];
  const Tensor grad = member.tensor.grad();
  if (!member.used || !grad.defined()) {
    // If it turns out to be unused everywhere, grad() has to stay as it is, even where it lies in
    // the bucket.
    if (grad.defined() && grad.is_alias_of(bucket.buffer)) member.untouched = grad.clone();
    view.zero_();
    return;
  }
  check(grad.dtype() == bucket.buffer.dtype(), here(), " the gradient of ", member.name, " is ",
        grad.dtype(), ", its bucket ", bucket.buffer.dtype(),
        ".\nThe module was converted after it was wrapped; wrap it again.");
  check(grad.shape() == view.shape(), here(), " the gradient of ", member.name, " has shape ",
        grad.shape(), ", its place in the bucket ", view.shape(),
        ".\nThe module was changed after it was wrapped; wrap it again.");
  if (grad.is_alias_of(bucket.buffer)) return;
  view.copy_(grad.detach());
  if (options_.gradient_as_bucket_view) member.tensor.set_grad(view);
}

void Reducer::launch_full_buckets() {
  while (next_launch_ < buckets_.size() && buckets_[next_launch_].pending == 0)
    launch(buckets_[next_launch_++]);
  if (next_launch_ < buckets_.size()) return;
  if (searches()) launch_used_map();
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
  // Outside of recordings a hook may return what it likes; the graph has to know what comes.
  if (!record::active()) return fn();
  auto body = [fn = std::move(fn)](const variable_list&) { return variable_list{fn()}; };
  const variable_list result = effect(std::move(body), {bucket.buffer}, outputs);
  return outputs ? result[0] : Tensor();
}

void Reducer::launch_used_map() {
  const record::Suspend now;  // made of plain numbers, and sent on a channel of its own
  std::vector<int32_t> used;
  for (const Member& member : members_) used.push_back(member.used);
  used_map_ = used_channel_.all_reduce(from_vector(used)).single();
}

void Reducer::on_outputs() {
  if (!armed_) return;
  // Here, not at the first gradient: that may come in a pass inside this one.
  if (searches() && !searched_) find_unused();
  if (counting()) autograd::queue_callback([this] { launch_counted(); }, pass_depth_);
}

// The first pass over a static graph: only now is it known how often each parameter is reached.
void Reducer::launch_counted() {
  if (!in_pass_) return;
  NoGradGuard no_grad;
  for (size_t i = 0; i < members_.size(); ++i)
    if (!members_[i].ready) mark_ready(i);
  launch_used_map();
  finish();
  expected_ = std::exchange(counts_, {});
}

void Reducer::shadow_pass() {
  NoGradGuard no_grad;
  start_pass();
  began_ = true;
  for (Member& member : members_) member.used = false;
  // The others will have an order of arrival to lay buckets out by, so this rank needs one, too.
  if (arrival_.empty())
    for (size_t i = 0; i < members_.size(); ++i) arrival_.push_back(i);
  for (Bucket& bucket : buckets_) {
    bucket.buffer.zero_();
    launch(bucket);
  }
  if (searches()) launch_used_map();
  size_t b = 0;
  try {
    if (used_map_.valid()) used_map_.wait();
    for (; b < buckets_.size(); ++b) buckets_[b].result.wait();
  } catch (...) {
    give_up(b);
  }
  ++stats_.iterations;
}

}  // namespace grapnel::dist
