/// One seeded fault in the middle of training: a rank is killed, stopped, or throws. Survivors must
/// notice in time, find their gradients intact and be able to write a checkpoint; if all ranks are
/// alive, a new group must work.
///
///   dist_faults threads FIRST COUNT        seeds FIRST to FIRST + COUNT - 1, ranks are threads
///   dist_faults plan SEED                  says how many ranks a seed needs
///   mpirun ... dist_faults mpi SEED        one seed, ranks are processes; see check_faults.py
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iostream>

#include "grapnel/dist/dist.h"
#include "grapnel/ops/factories.h"
#include "grapnel/ops/functions.h"

using namespace grapnel;
using namespace std::chrono_literals;
using dist::Future;
using dist::GradBucket;
using dist::ProcessGroup;

namespace {

enum class Fault { killed, stopped, hook_throws, callback_throws };
constexpr const char* kFaultNames[] = {"killed", "stopped", "hook throws", "callback throws"};

struct Plan {
  int ranks, rank;  ///< how many there are, and which one has the fault
  Fault fault;
  int step;
  size_t bucket;
  int hook;
  bool views;

  static Plan of(uint64_t seed) {
    const auto draw = [g = Generator(seed * 7919 + 1)](int64_t n) {
      return static_cast<int>(randint(0, n, {1}, g).item<int64_t>());
    };
    Plan p{};
    p.ranks = 2 + draw(2);
    p.rank = draw(p.ranks);
    p.fault = static_cast<Fault>(draw(4));
    p.step = draw(5);
    p.bucket = static_cast<size_t>(draw(4));
    p.hook = draw(3);
    p.views = draw(2);
    return p;
  }
};

struct Net : nn::Module {
  std::vector<Tensor> p;
  Net() {
    for (int i = 0; i < 4; ++i)
      p.push_back(register_parameter(str("p", i), ones({i == 2 ? 30000 : 100})));
  }
  /// The gradient of p[i] is `scale` * (i + 1).
  Tensor forward(double scale) {
    Tensor sum = zeros({});
    for (size_t i = 0; i < p.size(); ++i)
      sum = sum + (p[i] * (scale * static_cast<double>(i + 1))).sum();
    return sum;
  }
};

/// Thrown where a thread would have been killed.
struct Gone {};

struct Run {
  Plan plan;
  ProcessGroup group;
  bool processes;
  int step = 0;

  double local_scale(int rank) const { return 6.0 * (rank + 1) * (step + 1); }
  double mean_scale() const { return 3.0 * (plan.ranks + 1) * (step + 1); }

  void happen(size_t bucket, bool in_callback) const {
    if (group.rank() != plan.rank || step != plan.step || bucket != plan.bucket) return;
    if (in_callback != (plan.fault == Fault::callback_throws)) return;
    switch (plan.fault) {
      case Fault::killed:
        if (processes) ::kill(::getpid(), SIGKILL);
        throw Gone();
      case Fault::stopped:
        if (!processes) throw Gone();
        // Somebody has to end it when the others have seen enough.
        if (std::system(str("(sleep 4; kill -9 ", ::getpid(), ") > /dev/null 2>&1 &").c_str()) == 0)
          ::kill(::getpid(), SIGSTOP);
        return;
      case Fault::hook_throws:
      case Fault::callback_throws: throw std::runtime_error("planned");
    }
  }

  Future<Tensor> hook(GradBucket& bucket) const {
    happen(bucket.index(), false);
    const size_t index = bucket.index();
    if (plan.hook == 0) return after(dist::hooks::allreduce(bucket), index);
    if (plan.hook == 1) return after(dist::hooks::fp16_compress(bucket), index);
    // Two rounds: sums of halves, then the mean of equal numbers.
    return after(dist::hooks::allreduce(bucket), index).then([g = bucket.group()](const Tensor& t) {
      return g.all_reduce(t / g.size()).single();
    });
  }
  Future<Tensor> after(Future<Tensor> f, size_t index) const {
    return f.then([this, index](const Tensor& t) {
      happen(index, true);
      return t;
    });
  }

  /// What is wrong with the gradients, if anything: each must be this rank's own or the mean.
  std::string corruption(const Net& net) const {
    for (size_t i = 0; i < net.p.size(); ++i) {
      const Tensor& g = net.p[i].grad();
      if (!g.defined()) continue;
      const auto is = [&](double scale) {
        return equal(g, full_like(g, scale * static_cast<double>(i + 1)));
      };
      if (!is(local_scale(group.rank())) && !is(mean_scale()))
        return str("the gradient of p", i, " is neither local nor the mean: ", g[0].item<double>());
    }
    return "";
  }

  /// "survived: ..." or "FAILED: ...".
  std::string go() {
    auto net = std::make_shared<Net>();
    std::string seen;
    {
      dist::DistributedDataParallel model(
          net, group, {.gradient_as_bucket_view = plan.views, .buckets = {{3}, {2}, {1}, {0}}});
      model.register_comm_hook([this](GradBucket& b) { return hook(b); });
      try {
        for (step = 0; step < 6; ++step) {
          model.zero_grad();
          model(local_scale(group.rank())).backward();
        }
      } catch (const dist::CommHookError& e) {
        if (group.rank() != plan.rank)
          return str("FAILED: another rank's exception came here: ", e.what());
        try {
          std::rethrow_if_nested(e);
        } catch (const Gone&) {
          throw;
        } catch (const std::exception&) {
        }
        seen = e.what();
      } catch (const dist::CommError& e) {
        seen = e.what();
      }
    }
    if (seen.empty()) return "FAILED: nobody noticed";
    // With views, gradients of buckets under way may already have been divided or summed in place.
    if (!plan.views)
      if (const std::string bad = corruption(*net); !bad.empty()) return "FAILED: " + bad;
    char path[] = "/tmp/grapnel-fault-XXXXXX";
    const int file = ::mkstemp(path);
    ::close(file);
    std::ofstream out(path, std::ios::binary);
    for (const auto& item : net->state_dict())
      out.write(static_cast<const char*>(item.value().data_ptr()), item.value().nbytes());
    out.close();
    const bool saved = out.good();
    ::unlink(path);
    if (!saved) return "FAILED: the checkpoint could not be written";
    if (plan.fault == Fault::hook_throws || plan.fault == Fault::callback_throws) {
      ProcessGroup fresh = group.renew();
      fresh.set_timeout(20s);
      dist::DistributedDataParallel model(net, fresh);
      model.zero_grad();
      step = 0;
      model(local_scale(group.rank())).backward();
      if (const std::string bad = corruption(*net);
          !bad.empty() || net->p[0].grad()[0].item<double>() != mean_scale())
        return "FAILED: the new group is no good: " + bad;
    }
    return "survived: " + seen.substr(0, seen.find('\n'));
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3)
    return std::cerr << "usage: dist_faults threads FIRST COUNT | dist_faults mpi SEED\n", 2;
  const bool processes = std::string(argv[1]) == "mpi";
  const uint64_t first = std::stoull(argv[2]);
  if (std::string(argv[1]) == "plan") return std::cout << Plan::of(first).ranks << "\n", 0;
  if (processes) {
    const Plan plan = Plan::of(first);
    ProcessGroup group = dist::init({.timeout = 1500ms});
    const std::string outcome = Run{plan, group, true}.go();
    std::cout << "rank " << group.rank() << " " << outcome << std::endl;
    return 0;
  }
  int bad = 0;
  const uint64_t count = argc > 3 ? std::stoull(argv[3]) : 1;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const Plan plan = Plan::of(seed);
    std::vector<std::string> outcomes(static_cast<size_t>(plan.ranks));
    dist::run_threads(plan.ranks,
                      [&](ProcessGroup group) {
                        auto& outcome = outcomes[static_cast<size_t>(group.rank())];
                        try {
                          outcome = Run{plan, group, false}.go();
                        } catch (const Gone&) {
                          outcome = "gone";
                        }
                      },
                      {.timeout = 300ms});
    for (int r = 0; r < plan.ranks; ++r) {
      const std::string& outcome = outcomes[static_cast<size_t>(r)];
      const bool dies =
          r == plan.rank && (plan.fault == Fault::killed || plan.fault == Fault::stopped);
      if (dies ? outcome == "gone" : outcome.starts_with("survived")) continue;
      ++bad;
      std::cout << "seed " << seed << " (" << plan.ranks << " ranks, "
                << kFaultNames[static_cast<int>(plan.fault)] << " on rank " << plan.rank
                << ", step " << plan.step << ", bucket " << plan.bucket << ", hook " << plan.hook
                << "): rank " << r << ": " << outcome << std::endl;
    }
  }
  std::cout << count - static_cast<uint64_t>(
                           bad > 0 ? std::min<uint64_t>(count, static_cast<uint64_t>(bad)) : 0)
            << " passed, " << bad << " failed" << std::endl;
  return bad ? 1 : 0;
}
