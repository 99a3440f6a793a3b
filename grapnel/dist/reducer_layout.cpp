/// Where gradients lie: buckets are made of a layout, and laid out anew in the order of arrival.
#include <algorithm>
#include <array>

#include "grapnel/autograd/engine.h"
#include "grapnel/autograd/grad_mode.h"
#include "grapnel/dist/reducer.h"
#include "grapnel/functions/factories.h"
#include "grapnel/functions/functions.h"
#include "grapnel/ops/record.h"
#include "grapnel/ops/vectors.h"

namespace grapnel::dist {

std::vector<BucketItem> Reducer::items() const {
  std::vector<BucketItem> out;
  for (const Member& member : members_) {
    const DType dtype =
        options_.reduced_precision ? options_.reduced_precision->parameters : member.tensor.dtype();
    out.push_back({.bytes = member.tensor.numel() * static_cast<int64_t>(element_size(dtype)),
                   .dtype = dtype,
                   .device = member.tensor.device()});
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
      count += members_[i].tensor.numel();
      tensors.push_back(members_[i].tensor);
      names.push_back(members_[i].name);
      members_[i].bucket = b;
      members_[i].position = bucket.members.size();
      bucket.members.push_back(i);
    }
    bucket.buffer = zeros({count}, TensorOptions(all[layout[b][0]].dtype).device(all[layout[b][0]].device));
    bucket.handle = GradBucket(b, layout.size(), bucket.buffer, std::move(tensors),
                               std::move(names), group_.channel(str("bucket ", b)));
    bucket.views = bucket.handle.gradients();
    if (!options_.gradient_as_bucket_view) continue;
    for (size_t i : bucket.members) {
      // A gradient that lies in an old bucket moves to its new place.
      const Tensor grad = members_[i].tensor.grad();
      const Tensor& view = bucket.views[members_[i].position];
      for (const Bucket& o : old)
        if (grad.defined() && grad.is_alias_of(o.buffer)) {
          view.copy_(grad);
          members_[i].tensor.set_grad(view);
        }
    }
  }
  stats_.buckets = buckets_.size();
}

namespace {
/// Numbers of rank 0, instead of as many of this one.
std::vector<int64_t> of_rank_0(const ProcessGroup& group, const std::vector<int64_t>& numbers) {
  const Tensor shared = from_vector(numbers);
  group.broadcast(shared).wait();
  return to_vector<int64_t>(shared);
}
}  // namespace

void Reducer::rebuild() {
  const record::Suspend now;  // all about the last pass, which is over
  NoGradGuard no_grad;
  const std::array limits{
      options_.small_bucket_last ? options_.usual_bytes() : options_.first_bytes(),
      options_.usual_bytes()};
  BucketLayout mine = assign_buckets(items(), limits, arrival_);
  if (options_.small_bucket_last) {
    // The same from the other end: fill up starting with the gradients that arrive last.
    const std::vector<size_t> backwards(arrival_.rbegin(), arrival_.rend());
    mine = assign_buckets(items(), std::array{options_.first_bytes(), options_.usual_bytes()},
                          backwards);
    std::reverse(mine.buckets.begin(), mine.buckets.end());
    for (auto& bucket : mine.buckets) std::reverse(bucket.begin(), bucket.end());
  }
  // Gradients may have arrived in another order elsewhere; rank 0 decides for all.
  const auto n = static_cast<int64_t>(members_.size());
  std::vector<int64_t> p{static_cast<int64_t>(mine.buckets.size())};
  for (const auto& bucket : mine.buckets)
    for (size_t i : bucket) p.push_back(static_cast<int64_t>(i));
  p.resize(static_cast<size_t>(n) + 1);
  p = of_rank_0(group_, p);
  const int64_t count = p[0];
  std::vector<int64_t> s(static_cast<size_t>(count));
  if (group_.rank() == 0)
    for (size_t b = 0; b < mine.buckets.size(); ++b)
      s[b] = static_cast<int64_t>(mine.buckets[b].size());
  s = of_rank_0(group_, s);
  std::vector<std::vector<size_t>> layout;
  size_t at = 1;
  for (int64_t b = 0; b < count; ++b) {
    layout.emplace_back();
    for (int64_t i = 0; i < s[static_cast<size_t>(b)]; ++i)
      layout.back().push_back(static_cast<size_t>(p[at++]));
  }
  make_buckets(std::move(layout));
  rebuilt_ = true;
}

std::vector<std::vector<size_t>> Reducer::layout() const {
  std::vector<std::vector<size_t>> out;
  for (const Bucket& bucket : buckets_) out.push_back(bucket.members);
  return out;
}

void Reducer::restore(int64_t iterations, bool rebuilt, std::vector<std::vector<size_t>> buckets,
                      std::vector<int64_t> expected) {
  check(expected.empty() || expected.size() == members_.size(), here(), " the saved wrapper has ",
        expected.size(), " parameters, this one ", members_.size(), ".");
  make_buckets(std::move(buckets));
  rebuilt_ = rebuilt;
  expected_ = std::move(expected);
  used_anywhere_.assign(members_.size(), true);
  for (size_t i = 0; i < expected_.size(); ++i) used_anywhere_[i] = expected_[i] > 0;
  stats_.iterations = iterations;
}

}  // namespace grapnel::dist
