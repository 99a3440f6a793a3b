/// Process groups: what each collective does, channels and subgroups, timeouts and ranks that
/// differ.
#include <cmath>
#include <thread>

#include "grapnel/dist/communicator_mpi.h"
#include "ranks.h"

using namespace grapnel;
using namespace grapnel::test;
using dist::ReduceOp;

TEST_CASE("comm.11: every collective gives the same on every rank, in every type that it takes") {
  for (int ranks : {1, 2, 3, 4})
    on_ranks(ranks, [&](ProcessGroup group) {
      const int r = group.rank(), w = group.size();
      for (DType dtype : {kFloat32, kFloat64, kFloat16, kBFloat16, kInt64, kInt32, kUInt8}) {
        CAPTURE(dtype);
        const Tensor t = filled(r + 1, {3, 5}, dtype);
        group.all_reduce(t).wait();
        CHECK(all_are(t, w * (w + 1) / 2));
        CHECK(
            all_are(group.all_reduce(filled(r + 1, {7}, dtype), ReduceOp::max).single().wait(), w));
        CHECK(
            all_are(group.all_reduce(filled(r + 1, {7}, dtype), ReduceOp::min).single().wait(), 1));
        CHECK(all_are(group.all_reduce(filled(2, {7}, dtype), ReduceOp::product).single().wait(),
                      std::pow(2, w)));
        const auto all = group.all_gather(filled(r, {2, 2}, dtype)).wait();
        for (int i = 0; i < w; ++i) CHECK(all_are(all[static_cast<size_t>(i)], i));
        CHECK(all_are(group.broadcast(filled(r, {4}, dtype), w - 1).single().wait(), w - 1));
        Tensor parts = zeros({w, 3}, dtype);
        for (int i = 0; i < w; ++i) parts[i].fill_(10 * r + i);
        const Tensor swapped = group.all_to_all(parts).single().wait();
        for (int i = 0; i < w; ++i) CHECK(all_are(swapped[i], 10 * i + r));
        Tensor terms = zeros({w, 3}, dtype);
        for (int i = 0; i < w; ++i) terms[i].fill_(i + 1);
        const Tensor mine = group.reduce_scatter(terms).single().wait();
        CHECK(mine.shape() == Shape{1, 3});
        CHECK(all_are(mine, (r + 1) * w));
      }
      group.barrier().wait();
    });
}

TEST_CASE("flags can be combined, and empty tensors can be sent") {
  on_ranks(2, [](ProcessGroup group) {
    const Tensor any = tensor({group.rank() == 1, false});
    group.all_reduce(any, ReduceOp::max).wait();
    CHECK(equal(any, tensor({true, false})));
    CHECK(group.all_reduce(zeros({0})).single().wait().numel() == 0);
  });
}

TEST_CASE("tensors of any layout take part") {
  on_ranks(2, [](ProcessGroup group) {
    Tensor t = filled(group.rank() + 1, {4, 6});
    Tensor column = t.select(1, 2);
    CHECK(!column.is_contiguous());
    group.all_reduce(column).wait();
    CHECK(all_are(column, 3));
    CHECK(all_are(t.select(1, 1), group.rank() + 1));
    const auto gathered = group.all_gather(t.t()).wait();
    CHECK(gathered[0].shape() == Shape{6, 4});
  });
}

TEST_CASE("messages with the same tag arrive in order, and tags do not mix") {
  on_ranks(2, [](ProcessGroup group) {
    const int other = 1 - group.rank();
    std::vector<dist::Work> sent;
    for (int i = 0; i < 4; ++i)
      sent.push_back(group.send(filled(100 * group.rank() + i), other, i % 2));
    for (int i : {1, 0, 3, 2}) {
      const Tensor t = filled(-1);
      group.recv(t, other, i % 2).wait();
      CHECK(number(t) == 100 * other + (i == 1 ? 1 : i == 0 ? 0 : i == 3 ? 3 : 2));
    }
    for (auto& s : sent) s.wait();
  });
}

TEST_CASE("16-bit sums round at every step, in the order of ranks") {
  if (dist::launched_by_mpi()) return;  // The order is the library's there.
  on_ranks(3, [](ProcessGroup group) {
    const double values[] = {2048, 1, 1};
    CHECK(number(group.all_reduce(filled(values[group.rank()], {1}, kFloat16)).single().wait()) ==
          2048);
    const double other[] = {1, 1, 2048};
    CHECK(number(group.all_reduce(filled(other[group.rank()], {1}, kFloat16)).single().wait()) ==
          2050);
  });
}

TEST_CASE(
    "comm.D13: three ranks divide first and add in the order of ranks, with the same bits "
    "everywhere") {
  on_ranks(3, [](ProcessGroup group) {
    const float g[] = {1, 2, 4};
    const Tensor t = filled(g[group.rank()]);
    t.div_(3);
    group.all_reduce(t).wait();
    const float expected = std::bit_cast<float>(0x40155556u);
    CHECK(t.item<float>() == expected);
  });
}

TEST_CASE("subgroups work beside one another, and ranks left out get none") {
  on_ranks(4, [](ProcessGroup group) {
    const ProcessGroup low = group.subgroup({0, 1}), high = group.subgroup({3, 2});
    CHECK(static_cast<bool>(low) == (group.rank() < 2));
    const ProcessGroup own = low ? low : high;
    CHECK(own.size() == 2);
    CHECK(own.rank() == (group.rank() == 0 || group.rank() == 3 ? 0 : 1));
    CHECK(number(own.all_reduce(filled(group.rank())).single().wait()) == (low ? 1 : 5));
    CHECK(has(error_of<Error>([&] { group.subgroup({0, 7}); }), "there is no rank 7"));
    CHECK(has(error_of<Error>([&] { group.subgroup({1, 1}); }), "listed twice"));
  });
}

TEST_CASE("channels keep orders of their own, and sequence numbers count the calls") {
  on_ranks(2, [](ProcessGroup group) {
    const ProcessGroup a = group.channel("a"), b = group.channel("b");
    CHECK(group.channel("a") == a);
    std::vector<Future<Tensor>> sums;
    // The ranks use the two channels in opposite orders.
    for (const ProcessGroup& c : group.rank() == 0 ? std::vector{a, b} : std::vector{b, a})
      sums.push_back(c.all_reduce(filled(c == a ? 1 : 10)).single());
    if (group.rank() == 1) std::swap(sums[0], sums[1]);
    CHECK(number(sums[0].wait()) == 2);
    CHECK(number(sums[1].wait()) == 20);
    CHECK(a.sequence() == 1);
    CHECK(a.all_reduce(filled(1)).sequence() == 1);
    CHECK(a.name().ends_with("/a"));
    a.barrier().wait();
  });
}

TEST_CASE("bytes sent are what was handed over, channels included") {
  on_ranks(2, [](ProcessGroup group) {
    const uint64_t before = group.bytes_sent();
    group.all_reduce(zeros({10}, kFloat16)).wait();
    group.channel("c").all_gather(zeros({3}, kFloat64)).wait();
    CHECK(group.bytes_sent() - before == 44);
  });
}

TEST_CASE("comm.E18: ranks that call different collectives are told both calls, on every rank") {
  if (dist::launched_by_mpi()) return;
  on_ranks(3, [](ProcessGroup group) {
    group.barrier().wait();
    const std::string text = error_of<dist::CommError>([&] {
      if (group.rank() == 1) group.all_gather(zeros({4})).wait();
      else group.all_reduce(zeros({5})).wait();
    });
    CHECK(has(text, "all_reduce(sum, f32, 5 elements)"));
    CHECK(has(text, "rank 1 called all_gather(f32, 4 elements)"));
    CHECK(has(text, "number 1"));
    CHECK(has(error_of<dist::CommAborted>([&] { group.barrier().wait(); }), "was refused"));
    const ProcessGroup fresh = group.renew();
    CHECK(number(fresh.all_reduce(filled(1)).single().wait()) == 3);
  });
  for (int kind = 0; kind < 4; ++kind)
    on_ranks(2, [&](ProcessGroup group) {
      const bool odd = group.rank() == 1;
      const auto call = [&] {
        if (kind == 0) group.all_reduce(zeros({4}, odd ? kFloat64 : kFloat32)).wait();
        if (kind == 1) group.all_reduce(zeros({odd ? 4 : 5})).wait();
        if (kind == 2) group.broadcast(zeros({4}), odd ? 1 : 0).wait();
        if (kind == 3) odd ? group.send(zeros({4}), 0).wait() : group.recv(zeros({5}), 1).wait();
      };
      CHECK(has(error_of<dist::CommError>(call), "elements"));
    });
}

TEST_CASE(
    "comm.E17: a collective that a rank does not join ends in a timeout that says who is missing") {
  if (dist::launched_by_mpi())
    return;  // After a timeout MPI cannot be ended properly; see check_faults.py.
  on_ranks(3, [](ProcessGroup group) {
    const ProcessGroup line = group.channel("bucket 3");
    group.set_timeout(200ms);
    line.barrier().wait();
    if (group.rank() != 2) {
      const std::string text =
          error_of<dist::CommError>([&] { line.all_reduce(zeros({5})).wait(); });
      CHECK(has(text, "all_reduce(sum, f32, 5 elements), number 1 of group '"));
      CHECK(has(text, "bucket 3'"));
      CHECK(has(text, "after 200 ms"));
      CHECK(has(text, "rank 2"));
      CHECK(group.aborted());
    }
  });
}

TEST_CASE("a timeout starts with the call, not with the wait") {
  if (dist::launched_by_mpi()) return;
  on_ranks(2, [](ProcessGroup group) {
    group.set_timeout(100ms);
    if (group.rank() == 0) {
      const auto work = group.barrier();
      while (!work.future().done()) std::this_thread::sleep_for(1ms);
      CHECK_THROWS_AS(work.wait(), dist::CommTimeout);
    }
  });
}

TEST_CASE("an exception on one rank ends the others, and reaches the caller") {
  if (dist::launched_by_mpi()) return;
  std::atomic<int> aborted{0};
  const auto run = [&] {
    dist::run_threads(3, [&](ProcessGroup group) {
      if (group.rank() == 1) throw Error("rank 1 has had enough");
      try {
        group.barrier().wait();
      } catch (const dist::CommAborted&) {
        ++aborted;
        throw;
      }
    });
  };
  CHECK(error_of<Error>(run) == "rank 1 has had enough");
  CHECK(aborted == 2);
}

TEST_CASE("processes that srun started without MPI are told that each is alone") {
  if (dist::launched_by_mpi()) return;
  std::vector<std::string> warnings;
  set_warning_handler([&](const std::string& text) { warnings.push_back(text); });
  setenv("SLURM_STEP_NUM_TASKS", "2", 1);
  CHECK(dist::init().size() == 1);
  unsetenv("SLURM_STEP_NUM_TASKS");
  set_warning_handler([](const std::string& text) { std::fputs((text + "\n").c_str(), stderr); });
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0] ==
        "dist::init: srun started 2 processes without telling them about each other, so each is "
        "alone in a group of one.\nStart them with srun --mpi=pmix, or with mpirun.");
}

TEST_CASE("without a launcher init gives a group of one, on which everything is the identity") {
  if (dist::launched_by_mpi()) return;
  const ProcessGroup group = dist::init();
  CHECK(group.size() == 1);
  CHECK(number(group.all_reduce(filled(4)).single().wait()) == 4);
  CHECK(number(group.of_this_machine().all_reduce(filled(4)).single().wait()) == 4);
}

TEST_CASE("ranks of one machine find each other") {
  if (dist::launched_by_mpi()) return;
  dist::run_threads(4,
                    [](ProcessGroup group) {
                      const ProcessGroup own = group.of_this_machine();
                      CHECK(own.size() == 2);
                      CHECK(number(own.all_reduce(filled(group.rank())).single().wait()) ==
                            (group.rank() < 2 ? 1 : 5));
                    },
                    {.ranks_per_machine = 2});
}

TEST_CASE("groups that are gone give their communicators back, when what they began is done") {
  on_ranks(2, [](ProcessGroup group) {
    const int before = dist::open_mpi_lines();  // those of earlier tests may be on their way out;
                                                // none where ranks are threads
    for (int i = 0; i < 50; ++i) {
      const ProcessGroup some =
          i % 2 ? group.duplicate("copy") : group.subgroup({1, 0}, "reversed");
      const Tensor t = filled(group.rank() + 1.0, {1000});
      const dist::Work sum = some.all_reduce(t);
      if (i % 5 == 0) continue;  // The group goes first.
      sum.wait();
      CHECK(all_are(t, 3));
    }
    group.barrier().wait();
    for (int i = 0; i < 500 && dist::open_mpi_lines() > before; ++i)
      std::this_thread::sleep_for(10ms);
    CHECK(dist::open_mpi_lines() <= before);
  });
}

TEST_CASE("sums of every length are complete on all ranks, several at a time") {
  on_ranks(2, [](ProcessGroup group) {
    const double total = group.size() * (group.size() + 1) / 2.0;
    for (const DType dtype : {kFloat32, kFloat16, kBFloat16, kInt64}) {
      std::vector<Tensor> tensors;
      std::vector<dist::Work> sums;
      for (const int64_t n : {1, 2, 3, 511, 513, 4096, 65537, 262145, 1000003}) {
        tensors.push_back(filled(group.rank() + 1.0, {n}, dtype));
        sums.push_back(group.all_reduce(tensors.back()));
      }
      for (const dist::Work& w : sums) w.wait();
      for (const Tensor& t : tensors) CHECK(all_are(t, total));
    }
  });
}

TEST_CASE("sums are made in the order of ranks, whatever their length") {
  on_ranks(3, [](ProcessGroup group) {
    for (const DType dtype : {kFloat32, kFloat16})
      for (const int64_t n : {7, 1001, 100003, 1500001}) {
        const auto of_rank = [&](int r) {
          const Tensor index = arange(0, n, 1, kFloat32);
          return (sin(index * (r + 1.5)) + 0.1 * r).to(dtype);
        };
        Tensor sum = of_rank(0), least = of_rank(0);
        for (int r = 1; r < group.size(); ++r) {
          sum = sum + of_rank(r);
          least = minimum(least, of_rank(r));
        }
        const Tensor mine = of_rank(group.rank()), smallest = of_rank(group.rank());
        const dist::Work added = group.all_reduce(mine);
        group.all_reduce(smallest, dist::ReduceOp::min).wait();
        added.wait();
        CHECK(equal(mine, sum));
        CHECK(equal(smallest, least));
      }
  });
}

TEST_CASE("ranks that sum different numbers of elements get an error, and the next group works") {
  // Long ones in parts, short ones in one piece. check_faults.py has those that end in a timeout.
  on_ranks(2, [](ProcessGroup group) {
    for (const auto& [a, b] : {std::pair{1'000'000, 500'000}, {4, 8}, {8, 4}}) {
      const Tensor t = ones({group.rank() == 0 ? a : b});
      CHECK_THROWS_AS(group.all_reduce(t).wait(), dist::CommError);
      group = group.renew();
    }
    // Memory that was let go too early would be written to now.
    const Tensor fresh = zeros({1'000'000});
    const ProcessGroup next = group.renew();
    const Tensor one = ones({1});
    next.all_reduce(one).wait();
    CHECK(number(one) == 2);
    CHECK(all_are(fresh, 0));
  });
}

TEST_CASE("a message of another length than what waits for it is an error that says so") {
  for (const int64_t sent : {4, 8})
    on_ranks(2, [&](ProcessGroup group) {
      if (group.rank() == 0) {
        CHECK_THROWS_AS((group.send(ones({sent}), 1).wait(), group.barrier().wait()),
                        dist::CommError);
        return;
      }
      const std::string text = error_of<dist::CommMismatch>(
          [&] { group.recv(zeros({12 - sent}), 0).wait(); });
      CHECK(has(text, str("recv(from rank 0, tag 0, f32, ", 12 - sent, " elements)")));
      CHECK(has(text, "Both ends of a message need the same type and number of elements."));
    });
}
