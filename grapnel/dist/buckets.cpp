#include "grapnel/dist/buckets.h"

#include <algorithm>
#include <numeric>

namespace grapnel::dist {

namespace {
struct Bucket {
  std::vector<size_t> members;
  int64_t limit = 0;
};
/// The bucket of one kind that is being filled.
struct Open {
  const BucketItem* kind = nullptr;
  std::vector<size_t> members;
  int64_t bytes = 0;
  size_t level = 0;
};
}  // namespace

BucketLayout assign_buckets(std::span<const BucketItem> items, std::span<const int64_t> limits,
                            std::span<const size_t> order) {
  check(!limits.empty(), "assign_buckets: there is no limit.");
  std::vector<size_t> natural(items.size());
  std::iota(natural.begin(), natural.end(), size_t{0});
  const bool by_arrival = !order.empty();
  if (!by_arrival) order = natural;

  std::vector<Bucket> closed;
  std::vector<Open> open;  // of each kind, in the order in which they came
  for (size_t index : order) {
    const BucketItem& item = items[index];
    if (item.sparse_grad) {
      closed.push_back({{index}, 0});
      continue;
    }
    auto found = std::find_if(open.begin(), open.end(),
                              [&](const Open& o) { return o.kind->travels_with(item); });
    if (found == open.end()) found = open.insert(found, Open{&item, {}});
    Open& bucket = *found;
    bucket.members.push_back(index);
    bucket.bytes += item.bytes;
    const int64_t limit = limits[bucket.level];
    if (bucket.bytes < limit) continue;
    closed.push_back({std::exchange(bucket.members, {}), limit});
    bucket.bytes = 0;
    if (bucket.level + 1 < limits.size()) ++bucket.level;
  }

  // Every rank has to come to the same order, so what is left over goes by position, not by the
  // order of a container.
  std::vector<Bucket> left;
  for (Open& bucket : open)
    if (!bucket.members.empty()) left.push_back({std::move(bucket.members), limits[bucket.level]});
  std::vector<size_t> position(items.size());
  for (size_t i = 0; i < order.size(); ++i) position[order[i]] = i;
  std::sort(left.begin(), left.end(), [&](const Bucket& a, const Bucket& b) {
    return position[a.members[0]] < position[b.members[0]];
  });
  closed.insert(closed.end(), std::make_move_iterator(left.begin()),
                std::make_move_iterator(left.end()));
  if (!by_arrival) {
    const auto first = [](const Bucket& b) {
      return *std::min_element(b.members.begin(), b.members.end());
    };
    std::sort(closed.begin(), closed.end(),
              [&](const Bucket& a, const Bucket& b) { return first(a) < first(b); });
  }

  BucketLayout layout;
  for (Bucket& bucket : closed) {
    layout.buckets.push_back(std::move(bucket.members));
    layout.limits.push_back(bucket.limit);
  }
  return layout;
}

void check_buckets(const std::vector<std::vector<size_t>>& buckets,
                   std::span<const BucketItem> items) {
  std::vector<bool> seen(items.size());
  for (size_t b = 0; b < buckets.size(); ++b) {
    check(!buckets[b].empty(), "bucket ", b, " is empty.");
    for (size_t index : buckets[b]) {
      check(index < items.size(), "bucket ", b, " names parameter ", index, ", but there are only ",
            items.size(), ".");
      check(!seen[index], "parameter ", index, " is in a bucket twice, the second time in bucket ",
            b, ".");
      seen[index] = true;
      check(items[index].dtype == items[buckets[b][0]].dtype, "bucket ", b,
            " mixes types: parameter ", buckets[b][0], " is ", items[buckets[b][0]].dtype,
            ", parameter ", index, " is ", items[index].dtype,
            ".\nA bucket travels as one tensor, so give each type a bucket of its own.");
      check(items[index].device == items[buckets[b][0]].device, "bucket ", b,
            " mixes devices: parameter ", buckets[b][0], " is on ", items[buckets[b][0]].device,
            ", parameter ", index, " on ", items[index].device,
            ".\nA bucket travels as one tensor, so give each device buckets of its own.");
      check(!items[index].sparse_grad || buckets[b].size() == 1, "bucket ", b, " holds parameter ",
            index, ", whose gradient is sparse, together with others.");
    }
  }
  for (size_t i = 0; i < seen.size(); ++i) check(seen[i], "parameter ", i, " is in no bucket.");
}

}  // namespace grapnel::dist
