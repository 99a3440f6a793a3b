/// Futures: rules F1 to F6.
#include <thread>

#include "ranks.h"

using namespace grapnel;
using namespace grapnel::test;

TEST_CASE(
    "comm.F1: callbacks run once, in the order of attachment; one attached to a complete future "
    "runs at once") {
  auto f = Future<int>::make();
  std::vector<int> seen;
  std::vector<Future<dist::Done>> all;
  for (int i = 0; i < 5; ++i)
    all.push_back(f.then([&seen, i](int v) { seen.push_back(10 * v + i); }));
  const Future<int> twice = f.then([](Future<int> done) { return 2 * done.value(); });
  f.set_result(1);
  for (auto& a : all) a.wait();
  CHECK(seen == std::vector{10, 11, 12, 13, 14});
  CHECK(twice.wait() == 2);

  const auto here = std::this_thread::get_id();
  std::thread::id where;
  Future<int> complete(3);
  CHECK(complete.then([&](int v) { return where = std::this_thread::get_id(), v + 1; }).value() ==
        4);
  CHECK(where == here);
}

TEST_CASE(
    "comm.F1: what a callback throws becomes the error of its future, and passes by callbacks that "
    "want a value") {
  Future<int> f(1);
  const auto failed = f.then([](int) -> int { throw Error("broken"); });
  bool called = false;
  const auto after = failed.then([&](int) { called = true; });
  CHECK(error_of<Error>([&] { after.wait(); }) == "broken");
  CHECK(!called);
  CHECK(failed.then([](Future<int> done) { return done.has_error(); }).wait());
}

TEST_CASE("comm.F1: a callback that returns a future is followed") {
  auto inner = Future<int>::make();
  const Future<int> outer = Future<int>(1).then([&](int) { return inner; });
  CHECK(!outer.done());
  inner.set_result(5);
  CHECK(outer.wait() == 5);
}

TEST_CASE(
    "comm.F2: wait returns the value or throws; value needs a complete future; completing twice is "
    "an error") {
  auto f = Future<int>::make();
  CHECK(has(error_of<Error>([&] { f.value(); }), "has not arrived"));
  std::thread([&] { f.set_result(7); }).join();
  CHECK(f.wait() == 7);
  CHECK(has(error_of<Error>([&] { f.set_result(8); }), "completed before"));
  CHECK(has(error_of<Error>([&] { f.set_error(std::make_exception_ptr(Error("late"))); }),
            "completed before"));
  CHECK(f.value() == 7);
  const auto bad = Future<int>::failed(std::make_exception_ptr(Error("no luck")));
  CHECK(error_of<Error>([&] { bad.wait(); }) == "no luck");
  CHECK(has(error_of<Error>([] { Future<int>().wait(); }), "empty"));
}

TEST_CASE(
    "comm.F5: a callback may start a collective and wait for it, several levels deep and on all "
    "ranks at once") {
  on_ranks(3, [](ProcessGroup group) {
    std::vector<Future<Tensor>> results;
    for (int i = 0; i < 8; ++i) {
      const ProcessGroup channel = group.channel(str("part ", i));
      results.push_back(channel.all_reduce(filled(1)).single().then([channel](const Tensor& sum) {
        const Tensor again = channel.all_reduce(sum.clone()).single().wait();
        return channel.all_reduce(again.clone())
            .single()
            .then([](const Tensor& t) { return t + 1; })
            .wait();
      }));
    }
    for (auto& r : results) CHECK(number(r.wait()) == 28);
  });
}

TEST_CASE("comm.F5: callbacks of one rank never run at the same moment") {
  on_ranks(2, [](ProcessGroup group) {
    std::atomic<int> inside{0}, worst{0}, runs{0};
    std::vector<Future<dist::Done>> all;
    for (int i = 0; i < 50; ++i)
      all.push_back(group.all_reduce(filled(1)).future().then([&](const std::vector<Tensor>&) {
        worst = std::max(worst.load(), ++inside);
        ++runs;
        --inside;
      }));
    for (auto& f : all) f.wait();
    CHECK(runs == 50);
    CHECK(worst == 1);
  });
}

TEST_CASE("comm.F6: work yields the list of results, and single() the only one") {
  on_ranks(2, [](ProcessGroup group) {
    const auto work = group.all_reduce(filled(group.rank() + 1));
    CHECK(work.future().wait().size() == 1);
    CHECK(number(work.single().wait()) == 3);
    const Future<Tensor> direct = group.broadcast(filled(group.rank() + 5));
    CHECK(number(direct.wait()) == 5);
    CHECK(group.all_gather(filled(1)).wait().size() == 2);
    CHECK(group.barrier().wait().empty());
    CHECK(has(error_of<Error>([&] { group.all_gather(filled(1)).single().wait(); }), "2 results"));
  });
}

TEST_CASE("a future that then() or forward_to() completes is completed by nobody else") {
  const auto source = Future<int>::make();
  const Future<int> next = source.then([](int x) { return x + 1; });
  CHECK(has(error_of<Error>([&] { next.set_result(7); }), "that then() returned"));
  CHECK(has(error_of<Error>([&] { next.set_error(std::make_exception_ptr(1)); }), "then()"));
  const auto target = Future<int>::make();
  next.forward_to(target);
  CHECK(has(error_of<Error>([&] { target.set_result(7); }), "forward_to() was given"));
  CHECK(has(error_of<Error>([&] { next.forward_to(target); }), "another forward_to()"));
  CHECK(has(error_of<Error>([&] { next.forward_to(Future<int>(1)); }), "complete already"));
  source.set_result(1);
  CHECK(target.wait() == 2);
}
