#include "grapnel/dist/init.h"

#include <mutex>
#include <thread>

#include "grapnel/base/rank.h"
#include "grapnel/base/threads.h"
#include "grapnel/dist/communicator.h"
#include "grapnel/dist/thread_ranks.h"
#include "grapnel/functions/generator.h"

namespace grapnel::dist {

namespace {
std::string message_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "one that is no std::exception";
  }
}

}  // namespace

ProcessGroup group_of_this_thread() {
  return this_context.group ? *this_context.group : ProcessGroup();
}

void run_threads(int count, const std::function<void(ProcessGroup)>& fn,
                 const ThreadsOptions& options) {
  check(count > 0, "run_threads: the number of ranks must be positive, got ", count, ".");
  std::vector<Generator> generators;
  std::vector<std::shared_ptr<Executor>> executors;
  for (int r = 0; r < count; ++r) {
    // As processes have: equal ones to begin with, and everybody draws from his own.
    const Generator& own = generators.emplace_back(default_generator().clone());
    executors.push_back(std::make_shared<Executor>([own, r, count](const auto& work) {
      const DefaultGeneratorScope draws(own);
      base::set_thread_rank({r, count});
      work();
    }));
  }
  ThreadRanks ranks = make_thread_ranks(std::move(executors), options);
  std::mutex mutex;
  std::exception_ptr first;  // The others fail because of it.
  std::vector<std::thread> threads;
  for (ProcessGroup& group : ranks.groups)
    threads.push_back(
        base::start_user_thread([&, lose = ranks.lose, group = std::move(group)]() mutable {
          const DefaultGeneratorScope draws(generators[static_cast<size_t>(group.rank())]);
          Executor::Scope scope(group.communicator().executor());
          this_context.group = &group;
          base::set_thread_rank({group.rank(), group.size()});
          try {
            fn(group);
          } catch (...) {
            const std::exception_ptr error = std::current_exception();
            {
              std::lock_guard lock(mutex);
              if (!first) first = error;
            }
            lose(str("the function of rank ", group.rank(),
                     " ended with an exception: ", message_of(error)));
          }
          group = {};
        }));
  ranks = {};
  for (std::thread& t : threads) t.join();
  if (first) std::rethrow_exception(first);
}

ProcessGroup single_rank(std::chrono::milliseconds timeout) {
  return make_thread_ranks({std::make_shared<Executor>()}, {.timeout = timeout}).groups[0];
}

}  // namespace grapnel::dist
