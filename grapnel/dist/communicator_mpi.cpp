/// Processes as ranks. A communicator is a line of MPI's transport; the engine carries out what it
/// is asked for, see mpi_engine.h.
#include "grapnel/dist/communicator_mpi.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <numeric>

#include "grapnel/base/module_file.h"
#include "grapnel/dist/mpi_engine.h"

namespace grapnel::dist {

namespace {

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(MpiEngine& engine, FatePtr fate, MpiTransport::Line line, std::string name,
                  int rank, std::vector<int> world)
      : engine_(engine),
        fate_(std::move(fate)),
        line_(line),
        name_(std::move(name)),
        rank_(rank),
        world_(std::move(world)) {}

  ~MpiCommunicator() override {
    if (line_ != MpiTransport::kWorld) engine_.close(line_, fate_);
  }

  const std::string& name() const override { return name_; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(world_.size()); }

  void submit(OperationPtr op) override {
    // Looked at here, since whoever begins the operation may be recording something of its own.
    MpiOperation operation{op->call, nullptr, nullptr};
    try {
      if (op->input.defined()) operation.input = op->input.impl().host();
      if (op->output.defined()) operation.output = op->output.impl().host();
    } catch (...) {
      return op->done.set_error(std::current_exception());
    }
    auto posted = make_posted(std::move(op));
    posted->operation = operation;
    engine_.post(std::move(posted));
  }

  std::shared_ptr<Communicator> split(const std::vector<int>& ranks,
                                      const std::string& name) override {
    const bool all = std::is_sorted(ranks.begin(), ranks.end()) && ranks.size() == world_.size();
    auto made = std::make_shared<MpiTransport::Line>(MpiTransport::kNone);
    run([&](Posted& p) {
      MpiTransport& transport = engine_.transport();
      if (all) {
        p.start = [&transport, line = line_, made] {
          return transport.start_duplicate(line, made.get());
        };
        return;
      }
      // Splitting blocks, so first make sure that everybody has come to it.
      p.start = [&transport, line = line_] {
        return transport.start(line, {{.kind = CallKind::barrier}, nullptr, nullptr});
      };
      p.finish = [&transport, line = line_, made, ranks] {
        *made = transport.split(line, ranks.data(), static_cast<int>(ranks.size()));
      };
    });
    const auto own = std::find(ranks.begin(), ranks.end(), rank_);
    if (own == ranks.end()) return nullptr;
    std::vector<int> world;
    for (int r : ranks) world.push_back(world_[static_cast<size_t>(r)]);
    return std::make_shared<MpiCommunicator>(engine_, fate_, *made, name_ + "/" + name,
                                             static_cast<int>(own - ranks.begin()),
                                             std::move(world));
  }

  std::shared_ptr<Communicator> renew() override {
    // The same on all ranks of the group, and short enough for a note.
    std::string about = str(fate_->id, " ", name_, " ", renewals_++);
    for (int r : world_) about += str(" ", r);
    const std::string id = std::to_string(std::hash<std::string>()(about));
    const FatePtr fresh = engine_.ledger().fate(id);
    auto made = std::make_shared<MpiTransport::Line>(MpiTransport::kNone);
    const int number = static_cast<int>(std::hash<std::string>()(id) % 32768);
    run([&](Posted& p) {
      p.fate = fresh;
      p.line = MpiTransport::kNone;
      p.start = [&transport = engine_.transport(), world = world_, number, made] {
        *made = transport.create(world.data(), static_cast<int>(world.size()), number);
        return MpiTransport::Ticket{0};
      };
    });
    return std::make_shared<MpiCommunicator>(engine_, fresh, *made, name_, rank_, world_);
  }

  void abort(const std::string& reason) override {
    const std::string text = str("rank ", rank_, " gave up group '", name_, "': ", reason);
    engine_.ledger().fail(fate_, std::make_exception_ptr(CommAborted(text)), text,
                          MpiLedger::Tell::others);
  }
  bool aborted() const override { return engine_.ledger().failed(fate_); }
  const std::shared_ptr<Executor>& executor() const override { return engine_.executor(); }
  uint64_t machine() const override {
    char host[256] = {};
    gethostname(host, sizeof host - 1);
    return std::hash<std::string>()(host) >> 1;
  }

 private:
  std::shared_ptr<Posted> make_posted(OperationPtr op) const {
    auto posted = std::make_shared<Posted>();
    posted->op = std::move(op);
    posted->fate = fate_;
    posted->group = name_;
    posted->line = line_;
    return posted;
  }
  /// Makes a line, and waits for it.
  void run(const std::function<void(Posted&)>& fill) const {
    auto op = std::make_shared<Operation>();
    op->call.kind = CallKind::split;
    op->timeout = std::chrono::minutes(5);
    op->deadline = Clock::now() + op->timeout;
    op->done = Future<std::vector<Tensor>>::make(engine_.executor());
    auto posted = make_posted(op);
    posted->may_block = true;
    fill(*posted);
    engine_.post(std::move(posted));
    op->done.wait();
  }

  MpiEngine& engine_;
  FatePtr fate_;
  MpiTransport::Line line_;
  std::string name_;
  int rank_;
  std::vector<int> world_;
  std::atomic<uint64_t> renewals_{0};
};

MpiEngine* the_engine = nullptr;
int own_rank = 0;  ///< among all
std::terminate_handler next_handler = nullptr;

/// An exception that nobody catches ends this process at once: the other ranks need not find out by
/// waiting.
[[noreturn]] void tell_and_terminate() {
  std::string what = "it was terminated";
  if (const std::exception_ptr error = std::current_exception()) {
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& e) {
      what = str("it ended with an exception that nobody caught: ", e.what());
    } catch (...) {
      what = "it ended with an exception that nobody caught";
    }
  }
  the_engine->last_words(str("rank ", own_rank, " is gone: ", what));
  if (next_handler) next_handler();
  std::abort();
}

}  // namespace

std::shared_ptr<Communicator> world_of(MpiEngine& engine) {
  const MpiTransport& transport = engine.transport();
  std::vector<int> world(static_cast<size_t>(transport.size(MpiTransport::kWorld)));
  std::iota(world.begin(), world.end(), 0);
  return std::make_shared<MpiCommunicator>(engine, engine.ledger().fate("world"),
                                           MpiTransport::kWorld, "world",
                                           transport.rank(MpiTransport::kWorld), std::move(world));
}

std::shared_ptr<Communicator> connect_mpi(const MpiOptions& options) {
  // Never destroyed: the end of the program comes in its own way, see MpiEngine::shut_down.
  static const std::string& problem = *new std::string([&]() -> std::string {
    const base::LoadedModule module =
        base::load_module("libgrapnel_mpi.so", "GRAPNEL_MPI_LIBRARY", kMpiTransportSymbol);
    if (!module.symbol)
      return str("MPI's module libgrapnel_mpi.so could not be loaded:\n", module.problem,
                 "Build Grapnel with Open MPI (on Debian: apt-get install libopenmpi-dev), put the "
                 "file beside libgrapnel, or set GRAPNEL_MPI_LIBRARY to its path.");
    MpiTransport* transport = reinterpret_cast<MpiTransportFn>(module.symbol)(kMpiTransportVersion);
    if (!transport) return "libgrapnel_mpi.so is of another version of Grapnel.";
    the_engine = new MpiEngine(*transport, options);
    std::atexit([] { the_engine->shut_down(); });
    own_rank = transport->rank(MpiTransport::kWorld);
    next_handler = std::set_terminate(tell_and_terminate);
    return "";
  }());
  check(the_engine != nullptr, problem);
  return world_of(*the_engine);
}

int open_mpi_lines() { return the_engine ? the_engine->transport().open_lines() : 0; }

}  // namespace grapnel::dist
