#include "grapnel/compile/cache.h"

#include <chrono>
#include <future>
#include <list>
#include <mutex>
#include <unordered_map>

#include "grapnel/base/at_fork.h"
#include "grapnel/capture/key.h"
#include "grapnel/compile/graph_compiler.h"
#include "grapnel/compile/passes.h"

namespace grapnel::compiler {

namespace {
/// What of the passes an executable was made with. The rest is asked for when it runs.
uint32_t bits(const PassOptions& o) {
  uint32_t word = 0;
  for (const bool on : {o.dead_code, o.common_subexpressions, o.copies, o.algebra, o.fusion,
                        o.sweeps, o.epilogues, o.prologues, o.looks, o.background_kernels})
    word = word << 1 | static_cast<uint32_t>(on);
  return word << 2 | static_cast<uint32_t>(o.fails);
}
}  // namespace

CacheKey::CacheKey(const capture::Words& trace_words, const CompileOptions& options) {
  words.reserve(trace_words.size() + 4);
  words = trace_words;
  words.push_back(static_cast<uint32_t>(options.backend) |
                  static_cast<uint32_t>(options.numerics) << 4 |
                  static_cast<uint32_t>(options.dynamic) << 8 |
                  static_cast<uint32_t>(options.on_failure) << 12 |
                  // In which integers are compared with a fraction, which no operand shows.
                  static_cast<uint32_t>(get_default_dtype()) << 16);
  words.push_back(bits(pass_options()));
  if (options.compiler) capture::key::wide(words, options.compiler->identity());
  hash = capture::key::hash(words);
}
CacheKey::CacheKey(capture::Words all) : words(std::move(all)), hash(capture::key::hash(words)) {}

namespace {

using Future = std::shared_future<std::shared_ptr<const Executable>>;

struct Hash {
  size_t operator()(const CacheKey& k) const { return k.hash; }
};

struct Cache {
  struct Entry {
    Future future;
    std::list<CacheKey>::iterator place;
  };
  std::mutex mutex;
  std::list<CacheKey> by_use;  ///< most recent first
  std::unordered_map<CacheKey, Entry, Hash> entries;

  void erase(const CacheKey& key) {
    const auto found = entries.find(key);
    if (found == entries.end()) return;
    const auto place = found->second.place;
    entries.erase(found);
    by_use.erase(place);
  }
};

Cache& cache();

// A graph that another thread was compiling when the process forked never comes in the child, which
// starts again.
constinit base::AtFork at_fork{
    base::ForkOrder::graphs, [](base::AtFork&) { cache().mutex.lock(); },
    [](base::AtFork&) { cache().mutex.unlock(); },
    [](base::AtFork&) {
      Cache& c = cache();
      std::erase_if(c.entries, [&](auto& entry) {
        const bool comes = entry.second.future.wait_for(std::chrono::seconds(0)) ==
                           std::future_status::ready;
        if (!comes) c.by_use.erase(entry.second.place);
        return !comes;
      });
      c.mutex.unlock();
    }};

Cache& cache() {
  // Outlives static compiled functions.
  static Cache* const instance = [] {
    auto* const made = new Cache;
    base::register_at_fork(at_fork);
    return made;
  }();
  return *instance;
}

}  // namespace

std::shared_ptr<const Executable> find_or_make(
    const CacheKey& key, bool& made, const std::function<std::unique_ptr<Executable>()>& make) {
  made = false;
  Cache& c = cache();
  std::promise<std::shared_ptr<const Executable>> promise;
  {
    std::unique_lock lock(c.mutex);
    if (const auto found = c.entries.find(key); found != c.entries.end()) {
      c.by_use.splice(c.by_use.begin(), c.by_use, found->second.place);
      const Future future = found->second.future;
      lock.unlock();
      return future.get();
    }
    if (c.entries.size() >= kMostExecutables) c.erase(CacheKey(c.by_use.back()));
    c.by_use.push_front(key);
    c.entries.emplace(key, Cache::Entry{promise.get_future().share(), c.by_use.begin()});
  }
  made = true;
  try {
    std::shared_ptr<const Executable> executable = make();
    promise.set_value(executable);
    return executable;
  } catch (const Error& e) {
    evict(key);
    // Of its own for those who wait: whoever catches one may add to its text.
    promise.set_exception(std::make_exception_ptr(Error(e.what())));
    throw;
  } catch (...) {
    evict(key);
    promise.set_exception(std::current_exception());
    throw;
  }
}

void evict(const CacheKey& key) {
  const std::lock_guard lock(cache().mutex);
  cache().erase(key);
}

void evict_all() {
  const std::lock_guard lock(cache().mutex);
  cache().entries.clear();
  cache().by_use.clear();
}

}  // namespace grapnel::compiler
