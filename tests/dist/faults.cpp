/// One seeded fault in the middle of training: a rank is killed, stopped, or throws somewhere.
/// Survivors must notice, at once if the rank has thrown, find their gradients intact and be able to
/// write a checkpoint; if all ranks are alive, a new group must work.
///
///   dist_faults threads FIRST COUNT        seeds FIRST to FIRST + COUNT - 1, ranks are threads
///   dist_faults plan SEED                  says how many ranks a seed needs, and what happens
///   mpirun ... dist_faults mpi SEED        one seed, ranks are processes; see check_faults.py
///   mpirun ... dist_faults sums A B        rank 0 sums A elements, the others B: all are told
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <thread>

#include "grapnel/grapnel.h"

using namespace grapnel;
using namespace std::chrono_literals;
using dist::Future;
using dist::GradBucket;
using dist::ProcessGroup;

namespace {

/// Where it happens. All but the first two throw.
enum class Fault {
  killed,
  stopped,
  comm_hook,
  comm_callback,
  body_before,
  body_after,
  loader,
  forward_hook,
  loss_hook,
  node_hook,
  tensor_hook,
  opaque_hook,
  post_accumulate,
  module_hook,
  after_reduction,
  optimiser,
  nobody_catches,  ///< leaves main, or the function of the rank
  count
};
constexpr const char* kFaultNames[] = {
    "killed",      "stopped",         "comm hook",    "comm callback",   "body before forward",
    "body at end", "loader",          "forward hook", "hook of the loss", "node hook",
    "tensor hook", "opaque hook",     "post-accumulate hook", "full backward hook",
    "after-reduction hook", "optimiser", "nobody catches"};
static_assert(std::size(kFaultNames) == static_cast<size_t>(Fault::count));

/// How a step is run.
enum class How { eager, compiled_backward, compiled_step };

struct Plan {
  int ranks, rank;  ///< how many there are, and which one has the fault
  Fault fault;
  int step;
  size_t bucket;
  int hook;
  bool views;
  How how;

  static Plan of(uint64_t seed) {
    const auto draw = [g = Generator(seed * 7919 + 1)](int64_t n) {
      return static_cast<int>(randint(0, n, {1}, g).item<int64_t>());
    };
    Plan p{};
    p.ranks = 2 + draw(2);
    p.rank = draw(p.ranks);
    // Waiting for a rank that says nothing takes time, so most of them throw.
    p.fault = draw(8) == 0 ? static_cast<Fault>(draw(2))
                           : static_cast<Fault>(2 + draw(static_cast<int64_t>(Fault::count) - 2));
    p.step = draw(5);
    p.bucket = static_cast<size_t>(draw(4));
    p.hook = draw(3);
    p.views = draw(2);
    p.how = static_cast<How>(std::max(0, draw(5) - 2));
    return p;
  }
  bool throws() const { return fault != Fault::killed && fault != Fault::stopped; }
  std::string str() const {
    return grapnel::str(ranks, " ranks, ", kFaultNames[static_cast<int>(fault)], " on rank ", rank,
                        ", step ", step, ", bucket ", bucket, ", hook ", hook, ", how ",
                        static_cast<int>(how));
  }
};

struct Net : nn::Module {
  std::vector<Tensor> p;
  Net() {
    for (int i = 0; i < 4; ++i)
      p.push_back(register_parameter(str("p", i), ones({i == 2 ? 30000 : 100})));
  }
  /// The gradient of p[i] is `scale` * (i + 1).
  Tensor forward(Tensor scale) {
    Tensor sum = zeros({});
    for (size_t i = 0; i < p.size(); ++i)
      sum = sum + (p[i] * (scale * static_cast<double>(i + 1))).sum();
    return sum;
  }
};

/// Thrown where a thread would have been killed.
struct Gone {};
/// Thrown where nobody catches it.
struct Uncaught : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// One example per step: the scale of this rank's gradients.
struct Scales final : data::Dataset {
  std::function<double(int64_t)> of;
  int64_t size() const override { return 6; }
  data::Example get(int64_t index, Generator&) const override {
    return {full({}, of(index), kFloat32)};
  }
};

struct Run {
  Plan plan;
  ProcessGroup group;
  bool processes;
  int step = 0;

  double local_scale(int rank, int64_t at) const {
    return 6.0 * (rank + 1) * static_cast<double>(at + 1);
  }
  double mean_scale(int at) const { return 3.0 * (plan.ranks + 1) * (at + 1); }

  /// Called at every place where something may happen.
  void at(Fault place) const {
    if (group.rank() == plan.rank && step == plan.step && place == plan.fault) happen();
  }
  void happen() const {
    switch (plan.fault) {
      case Fault::killed:
        if (processes) ::kill(::getpid(), SIGKILL);
        [[fallthrough]];
      case Fault::stopped:
        if (!processes) {
          std::this_thread::sleep_for(group.timeout() * 2);
          throw Gone();
        }
        // Somebody has to end it when the others have seen enough.
        if (std::system(str("(sleep 4; kill -9 ", ::getpid(), ") > /dev/null 2>&1 &").c_str()) == 0)
          ::kill(::getpid(), SIGSTOP);
        return;
      case Fault::nobody_catches: throw Uncaught("planned");
      default: throw std::runtime_error("planned");
    }
  }

  Future<Tensor> hook(GradBucket& bucket) const {
    const size_t index = bucket.index();
    if (index == plan.bucket)
      for (const Fault place : {Fault::killed, Fault::stopped, Fault::comm_hook}) at(place);
    if (plan.hook == 0) return after(dist::hooks::allreduce(bucket), index);
    if (plan.hook == 1) return after(dist::hooks::fp16_compress(bucket), index);
    // Two rounds: sums of halves, then the mean of equal numbers.
    return after(dist::hooks::allreduce(bucket), index).then([g = bucket.group()](const Tensor& t) {
      return g.all_reduce(t / g.size()).single();
    });
  }
  Future<Tensor> after(Future<Tensor> f, size_t index) const {
    return f.then([this, index](const Tensor& t) {
      if (index == plan.bucket) at(Fault::comm_callback);
      return t;
    });
  }

  template <class Model>
  void train(Model& model) {
    Net& net = model.module();
    const Tensor& p = net.p[plan.bucket];
    model.register_comm_hook([this](GradBucket& b) { return hook(b); });
    p.register_hook([this](const Tensor&) { at(Fault::tensor_hook); });
    p.register_hook(opaque([this](const Tensor&) { at(Fault::opaque_hook); }));
    p.register_post_accumulate_grad_hook([this](const Tensor&) { at(Fault::post_accumulate); });
    net.register_forward_hook(
        [this](nn::Module&, const nn::Args&, const Tensor&) { at(Fault::forward_hook); });
    net.register_full_backward_hook([this](nn::Module&, const variable_list&,
                                           const variable_list&) { at(Fault::module_hook); });
    model.register_after_reduction_hook(p, [this](const Tensor&) { at(Fault::after_reduction); });
    optim::SGD sgd(model.parameters(), 1e-30);
    sgd.register_step_pre_hook([this](optim::Optimizer&) { at(Fault::optimiser); });

    const auto backward = [&](const Tensor& loss) {
      loss.register_hook([this](const Tensor&) { at(Fault::loss_hook); });
      loss.grad_fn()->register_hook(
          [this](const variable_list&, const variable_list&) { at(Fault::node_hook); });
      loss.backward();
    };
    const auto body = [&](const Tensor& scale) {
      at(Fault::body_before);
      at(Fault::nobody_catches);
      model.zero_grad();
      const Tensor loss = model(scale) * 1.0;
      if (plan.how == How::compiled_backward) {
        CompiledBackward scope;
        backward(loss);
      } else {
        backward(loss);
      }
      sgd.step();
      at(Fault::body_after);
    };
    auto compiled = compile(body);
    auto scales = std::make_shared<Scales>();
    scales->of = [this](int64_t index) {
      // Workers are ahead of the step.
      if (plan.fault == Fault::loader && index == plan.step && group.rank() == plan.rank) happen();
      return local_scale(group.rank(), index);
    };
    data::DataLoader loader(scales, {.workers = plan.hook});
    for (const data::Example& batch : loader.epoch(0)) {
      const Tensor scale = batch.data.view({});
      if (plan.how == How::compiled_step) compiled(scale);
      else body(scale);
      ++step;
    }
  }

  /// What is wrong with the gradients, if anything: each must be this rank's own or the mean.
  std::string corruption(const Net& net) const {
    for (size_t i = 0; i < net.p.size(); ++i) {
      const Tensor& g = net.p[i].grad();
      if (!g.defined()) continue;
      const auto is = [&](double scale) {
        return equal(g, full_like(g, scale * static_cast<double>(i + 1)));
      };
      // A rank may fail before the step has cleared what the one before left.
      const bool right = is(local_scale(group.rank(), step)) || is(mean_scale(step));
      if (!right && !is(mean_scale(step - 1)))
        return str("the gradient of p", i, " is neither local nor the mean: ", g[0].item<double>());
    }
    return "";
  }

  /// "survived: ..." or "FAILED: ...".
  std::string go() {
    auto net = std::make_shared<Net>();
    std::string seen;
    const bool here = group.rank() == plan.rank;
    auto begin = std::chrono::steady_clock::now();
    try {
      dist::DistributedDataParallel model(
          net, group, {.gradient_as_bucket_view = plan.views, .buckets = {{3}, {2}, {1}, {0}}});
      train(model);
    } catch (const Uncaught&) {
      throw;
    } catch (const dist::CommHookError& e) {
      if (!here) return str("FAILED: another rank's exception came here: ", e.what());
      try {
        std::rethrow_if_nested(e);
      } catch (const Gone&) {
        throw;
      } catch (const std::exception&) {
      }
      seen = e.what();
    } catch (const dist::CommError& e) {
      if (here && plan.throws()) return str("FAILED: its own exception was lost: ", e.what());
      if (plan.throws() && !dynamic_cast<const dist::CommAborted*>(&e))
        return str("FAILED: not told, but ", e.what());
      seen = e.what();
    } catch (const std::runtime_error& e) {
      if (!here || std::string(e.what()).find("planned") == std::string::npos) throw;
      seen = e.what();
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    if (seen.empty()) return "FAILED: nobody noticed";
    if (plan.throws() && took > 10s) return str("FAILED: noticed after ", took.count(), " s");
    // With views, gradients of buckets under way may already have been divided or summed in place.
    // What a graph that fails leaves is a matter of its own tests.
    if (!plan.views && plan.how == How::eager)
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
    if (plan.throws() && plan.fault != Fault::nobody_catches) {
      ProcessGroup fresh = group.renew();
      fresh.set_timeout(20s);
      dist::DistributedDataParallel model(net, fresh);
      model.zero_grad();
      step = -1;  // nothing happens any more
      model(full({}, local_scale(group.rank(), step = 5), kFloat32)).backward();
      if (const std::string bad = corruption(*net);
          !bad.empty() || net->p[0].grad()[0].item<double>() != mean_scale(step))
        return "FAILED: the new group is no good: " + bad;
    }
    return "survived: " + seen.substr(0, seen.find('\n'));
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3)
    return std::cerr << "usage: dist_faults threads FIRST COUNT | mpi SEED | sums A B | plan SEED\n",
           2;
  const bool processes = std::string(argv[1]) == "mpi";
  const uint64_t first = std::stoull(argv[2]);
  if (std::string(argv[1]) == "plan") {
    const Plan plan = Plan::of(first);
    return std::cout << plan.ranks << "\n" << plan.str() << "\n", 0;
  }
  if (std::string(argv[1]) == "sums") {
    const ProcessGroup group = dist::init({.timeout = 700ms});
    std::string outcome = "FAILED: no error";
    try {
      group.all_reduce(ones({std::stoll(argv[group.rank() == 0 ? 2 : 3])})).wait();
    } catch (const dist::CommError& e) {
      outcome = str("survived: ", e.what());
    }
    std::cout << "rank " << group.rank() << " " << outcome << std::endl;
    return 0;
  }
  // Who throws is noticed at once, so a long time tells a difference.
  const auto timeout_of = [](const Plan& plan, std::chrono::milliseconds otherwise) {
    return plan.throws() ? 30000ms : otherwise;
  };
  if (processes) {
    const Plan plan = Plan::of(first);
    ProcessGroup group = dist::init({.timeout = timeout_of(plan, 1500ms)});
    const std::string outcome = Run{plan, group, true}.go();
    std::cout << "rank " << group.rank() << " " << outcome << std::endl;
    return 0;
  }
  int bad = 0;
  const uint64_t count = argc > 3 ? std::stoull(argv[3]) : 1;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const Plan plan = Plan::of(seed);
    std::vector<std::string> outcomes(static_cast<size_t>(plan.ranks), "gone");
    try {
      dist::run_threads(plan.ranks,
                        [&](ProcessGroup group) {
                          auto& outcome = outcomes[static_cast<size_t>(group.rank())];
                          try {
                            outcome = Run{plan, group, false}.go();
                          } catch (const Gone&) {
                          }
                        },
                        {.timeout = timeout_of(plan, 300ms)});
    } catch (const Uncaught&) {
    } catch (const std::exception& e) {
      outcomes[0] += str(" and FAILED: ", e.what());
    }
    for (int r = 0; r < plan.ranks; ++r) {
      const std::string& outcome = outcomes[static_cast<size_t>(r)];
      const bool dies =
          r == plan.rank && (!plan.throws() || plan.fault == Fault::nobody_catches);
      if (dies ? outcome == "gone" : outcome.starts_with("survived")) continue;
      ++bad;
      std::cout << "seed " << seed << " (" << plan.str() << "): rank " << r << ": " << outcome
                << std::endl;
    }
  }
  std::cout << count - static_cast<uint64_t>(
                           bad > 0 ? std::min<uint64_t>(count, static_cast<uint64_t>(bad)) : 0)
            << " passed, " << bad << " failed" << std::endl;
  return bad ? 1 : 0;
}
