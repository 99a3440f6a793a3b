// Failures of MPI that cannot be had from a healthy one: the engine drives a transport that fails
// where a test says. It has one rank.
#include "grapnel/dist/mpi_engine.h"

#include <future>

#include "tests/dist/ranks.h"

using namespace grapnel;
using namespace grapnel::test;
using dist::CommAborted;
using dist::MpiEngine;

namespace {

class Scripted final : public dist::MpiTransport {
 public:
  // What fails; a test sets it before the engine calls.
  bool connect_fails = false, split_fails = false;
  std::atomic<bool> start_fails{false}, test_fails{false};
  /// Operations of these kinds are not complete before they are let go.
  std::atomic<bool> holds_barriers{false}, holds_sums{false};
  std::atomic<int> started{0}, notes_sent{0};
  /// What another rank says next, or null; how often MPI was ended.
  std::function<const char*()> says = [] { return nullptr; };
  std::atomic<int> disconnected{0};
  bool any_thread = false;              ///< may make calls
  std::atomic<bool> overlapped{false};  ///< two calls were made at a time

  bool allows_thread() const override { return true; }
  bool allows_any_thread() const override { return any_thread; }
  void connect() override {
    if (connect_fails) throw std::runtime_error("no daemon");
  }
  int rank(Line) const override { return 0; }
  int size(Line) const override { return 1; }
  Ticket start(Line, const dist::MpiOperation& operation) override {
    const Inside inside(*this);
    if (start_fails) throw std::runtime_error("cannot start");
    kinds_.push_back(operation.call.kind);
    ++started;
    return static_cast<Ticket>(kinds_.size());
  }
  bool test(Ticket ticket) override {
    const Inside inside(*this);
    if (ticket == 0) return true;
    if (test_fails) throw std::runtime_error("cannot test");
    const dist::CallKind kind = kinds_[static_cast<size_t>(ticket - 1)];
    return kind == dist::CallKind::barrier ? !holds_barriers : !holds_sums;
  }
  Ticket start_duplicate(Line, Line* made) override {
    *made = next_line_++;
    return 0;
  }
  Line split(Line, const int*, int) override {
    if (split_fails) throw std::runtime_error("cannot split");
    return next_line_++;
  }
  Line create(const int*, int, int) override { return next_line_++; }
  void close(Line) override {}
  int open_lines() const override { return next_line_; }
  void send_note(const char*) override { ++notes_sent; }
  const char* next_note() override {
    const Inside inside(*this);
    return says();
  }
  void disconnect() override { ++disconnected; }
  void set_largest_count(int64_t) override {}
  void set_apart() override {}

 private:
  struct Inside {
    explicit Inside(Scripted& t) : transport(t) {
      if (++transport.inside_ > 1) transport.overlapped = true;
    }
    ~Inside() { --transport.inside_; }
    Scripted& transport;
  };
  std::atomic<int> inside_{0};
  std::vector<dist::CallKind> kinds_;
  Line next_line_ = 1;
};

/// A world over a scripted transport.
struct World {
  explicit World(Scripted& transport, dist::MpiOptions options = {})
      : engine(transport, options), group(dist::world_of(engine), 60s) {}
  ~World() {
    group = {};
    engine.shut_down();
  }
  MpiEngine engine;
  ProcessGroup group;
};

template <class Condition>
bool eventually(Condition&& condition) {
  for (const auto end = dist::Clock::now() + 20s; !condition();) {
    if (dist::Clock::now() > end) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

/// Hands over a sum whose memory nobody else keeps.
std::weak_ptr<dist::Operation> post_sum(MpiEngine& engine, const dist::FatePtr& fate,
                                        Future<std::vector<Tensor>>& done) {
  auto op = std::make_shared<dist::Operation>();
  op->call = {.kind = dist::CallKind::all_reduce, .count = 4};
  op->output = ones({4});
  op->deadline = dist::Clock::now() + 60s;
  op->done = done = Future<std::vector<Tensor>>::make(engine.executor());
  auto posted = std::make_shared<dist::Posted>();
  posted->op = op;
  posted->fate = fate;
  posted->group = "world";
  posted->line = dist::MpiTransport::kWorld;
  engine.post(posted);
  return op;
}

}  // namespace

TEST_CASE("a failure to connect comes out of the call that connects, which can be made again") {
  Scripted transport;
  transport.connect_fails = true;
  const auto connect = [&] { World world(transport); };
  CHECK(error_of<std::runtime_error>(connect) == "no daemon");
  transport.connect_fails = false;
  World world(transport);
  CHECK(number(world.group.all_reduce(filled(3)).single().wait()) == 3);
}

TEST_CASE("an operation that MPI cannot start fails with its group, and other groups go on") {
  for (const bool compared : {false, true}) {
    CAPTURE(compared);
    Scripted transport;
    World world(transport, {.check_calls = compared});
    const ProcessGroup other = world.group.renew();
    transport.start_fails = true;
    const auto sum = [&] { world.group.all_reduce(ones({4})).wait(); };
    CHECK(has(error_of<CommAborted>(sum),
              "all_reduce(sum, f32, 4 elements), number 0 of group 'world', failed: cannot start"));
    transport.start_fails = false;
    CHECK(has(error_of<CommAborted>(sum), "number 1 of group 'world', was refused"));
    CHECK(eventually([&] { return transport.notes_sent == 1; }));
    CHECK_NOTHROW(other.barrier().wait());
  }
}

TEST_CASE("an operation that MPI fails at later fails with its group, and other groups go on") {
  for (const bool compared : {false, true}) {
    CAPTURE(compared);
    Scripted transport;
    World world(transport, {.check_calls = compared});
    const ProcessGroup other = world.group.renew();
    transport.test_fails = true;
    const auto sum = [&] { world.group.all_reduce(ones({4})).wait(); };
    CHECK(has(error_of<CommAborted>(sum), "failed: cannot test"));
    transport.test_fails = false;
    CHECK(has(error_of<CommAborted>(sum), "was refused"));
    CHECK_NOTHROW(other.barrier().wait());
  }
}

TEST_CASE("memory of an operation that MPI failed at is kept, since MPI may still write to it") {
  Scripted transport;
  World world(transport);
  for (std::atomic<bool>* fails : {&transport.start_fails, &transport.test_fails}) {
    *fails = true;
    Future<std::vector<Tensor>> done;
    const auto op = post_sum(world.engine, world.engine.ledger().fate(str(fails)), done);
    CHECK_THROWS_AS(done.wait(), CommAborted);
    *fails = false;
    world.group.barrier().wait();  // by then the engine has forgotten what it wants to
    CHECK_FALSE(op.expired());
  }
  Future<std::vector<Tensor>> done;
  const auto op = post_sum(world.engine, world.engine.ledger().fate("fine"), done);
  done.wait();
  CHECK(eventually([&] { return op.expired(); }));
}

TEST_CASE("what is thrown while an operation completes fails its group, not the next in line") {
  Scripted transport;
  World world(transport);
  const ProcessGroup other = world.group.renew();
  transport.split_fails = transport.holds_barriers = transport.holds_sums = true;
  // A group of nobody is not one of all, so MPI has to split; it does so when a barrier is
  // complete.
  auto split = std::async(std::launch::async, [&] {
    return error_of<dist::CommError>([&] { dist::world_of(world.engine)->split({}, "part"); });
  });
  CHECK(eventually([&] { return transport.started == 1; }));
  const Future<Tensor> sum = other.all_reduce(filled(5)).single();
  CHECK(eventually([&] { return transport.started == 2; }));
  transport.holds_barriers = false;
  CHECK(eventually([&] { return world.group.aborted() || sum.done(); }));
  world.group.abort("the end of the test");  // so that it ends in any case
  CHECK(has(split.get(), "subgroup(), number 0 of group 'world', failed: cannot split"));
  CHECK_FALSE(sum.done());
  transport.holds_sums = false;
  CHECK(number(sum.wait()) == 5);
}

TEST_CASE(
    "threads that wait at the same time make calls of MPI one at a time, and none is forgotten") {
  Scripted transport;
  transport.any_thread = !dist::launched_by_mpi();  // The process has one that drives.
  World world(transport);
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int k = 0; k < 4; ++k)
    threads.emplace_back([&right, k, group = world.group.renew()] {
      for (int i = 0; i < 200; ++i) {
        const dist::Work sum = group.all_reduce(filled(i));
        if (i % 50 == 49) std::this_thread::sleep_for(k * 1ms);  // not at once
        right += i % 2 ? number(sum.wait()[0]) == i : number(sum.single().wait()) == i;
      }
    });
  for (std::thread& t : threads) t.join();
  CHECK(right == 800);
  CHECK_FALSE(transport.overlapped);
}

TEST_CASE("what was late on one rank counts as late on those that are told") {
  auto note = Future<std::string>::make();
  dist::MpiLedger late([note](std::string text) { note.set_result(std::move(text)); });
  auto posted = std::make_shared<dist::Posted>();
  posted->op = std::make_shared<dist::Operation>();
  posted->op->deadline = dist::Clock::now();
  posted->op->done = Future<std::vector<Tensor>>::make();
  posted->fate = late.fate("world");
  CHECK(late.enter(posted));
  CHECK_THROWS_AS(posted->op->done.wait(), dist::CommTimeout);
  // So it does not wait for the dead when it ends.
  dist::MpiLedger told([](const std::string&) {});
  told.hear(note.wait());
  CHECK(told.failed(told.fate("world")));
  CHECK(told.timed_out());
  dist::MpiLedger other([](const std::string&) {});
  other.hear("world\nit has thrown");
  CHECK(other.failed(other.fate("world")));
  CHECK_FALSE(other.timed_out());
}

TEST_CASE("the last words of a rank end all groups, and those to come") {
  dist::MpiLedger ledger([](const std::string&) {});
  const dist::FatePtr before = ledger.fate("world");
  ledger.hear(dist::MpiLedger::last_words("rank 1 is gone"));
  CHECK(ledger.failed(before));
  CHECK(before->text == "rank 1 is gone");
  CHECK(ledger.failed(ledger.fate("a renewed one")));
  CHECK(ledger.timed_out());
}

TEST_CASE("a rank that has just heard of a failure listens for last words before it ends MPI") {
  for (const bool dies : {true, false}) {
    Scripted transport;
    const std::string last = dist::MpiLedger::last_words("rank 1 is gone");
    std::atomic<int> told{0};
    dist::Clock::time_point gone;
    // It gives up, and is gone a moment later.
    transport.says = [&]() -> const char* {
      if (told == 0) {
        gone = dist::Clock::now() + 100ms;
        ++told;
        return "world\nrank 1 gave up";
      }
      if (!dies || told > 1 || dist::Clock::now() < gone) return nullptr;
      ++told;
      return last.c_str();
    };
    {
      World world(transport);
      CHECK(eventually([&] { return told > 0; }));
    }
    CHECK(transport.disconnected == (dies ? 0 : 1));
  }
}
