/// The reducer at the end of a pass: waits for what was sent, writes it to grad(), or gives up.
#include <algorithm>

#include "grapnel/autograd/grad_mode.h"
#include "grapnel/base/context.h"
#include "grapnel/dist/reducer.h"
#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"
#include "grapnel/ops/on_failure.h"
#include "grapnel/ops/record.h"

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
    Slot& slot = slots_[bucket.members[k]];
    if (slot.full.defined()) {
      record::on_undo([self = weak_from_this(), i = bucket.members[k], full = slot.full] {
        if (const auto reducer = self.lock()) reducer->slots_[i].full = full;
      });
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
      call_hooks(*slots_[i].after, "after-reduction hook", nullptr,
                 [&](const auto& hook) { hook(slots_[i].tensor); });
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
  for (Slot& slot : slots_) {
    const Tensor grad = slot.tensor.grad();
    if (!grad.defined() || !grad.is_alias_of(buckets_[slot.bucket].buffer)) continue;
    // One that a recording was to make has no value to keep.
    if (grad.impl().storage->pending()) continue;
    slot.tensor.set_grad(grad.clone());
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
  if (!record::active()) return;
  // Everything of this pass has been called, and will happen when the recording runs. If it does
  // not, or stops in the middle, others wait.
  const auto told = [self = weak_from_this(), pass = stats_.iterations] {
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
  };
  record::on_undo(told);
}

// Called while an exception is being handled.
void Reducer::give_up(size_t bucket) {
  const std::string prefix =
      str(here(), " bucket ", bucket, ", ",
          has_hook() ? str("comm hook ", hook_.name) : std::string("no comm hook"), ": ");
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
