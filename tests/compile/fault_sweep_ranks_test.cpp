/// Fault sweeps of data-parallel training: one failure at every place of a step of one rank. That
/// rank ends with its own error and the other one is told at once; on both, parameters and what the
/// optimiser remembers are those of a run that never failed up to some place of a step, and
/// gradients are a rank's own, the mean, or what was there before.
///
/// Every third place is tried, and all with GRAPNEL_FAULT_SWEEP=all. See
/// docs/notes/027-a-step-that-fails.md.
#include "grapnel/dist/dist.h"
#include "tests/compile/failing.h"

using namespace grapnel;
using namespace grapnel::failing;
using namespace std::chrono_literals;

namespace {

constexpr int kRanks = 2, kSteps = 3, kFails = 1;
/// Nobody passes by waiting for it.
constexpr auto kNever = 10min;

using How = std::optional<CompileOptions>;

/// One rank's model and data.
struct Rank {
  nn::Sequential net{nn::Linear(6, 8), nn::Tanh(), nn::Linear(8, 8), nn::ReLU(), nn::Linear(8, 3)};
  std::vector<Tensor> params = net->parameters();
  std::shared_ptr<optim::Adam> opt = std::make_shared<optim::Adam>(params, 0.01);
  Tensor x, target = arange(12).remainder(3);

  explicit Rank(int rank) {
    Generator draws(static_cast<uint64_t>(5 + rank));
    x = randn({12, 6}, draws);
  }
  Snapshot look() const { return failing::look({}, params, *opt); }
  std::vector<Tensor> own_grads() const {
    return autograd::grad({cross_entropy(net(x), target)}, params);
  }
};

/// What became of a rank. Made on its thread, looked at when all have ended.
struct Outcome {
  std::vector<Snapshot> states;  ///< before each step, and in the end
  std::vector<std::vector<Tensor>> own_grads;
  int step = 0;  ///< the one that it was in
  bool own_error = false, told = false;
  std::string error;
};
using Outcomes = std::array<Outcome, kRanks>;

struct NoFault {
  explicit NoFault(int64_t) {}
};

/// Trains on two ranks, of which `unlucky` fails at place `at` of its second step.
template <class Fault>
Outcomes train(const How& how, int unlucky, int64_t at, bool opaque) {
  Outcomes outcomes;
  manual_seed(3);
  dist::run_threads(
      kRanks,
      [&](const dist::ProcessGroup& group) {
        Outcome& out = outcomes[static_cast<size_t>(group.rank())];
        Rank rank(group.rank());
        if (opaque)
          for (const Tensor& p : rank.params) {
            p.register_hook(OpaqueCall::place());
            p.register_post_accumulate_grad_hook(OpaqueCall::place());
          }
        try {
          dist::DistributedDataParallel model(rank.net, group,
                                              {.buckets = {{4, 5}, {2, 3}, {0, 1}}});
          const auto body = [&] {
            rank.opt->zero_grad();
            const Tensor loss = cross_entropy(model(rank.x), rank.target);
            if (opaque) invoke(OpaqueCall::place(), loss.detach());
            loss.backward();
            if (opaque) invoke(OpaqueCall::place(), loss.detach());
            rank.opt->step();
            if (opaque) invoke(OpaqueCall::place(), loss.detach());
          };
          const std::function<void()> step =
              how ? std::function<void()>(compile(body, *how)) : body;
          for (; out.step < kSteps; ++out.step) {
            if (std::is_same_v<Fault, NoFault>) {
              out.states.push_back(rank.look());
              out.own_grads.push_back(rank.own_grads());
            }
            if (out.step == kFails && group.rank() == unlucky) {
              const Fault fault(at);
              step();
            } else {
              step();
            }
          }
        } catch (const dist::CommAborted& e) {
          out.told = true;
          out.error = e.what();
        } catch (const std::exception& e) {
          out.own_error = !dynamic_cast<const dist::CommError*>(&e);
          out.error = e.what();
        }
        out.states.push_back(rank.look());
      },
      {.timeout = kNever});
  return outcomes;
}

bool is_any(const Tensor& g, std::initializer_list<const Tensor*> allowed) {
  return std::ranges::any_of(allowed, [&](const Tensor* t) { return same(g, *t); });
}

/// Against the rank's outcome in a run that never failed.
void check_rank(const Outcome& now, const Outcome& whole, bool eager) {
  const auto i = static_cast<size_t>(now.step);
  REQUIRE(i < kSteps);
  const Snapshot &before = whole.states[i], &after = whole.states[i + 1], &left = now.states.back();
  // Eager Adam counts all parameters before it moves them together.
  check_between(before, left, after, {.halves = eager ? 2 : 1, .counts_first = eager});
  for (size_t k = 0; k < left.grads.size(); ++k) {
    CAPTURE(k);
    const Tensor none;
    CHECK(is_any(left.grads[k],
                 {&none, &before.grads[k], &after.grads[k], &whole.own_grads[i][k]}));
  }
  CHECK(left.generator == before.generator);
}

/// How many places there are.
template <class Fault>
int64_t sweep(const How& how, int64_t stride, bool opaque = false) {
  const Outcomes whole = train<NoFault>({}, -1, 0, opaque);
  int64_t failures = 0;
  for (int64_t at = 0;; at += stride) {
    CAPTURE(at);
    const int unlucky = static_cast<int>(at / stride % kRanks);
    const Outcomes now = train<Fault>(how, unlucky, at, opaque);
    const Outcome &one = now[static_cast<size_t>(unlucky)],
                  &other = now[static_cast<size_t>(1 - unlucky)];
    if (one.error.empty()) {
      for (size_t r = 0; r < kRanks; ++r) {
        CHECK(now[r].error == "");
        CHECK(same(now[r].states.back(), whole[r].states.back()));
      }
      return failures;
    }
    ++failures;
    CAPTURE(one.error);
    CAPTURE(other.error);
    CHECK(one.own_error);
    CHECK(one.step == kFails);
    CHECK(other.told);
    CHECK(other.step >= kFails);
    for (size_t r = 0; r < kRanks; ++r) {
      CAPTURE(r);
      check_rank(now[r], whole[r], !how);
    }
  }
}

}  // namespace

TEST_CASE("two data-parallel ranks end together when one fails at any place of a step") {
  const int64_t stride = sweeps_all() ? 1 : 3;
  std::string counts = str("no graph: ", sweep<base::AllocationFault>({}, stride), " allocations, ",
                           sweep<TapeOp>({}, stride), " ops and nodes, ",
                           sweep<OpaqueCall>({}, stride, true), " opaque calls");
  on_each_backend([&](CompileOptions options) {
    counts += str("; ", name(options.backend), ": ",
                  sweep<base::AllocationFault>(options, stride), " allocations, ",
                  sweep<failing::Item>(options, stride), " items, ", sweep<TapeOp>(options, stride),
                  " while recording, ", sweep<OpaqueCall>(options, stride, true), " opaque calls");
  });
  if (sweeps_all()) MESSAGE(counts);
}
