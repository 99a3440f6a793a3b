/// Which gradients travel together: vectors V1 to V6.
#include "grapnel/dist/buckets.h"
#include "ranks.h"

using namespace grapnel;
using namespace grapnel::test;
using dist::assign_buckets;
using dist::BucketItem;

namespace {
using Lists = std::vector<std::vector<size_t>>;
using Limits = std::vector<int64_t>;

std::vector<BucketItem> f32(std::initializer_list<int64_t> elements) {
  std::vector<BucketItem> out;
  for (int64_t n : elements) out.push_back({4 * n, kFloat32});
  return out;
}
std::vector<BucketItem> mixed() {
  std::vector<BucketItem> out;
  for (int i = 0; i < 3; ++i) {
    out.push_back({200, kFloat32});
    out.push_back({200, kFloat64});
  }
  return out;
}
std::vector<BucketItem> layers() {
  return f32({80, 1600, 1600, 1600, 1600, 1600, 1600, 1600, 1600, 1600, 1600});
}
}  // namespace

TEST_CASE("comm.V1: a tensor that reaches the limit closes its bucket") {
  const auto layout = assign_buckets(f32({100, 200, 100, 50}), Limits{400});
  CHECK(layout.buckets == Lists{{0}, {1}, {2}, {3}});
  CHECK(layout.limits == Limits{400, 400, 400, 400});
}
TEST_CASE("comm.V2: types fill buckets of their own") {
  const auto layout = assign_buckets(mixed(), Limits{400});
  CHECK(layout.buckets == Lists{{0, 2}, {1, 3}, {4}, {5}});
  CHECK(layout.limits == Limits{400, 400, 400, 400});
}
TEST_CASE("comm.V3: after the first limit comes the next") {
  const auto layout = assign_buckets(f32({10, 10, 10, 10}), Limits{40, 80});
  CHECK(layout.buckets == Lists{{0}, {1, 2}, {3}});
  CHECK(layout.limits == Limits{40, 80, 80});
}
TEST_CASE("comm.V4: every type starts with the first limit") {
  const auto layout = assign_buckets(mixed(), Limits{200, 400});
  CHECK(layout.buckets == Lists{{0}, {1}, {2, 4}, {3, 5}});
  CHECK(layout.limits == Limits{200, 200, 400, 400});
}
TEST_CASE("comm.V5: in the order of arrival the first bucket is the small one") {
  const std::vector<size_t> order{10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0};
  const auto layout = assign_buckets(layers(), Limits{1024, 8192}, order);
  CHECK(layout.buckets == Lists{{10}, {9, 8}, {7, 6}, {5, 4}, {3, 2}, {1, 0}});
  CHECK(layout.limits == Limits{1024, 8192, 8192, 8192, 8192, 8192});
}
TEST_CASE("comm.V6: in the order of definition, reversed, the last bucket is the small one") {
  auto layout = assign_buckets(layers(), Limits{1024, 8192});
  std::reverse(layout.buckets.begin(), layout.buckets.end());
  std::reverse(layout.limits.begin(), layout.limits.end());
  CHECK(layout.buckets == Lists{{10}, {8, 9}, {6, 7}, {4, 5}, {2, 3}, {0, 1}});
  CHECK(layout.limits == Limits{8192, 8192, 8192, 8192, 8192, 1024});
}
TEST_CASE(
    "a sparse gradient has a bucket of its own, and left-over buckets go by their first tensor") {
  std::vector<BucketItem> items = f32({10, 10, 10});
  items[1].sparse_grad = true;
  const auto layout = assign_buckets(items, Limits{400});
  CHECK(layout.buckets == Lists{{0, 2}, {1}});
  CHECK(layout.limits == Limits{400, 0});
  // f64 comes last in the list of types, and first here.
  const std::vector<size_t> order{1, 0, 3, 2};
  CHECK(assign_buckets(mixed(), Limits{1000}, order).buckets == Lists{{1, 3}, {0, 2}});
}
TEST_CASE("gradients on different devices never share a bucket") {
  std::vector<BucketItem> items = f32({10, 10, 10, 10, 10});
  for (const size_t i : {1, 3}) items[i].device = Device(kCUDA, 0);
  items[4].device = Device(kCUDA, 1);
  CHECK(assign_buckets(items, Limits{400}).buckets == Lists{{0, 2}, {1, 3}, {4}});
  CHECK(assign_buckets(items, Limits{40, 80}).buckets == Lists{{0}, {1}, {2}, {3}, {4}});
  const std::vector<size_t> order{4, 3, 2, 1, 0};
  CHECK(assign_buckets(items, Limits{400}, order).buckets == Lists{{4}, {3, 1}, {2, 0}});
}
TEST_CASE("comm.E13: explicit buckets are checked") {
  const auto complaint = [](Lists buckets, std::vector<BucketItem> items) {
    return error_of<Error>([&] { dist::check_buckets(buckets, items); });
  };
  CHECK(complaint({{0}, {1}, {2, 4}, {3, 5}}, mixed()) == "no exception");
  CHECK(has(complaint({{0, 1}, {2, 3, 4, 5}}, mixed()), "mixes types"));
  std::vector<BucketItem> apart = f32({1, 1});
  apart[1].device = Device(kCUDA, 1);
  CHECK(has(complaint({{0, 1}}, apart),
            "bucket 0 mixes devices: parameter 0 is on cpu, parameter 1 on cuda:1"));
  CHECK(complaint({{0}, {1}}, apart) == "no exception");
  CHECK(has(complaint({{0, 2, 4}, {}, {1, 3, 5}}, mixed()), "bucket 1 is empty"));
  CHECK(has(complaint({{0, 2, 4}, {1, 3}}, mixed()), "parameter 5 is in no bucket"));
  CHECK(has(complaint({{0, 0}}, f32({1})), "twice"));
  CHECK(has(complaint({{0, 3}}, f32({1})), "only 1"));
  std::vector<BucketItem> sparse = f32({1, 1});
  sparse[1].sparse_grad = true;
  CHECK(has(complaint({{0, 1}}, sparse), "sparse"));
}
