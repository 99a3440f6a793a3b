/// The reducer at the end of a pass: waits for what was sent, writes it to grad(), or gives up.
#include <algorithm>

#include "grapnel/autograd/grad_mode.h"
#include "grapnel/base/place.h"
#include "grapnel/dist/communicator.h"
#include "grapnel/dist/reducer.h"
#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"
#include "grapnel/ops/record.h"
#include "grapnel/ops/vectors.h"

namespace grapnel::dist {

void Reducer::finish() {
  NoGradGuard no_grad;
  watch_recording();
  find_used_anywhere();
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const Tensor averaged = as_effect(buckets_[b], 1, [this, b, pass = stats_.iterations] {
      const Tensor result = receive(buckets_[b]);
      if (b + 1 == buckets_.size()) complete_ = pass + 1;
      return result;
    });
    try {
      write_back(buckets_[b], averaged);
    } catch (...) {
      give_up(b);
    }
    event(ReducerEvent::Kind::written, b);
  }
  ++stats_.iterations;
  armed_ = in_pass_ = false;
  for (Member& member : members_) member.used = false;
  run_after_hooks();
}

void Reducer::find_used_anywhere() {
  const bool all_used =
      std::all_of(members_.begin(), members_.end(), [](const Member& s) { return s.used; });
  if (!options_.static_graph) used_anywhere_.assign(members_.size(), true);
  if (!used_map_.valid() || (!options_.static_graph && all_used)) return;
  try {
    const std::vector<int32_t> map = to_vector<int32_t>(used_map_.wait());
    used_anywhere_.resize(members_.size());
    for (size_t i = 0; i < members_.size(); ++i) used_anywhere_[i] = map[i] > 0;
  } catch (...) {
    give_up(0);
  }
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

void Reducer::write_back(Bucket& bucket, const Tensor& flat) {
  if (options_.gradient_as_bucket_view && !options_.reduced_precision &&
      !flat.is_alias_of(bucket.buffer))
    bucket.buffer.copy_(flat);
  const std::vector<Tensor> averaged = bucket.handle.views_of(flat);
  for (size_t k = 0; k < bucket.members.size(); ++k) {
    Member& member = members_[bucket.members[k]];
    if (member.full.defined()) {
      record::on_undo([self = weak_from_this(), i = bucket.members[k], full = member.full] {
        if (const auto reducer = self.lock()) reducer->members_[i].full = full;
      });
      member.tensor.set_data(member.full);
      member.full = {};
      if (used_anywhere_[bucket.members[k]])
        member.tensor.set_grad(averaged[k].to(member.tensor.dtype()).clone());
      continue;
    }
    const Tensor untouched = std::exchange(member.untouched, {});
    if (hook_.drops_gradients) member.tensor.reset_grad();
    else if (used_anywhere_[bucket.members[k]]) write_grad(member, bucket.views[k], averaged[k]);
    else if (untouched.defined()) bucket.views[k].copy_(untouched);
  }
}

void Reducer::write_grad(Member& member, const Tensor& view, const Tensor& averaged) {
  const Tensor grad = member.tensor.grad();
  if (options_.gradient_as_bucket_view) {
    check(!grad.defined() || grad.is_alias_of(view), "the gradient of ", member.name,
          " was replaced by another tensor during the backward pass.\nWith "
          "gradient_as_bucket_view, grad() stays where the wrapper put it; change it in place.");
    if (!grad.defined()) member.tensor.set_grad(view);
    return;
  }
  if (grad.defined() && !grad.requires_grad()) {
    grad.copy_(averaged);
    return;
  }
  Tensor fresh =
      empty_strided(member.tensor.sizes(), bucket_strides(member.tensor), member.tensor.dtype());
  fresh.copy_(averaged);
  member.tensor.set_grad(fresh);
}

void Reducer::run_after_hooks() {
  for (const Bucket& bucket : buckets_)
    for (size_t i : bucket.members)
      call_hooks(*members_[i].after, HookKind::after_reduction, nullptr,
                 [&](const auto& hook) { hook(members_[i].tensor); });
}

// The other ranks must not wait for this one: see Note [A rank that fails] in data_parallel.h.
void Reducer::poison(std::string failure) {
  failure_ = std::move(failure);
  armed_ = in_pass_ = false;
  group_.abort(failure_);
  // Callbacks of other buckets may refer to them, and to what the hook captured; they end soon,
  // since the group is given up.
  settle();
  // What is still under way may write to the buffers later; gradients must not see that.
  if (!options_.gradient_as_bucket_view) return;
  for (Member& member : members_) {
    const Tensor grad = member.tensor.grad();
    if (!grad.defined() || !grad.is_alias_of(buckets_[member.bucket].buffer)) continue;
    // One that a recording was to make has no value to keep.
    if (grad.impl().storage->pending()) continue;
    member.tensor.set_grad(grad.clone());
  }
}

void Reducer::pass_failed(const std::string& what) noexcept {
  // A pass that stays local, one whose averages have arrived, or a failure that is known already.
  if (!armed_ || !failure_.empty()) return;
  try {
    NoGradGuard no_grad;
    poison(str(here(), " the backward pass ended with an exception: ", what));
  } catch (...) {
    // The exception that is under way says more.
  }
}

void Reducer::watch_recording() {
  // Everything of this pass has been called, and will happen when the recording runs. If it does
  // not, or stops in the middle, others wait.
  record::on_undo([self = weak_from_this(), pass = stats_.iterations] {
    const auto reducer = self.lock();
    if (!reducer || !reducer->failure_.empty() || reducer->complete_ > pass) return;
    try {
      const record::Suspend now;
      reducer->poison(str(reducer->here(),
                          " the recorded step that the backward pass is part of "
                          "has failed, or was never run."));
    } catch (...) {
      // As above: whatever ended the recording is under way.
    }
  });
}

// Called while an exception is being handled.
void Reducer::give_up(size_t bucket) {
  const std::string prefix = str(
      here(), " bucket ", bucket, ", ",
      has_hook() ? str(name(HookKind::comm), " ", hook_.name) : std::string("no comm hook"), ": ");
  try {
    throw;
  } catch (const CommTimeout& e) {
    poison(prefix + e.what());
    throw CommTimeout(failure_);
  } catch (const CommAborted& e) {
    poison(prefix + e.what());
    throw CommAborted(failure_);
  } catch (const CommMismatch& e) {
    poison(prefix + e.what());
    throw CommMismatch(failure_);
  } catch (const std::exception& e) {
    poison(prefix + base::with_places_inside(e.what()));
    std::throw_with_nested(CommHookError(failure_));
  } catch (...) {
    poison(prefix + "an exception that is no std::exception");
    std::throw_with_nested(CommHookError(failure_));
  }
}

}  // namespace grapnel::dist
