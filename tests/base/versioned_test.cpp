#include "grapnel/base/versioned.h"

#include <doctest/doctest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

using grapnel::base::Versioned;

namespace {
using List = Versioned<std::vector<std::shared_ptr<int>>>;
}

TEST_CASE(
    "a reader goes on seeing the version it was shown, and sees the new one when it asks again") {
  List list;
  list.change([](auto& v) { v.push_back(std::make_shared<int>(1)); });
  const List::Reader reader(list);
  const auto& before = reader.value();
  CHECK(!reader.changed());
  list.change([](auto& v) { v.clear(); });
  CHECK(before.size() == 1);
  CHECK(reader.value().empty());
  CHECK(reader.changed());
}

TEST_CASE(
    "what a removed element owns dies when the last reader leaves, or at once if nobody reads") {
  List list;
  std::weak_ptr<int> first, second;
  list.change([&](auto& v) {
    first = v.emplace_back(std::make_shared<int>(1));
    second = v.emplace_back(std::make_shared<int>(2));
  });
  {
    const List::Reader outer(list);
    {
      const List::Reader inner(list);
      list.change([](auto& v) { v.erase(v.begin()); });
      CHECK(!first.expired());
    }
    CHECK(!first.expired());
  }
  CHECK(first.expired());
  list.change([](auto& v) { v.clear(); });
  CHECK(second.expired());
  CHECK(!List::Reader(list).changed());
}

TEST_CASE("a change that throws leaves the value readable") {
  List list;
  CHECK_THROWS(list.change([](auto&) { throw 1; }));
  CHECK(List::Reader(list).value().empty());
}

TEST_CASE("readers and writers on several threads never see a half-made value") {
  Versioned<std::vector<int>> list;
  std::atomic<bool> stop{false};
  std::atomic<int> torn{0};
  auto read = [&] {
    while (!stop) {
      const Versioned<std::vector<int>>::Reader reader(list);
      for (int i = 0; i < 2; ++i) {
        const auto& v = reader.value();
        for (int x : v) torn += x != static_cast<int>(v.size());
      }
    }
  };
  std::thread a(read), b(read);
  auto write = [&](int from) {
    for (int i = 0; i < 2000; ++i)
      list.change([&](auto& v) { v.assign(static_cast<size_t>(from + i % 7), from + i % 7); });
  };
  std::thread c(write, 1), d(write, 20);
  c.join();
  d.join();
  stop = true;
  a.join();
  b.join();
  CHECK(torn == 0);
}
