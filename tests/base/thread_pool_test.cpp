#include "grapnel/base/thread_pool.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "grapnel/base/error.h"
#include "grapnel/base/on_this_thread.h"

namespace {

using grapnel::get_num_threads;
using grapnel::set_num_threads;
using grapnel::base::parallel_for;

struct Threads {
  explicit Threads(int count) { set_num_threads(count); }
  ~Threads() { set_num_threads(before); }
  int before = get_num_threads();
};

std::vector<std::pair<int64_t, int64_t>> pieces_of(int64_t count, int64_t grain) {
  std::vector<std::pair<int64_t, int64_t>> pieces(static_cast<size_t>(count));
  std::atomic<size_t> used{0};
  parallel_for(count, grain, [&](int64_t begin, int64_t end) { pieces[used++] = {begin, end}; });
  pieces.resize(used);
  std::sort(pieces.begin(), pieces.end());
  return pieces;
}

bool sums_right(int64_t count, int64_t grain) {
  std::vector<int> touched(static_cast<size_t>(count), 0);
  parallel_for(count, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) ++touched[static_cast<size_t>(i)];
  });
  return std::all_of(touched.begin(), touched.end(), [](int n) { return n == 1; });
}

}  // namespace

TEST_CASE("parallel_for visits every item exactly once") {
  for (int threads : {1, 2, 5}) {
    const Threads scope(threads);
    for (int64_t count : {0, 1, 2, 7, 64, 1000}) {
      for (int64_t grain : {1, 3, 64, 5000}) CHECK(sums_right(count, grain));
    }
  }
}

TEST_CASE("the pieces do not depend on the number of threads") {
  const Threads one(1);
  const auto expected = pieces_of(103, 10);
  CHECK(expected.size() == 11);
  CHECK(expected.back() == std::pair<int64_t, int64_t>{100, 103});
  set_num_threads(4);
  CHECK(pieces_of(103, 10) == expected);
}

TEST_CASE("several threads take part when there is work for them") {
  const Threads scope(3);
  std::atomic<int> present{0};
  parallel_for(3, 1, [&](int64_t, int64_t) {
    ++present;
    while (present < 3) std::this_thread::yield();  // only ends if three threads are here at once
  });
  CHECK(present == 3);
}

TEST_CASE("with one piece or one thread everything runs on the caller") {
  const Threads scope(4);
  const auto caller = std::this_thread::get_id();
  parallel_for(100, 100, [&](int64_t, int64_t) { CHECK(std::this_thread::get_id() == caller); });
  set_num_threads(1);
  parallel_for(100, 1, [&](int64_t, int64_t) { CHECK(std::this_thread::get_id() == caller); });
}

TEST_CASE("a nested parallel_for runs on the thread that called it") {
  const Threads scope(3);
  std::atomic<int> items{0}, strangers{0};
  parallel_for(8, 1, [&](int64_t, int64_t) {
    const auto self = std::this_thread::get_id();
    parallel_for(10, 3, [&](int64_t begin, int64_t end) {
      items += static_cast<int>(end - begin);
      if (std::this_thread::get_id() != self) ++strangers;
    });
  });
  CHECK(items == 80);
  CHECK(strangers == 0);
}

TEST_CASE("work in the background stays on its thread and leaves the pool to others") {
  const Threads scope(3);
  std::thread([] {
    const grapnel::base::OnThisThread background;
    const auto self = std::this_thread::get_id();
    parallel_for(100, 1, [&](int64_t, int64_t) { CHECK(std::this_thread::get_id() == self); });
  }).join();
}

TEST_CASE("an exception reaches the caller and the pool stays usable") {
  for (int threads : {1, 2, 4}) {
    const Threads scope(threads);
    for (int round = 0; round < 50; ++round) {
      CHECK_THROWS_WITH_AS(parallel_for(64, 1,
                                        [&](int64_t begin, int64_t) {
                                          if (begin >= 20) throw std::runtime_error("piece failed");
                                        }),
                           "piece failed", std::runtime_error);
      CHECK(sums_right(64, 1));
    }
  }
}

TEST_CASE("several user threads may call at once") {
  const Threads scope(2);
  std::atomic<int> wrong{0};
  std::vector<std::thread> users;
  for (int u = 0; u < 4; ++u) {
    users.emplace_back([&] {
      for (int round = 0; round < 500; ++round) wrong += !sums_right(100, 9);
    });
  }
  for (std::thread& user : users) user.join();
  CHECK(wrong == 0);
}

TEST_CASE("the number of threads may change at any time, also inside a piece") {
  const Threads scope(2);
  for (int round = 0; round < 100; ++round) {
    set_num_threads(1 + round % 5);
    CHECK(get_num_threads() == 1 + round % 5);
    CHECK(sums_right(37, 2));
  }
  set_num_threads(3);
  parallel_for(10, 1,
               [](int64_t begin, int64_t) { set_num_threads(1 + static_cast<int>(begin) % 4); });
  CHECK(sums_right(37, 2));
}

TEST_CASE("set_num_threads says what it accepts") {
  CHECK_THROWS_WITH_AS(set_num_threads(0),
                       "set_num_threads: the number is 0.\nGive the number of threads that may "
                       "compute, the caller's "
                       "included: from 1 to 1024.",
                       grapnel::Error);
}

TEST_CASE("every piece computes with the caller's rounding mode") {
  const Threads scope(3);
  volatile double one = 1.0, three = 3.0;
  const double nearest = one / three;
  std::fesetround(FE_UPWARD);
  const double upward = one / three;
  std::atomic<int> different{0};
  parallel_for(200, 1, [&](int64_t, int64_t) { different += one / three != upward; });
  std::fesetround(FE_TONEAREST);
  CHECK(upward != nearest);
  CHECK(different == 0);
  parallel_for(200, 1, [&](int64_t, int64_t) { different += one / three != nearest; });
  CHECK(different == 0);
}

TEST_CASE("the workers of an idle pool sleep") {
  const Threads scope(3);
  CHECK(sums_right(1000, 1));
  const auto running_threads = [] {
    int running = 0;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      std::string line;
      std::getline(std::ifstream(task.path() / "stat") >> std::ws, line);
      const size_t state = line.rfind(')') + 2;
      running += state < line.size() && line[state] == 'R';
    }
    return running;
  };
  bool asleep = false;
  for (int look = 0; look < 200 && !asleep; ++look) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    asleep = running_threads() == 1;  // the one that looks
  }
  CHECK(asleep);
}

TEST_CASE("a forked child computes on its own thread") {
  const Threads scope(3);
  CHECK(sums_right(100, 1));  // the workers exist now
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) _exit(sums_right(100, 1) ? 0 : 1);
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(sums_right(100, 1));
}
