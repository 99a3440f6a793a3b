#include "grapnel/base/small_vector.h"

#include <doctest/doctest.h>

#include <iterator>
#include <memory>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

using grapnel::SmallVector;

namespace {

template <class T, size_t N>
std::vector<T> as_vector(const SmallVector<T, N>& v) {
  return {v.begin(), v.end()};
}

// Counts the living, and throws from a chosen copy.
struct Tracked {
  static inline int alive = 0;
  static inline int copies_until_throw = -1;
  int value;
  Tracked(int v = 0) : value(v) { ++alive; }
  Tracked(const Tracked& o) : value(o.value) {
    if (copies_until_throw == 0) throw std::runtime_error("copy");
    if (copies_until_throw > 0) --copies_until_throw;
    ++alive;
  }
  Tracked(Tracked&& o) noexcept : value(std::exchange(o.value, -1)) { ++alive; }
  Tracked& operator=(const Tracked&) = default;
  Tracked& operator=(Tracked&& o) noexcept {
    value = std::exchange(o.value, -1);
    return *this;
  }
  ~Tracked() { --alive; }
  bool operator==(const Tracked&) const = default;
};

}  // namespace

TEST_CASE("a small vector leaves its own memory only when it outgrows it") {
  SmallVector<int, 4> v{1, 2, 3, 4};
  CHECK(v.is_inline());
  CHECK(v.capacity() == 4);
  v.push_back(5);
  CHECK_FALSE(v.is_inline());
  CHECK(as_vector(v) == std::vector{1, 2, 3, 4, 5});
  CHECK(v.front() == 1);
  CHECK(v.back() == 5);
  v.pop_back();
  CHECK(v.size() == 4);
  v.clear();
  CHECK(v.empty());
}

TEST_CASE("a small vector agrees with std::vector under a long random sequence of changes") {
  auto run = []<size_t N>() {
    SmallVector<std::string, N> mine;
    std::vector<std::string> theirs;
    unsigned state = 12345;
    auto below = [&](size_t n) { return (state = state * 1664525u + 1013904223u) / 65536 % n; };
    for (int step = 0; step < 5000; ++step) {
      const std::string s = "a string too long to be stored inline, number " + std::to_string(step);
      const size_t at = below(theirs.size() + 1);
      const auto where = static_cast<ptrdiff_t>(at);
      switch (below(9)) {
        case 0: mine.push_back(s), theirs.push_back(s); break;
        case 1:
          mine.insert(mine.begin() + where, s), theirs.insert(theirs.begin() + where, s);
          break;
        case 2:
          if (at < theirs.size())
            mine.erase(mine.begin() + where), theirs.erase(theirs.begin() + where);
          break;
        case 3: {
          const auto last = where + static_cast<ptrdiff_t>(below(theirs.size() - at + 1));
          mine.erase(mine.begin() + where, mine.begin() + last);
          theirs.erase(theirs.begin() + where, theirs.begin() + last);
          break;
        }
        case 4:
          mine.insert(mine.begin() + where, {s, "b", s}),
              theirs.insert(theirs.begin() + where, {s, "b", s});
          break;
        case 5: {
          const size_t n = below(12);
          mine.resize(n, s), theirs.resize(n, s);
          break;
        }
        case 6:
          if (!theirs.empty()) mine.pop_back(), theirs.pop_back();
          break;
        case 7: {
          auto copy = mine;
          mine = std::move(copy);
          break;
        }
        case 8: {
          SmallVector<std::string, N> moved(std::move(mine));
          CHECK(mine.empty());
          mine = moved;
          break;
        }
      }
      REQUIRE(as_vector(mine) == theirs);
    }
  };
  run.operator()<1>();
  run.operator()<5>();
}

TEST_CASE("a small vector holds elements that can only be moved") {
  SmallVector<std::unique_ptr<int>, 2> v;
  for (int i = 0; i < 5; ++i) v.push_back(std::make_unique<int>(i));
  v.insert(v.begin() + 1, std::make_unique<int>(10));
  v.erase(v.begin());
  auto moved = std::move(v);
  REQUIRE(moved.size() == 5);
  CHECK(*moved[0] == 10);
  CHECK(*moved[4] == 4);
  swap(v, moved);
  CHECK(moved.empty());
  CHECK(v.size() == 5);
  v.resize(6);
  CHECK(v.back() == nullptr);
}

TEST_CASE("an element of the vector may be added to it while it grows") {
  SmallVector<std::string, 2> v{std::string(40, 'x'), "y"};
  v.push_back(v[0]);
  CHECK(v.back() == std::string(40, 'x'));
  v.insert(v.begin(), v.back());
  CHECK(v.front() == std::string(40, 'x'));
  v.resize(20, v[2]);
  CHECK(v.back() == "y");
  v.assign(3, v.back());
  CHECK(v == SmallVector<std::string, 2>{"y", "y", "y"});
}

TEST_CASE("small vectors convert to and from spans and compare across capacities") {
  SmallVector<int, 2> v{3, 1, 2};
  std::span<const int> view = v;
  CHECK(view.data() == v.data());
  CHECK(view.size() == 3);
  std::span<int> writable = v;
  writable[0] = 0;
  CHECK(v[0] == 0);
  SmallVector<int, 8> copy(view);
  CHECK(copy == v);
  copy.back() = 9;
  CHECK(v < copy);
  CHECK(v != copy);
  std::istringstream words("1 2 3");
  SmallVector<int, 2> read(std::istream_iterator<int>(words), std::istream_iterator<int>{});
  CHECK(read == SmallVector<int, 1>{1, 2, 3});
  CHECK(std::accumulate(read.rbegin(), read.rend(), 0) == 6);
}

TEST_CASE("a copy that throws leaks nothing and leaves the vector usable") {
  {
    SmallVector<Tracked, 2> v{1, 2};
    const Tracked extra(3);
    Tracked::copies_until_throw = 0;
    CHECK_THROWS(v.push_back(extra));
    CHECK_THROWS(v.insert(v.begin(), extra));
    Tracked::copies_until_throw = 1;
    CHECK_THROWS((SmallVector<Tracked, 2>(v)));
    Tracked::copies_until_throw = 2;
    CHECK_THROWS(v.resize(8, extra));
    Tracked::copies_until_throw = -1;
    CHECK(v == SmallVector<Tracked, 2>{1, 2});
    v.push_back(extra);
    CHECK(v == SmallVector<Tracked, 2>{1, 2, 3});
  }
  CHECK(Tracked::alive == 0);
}

TEST_CASE("a size no small vector can have is refused with both numbers") {
  SmallVector<char, 2> v;
  CHECK_THROWS_WITH_AS(v.reserve(size_t{1} << 33),
                       "SmallVector: 8589934592 elements asked for, at most 4294967295 fit.",
                       grapnel::Error);
}
