#include "grapnel/codegen/jit.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <unordered_map>

#include "grapnel/base/at_fork.h"
#include "grapnel/base/error.h"
#include "grapnel/base/threads.h"
#include "grapnel/codegen/disk_cache.h"
#include "grapnel/codegen/llvm_module.h"
#include "grapnel/cpu/kernels/table.h"

namespace grapnel::codegen {
namespace {

/// Part of every key on disk; changes with what an entry means.
constexpr int kFormat = 1;

std::atomic<JitFault> injected{JitFault::none};
bool fails(JitFault fault) { return injected.load(std::memory_order_relaxed) == fault; }

double ms_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}

Sink into(std::string& text) {
  return {&text, [](void* context, const char* data, size_t size) {
            static_cast<std::string*>(context)->append(data, size);
          }};
}

ProgramView view(const BlockProgram& p) {
  auto count = [](const auto& list) { return static_cast<int32_t>(list.size()); };
  return {p.inputs.data(),     p.scalars.data(),    p.steps.data(),
          p.outputs.data(),    count(p.inputs),     count(p.scalars),
          count(p.steps),      count(p.outputs),    p.streams,
          p.reductions.data(), count(p.reductions), p.stored.empty() ? nullptr : p.stored.data()};
}

struct Key {
  BlockProgram program;
  base::Isa isa;
  friend bool operator==(const Key&, const Key&) = default;
};
struct KeyHash {
  size_t operator()(const Key& key) const {
    size_t h = static_cast<size_t>(key.isa) << 1 | key.program.streams;
    auto mix = [&h](auto value) {
      h = (h ^ static_cast<size_t>(value)) * 0x9e3779b97f4a7c15;
      h ^= h >> 29;
    };
    for (Compute c : key.program.inputs) mix(c);
    mix(key.program.inputs.size());
    for (Compute c : key.program.scalars) mix(c);
    for (const BlockProgram::Step& s : key.program.steps) {
      mix(static_cast<int>(s.kind) << 24 | static_cast<int>(s.compute) << 16 |
          static_cast<int>(s.from) << 12 | static_cast<int>(s.via) << 8);
      mix(s.op);
      for (int k = 0; k < s.arity; ++k) mix(s.operands[k]);
    }
    for (int32_t out : key.program.outputs) mix(out);
    for (int16_t reduction : key.program.reductions) mix(reduction);
    for (DType type : key.program.stored) mix(type);
    return h;
  }
};

/// A kernel has a few mappings of its own, and Linux gives a process some 65,000 of them.
constexpr size_t kRoom = 8192;

/// All that the process knows. Never destroyed: kernels may be asked for, and made, until it ends.
struct Jit {
  std::shared_mutex making;  // shared by threads that make a kernel; a fork waits for them
  std::mutex mutex;
  std::condition_variable changed;  // some kernel is no longer pending, or the queue has grown
  std::unordered_map<Key, std::shared_ptr<Kernel>, KeyHash> kernels;
  size_t room = kRoom;
  JitStats stats;
  std::deque<std::shared_ptr<Kernel>> queue;
  std::thread worker;
  bool has_worker = false, stopping = false;
};
Jit& jit() {
  static Jit* const the = new Jit;
  return *the;
}
template <class Fn>
void count(Fn&& fn) {
  const std::lock_guard lock(jit().mutex);
  fn(jit().stats);
}

}  // namespace

/// The steps from a program to machine code.
class KernelMaker {
 public:
  static std::shared_ptr<Kernel> create(const Key& key) {
    return std::shared_ptr<Kernel>(new Kernel(key.program, key.isa));
  }

  /// Ends with the kernel ready or failed; never throws. The caller shares jit().making.
  static void make(Kernel& kernel) noexcept {
    std::string problem;
    bool ok = false;
    try {
      ok = try_to_make(kernel, problem);
    } catch (const std::exception& e) {
      problem = e.what();
    }
    if (!ok) {
      kernel.error_ =
          str("No machine code for a fused group of ", kernel.program_.steps.size(),
              " steps; it runs interpreted, with the same results, more slowly.\n", problem);
      count([](JitStats& s) { ++s.failed; });
    }
    kernel.finish(ok ? Kernel::State::ready : Kernel::State::failed);
  }

 private:
  static bool try_to_make(Kernel& kernel, std::string& problem) {
    const LlvmModule& module = llvm_module();
    if (!module.api || fails(JitFault::load)) {
      problem = module.api ? "Loading LLVM failed on request of a test." : module.problem;
      return false;
    }
    const std::string folder = cache_folder(), key = disk_key(kernel, *module.api);
    if (from_disk(kernel, *module.api, folder, key)) return true;

    std::string object;
    const auto begin = std::chrono::steady_clock::now();
    if (fails(JitFault::compile) ||
        !module.api->compile(view(kernel.program_), kernel.isa_, into(object), into(problem))) {
      if (problem.empty()) problem = "Compiling failed on request of a test.";
      return false;
    }
    const double ms = ms_since(begin);
    count([ms](JitStats& s) { ++s.compiled, s.compile_ms += ms; });
    if (!link(kernel, *module.api, object, problem)) return false;
    if (!fails(JitFault::disk_write) && write_entry(folder, key, object))
      count([](JitStats& s) { ++s.disk_writes; });
    return true;
  }

  static std::string disk_key(const Kernel& kernel, const LlvmApi& api) {
    return str("grapnel kernel, format ", kFormat, ", LLVM ", api.llvm_version, ", module ",
               api.identity, ", ", base::name_of(kernel.isa_), "\n", kernel.program_.str());
  }

  static bool from_disk(Kernel& kernel, const LlvmApi& api, const std::string& folder,
                        const std::string& key) {
    if (fails(JitFault::disk_read)) return false;
    const Entry entry = read_entry(folder, key);
    if (entry.found == Found::no) return false;
    std::string ignored;
    const bool ok = entry.found == Found::yes && link(kernel, api, entry.object, ignored);
    count([ok](JitStats& s) { ++(ok ? s.disk_hits : s.disk_rejected); });
    return ok;
  }

  static bool link(Kernel& kernel, const LlvmApi& api, const std::string& object,
                   std::string& problem) {
    const auto begin = std::chrono::steady_clock::now();
    BlockFn fn = nullptr;
    if (fails(JitFault::link) ||
        !api.link(object.data(), object.size(), kernels::table(kernel.isa_), &fn, &kernel.code_,
                  into(problem))) {
      if (problem.empty()) problem = "Linking failed on request of a test.";
      return false;
    }
    const double ms = ms_since(begin);
    count([&](JitStats& s) {
      s.link_ms += ms, s.object_bytes += static_cast<int64_t>(object.size());
    });
    kernel.fn_.store(fn, std::memory_order_release);
    return true;
  }
};

namespace {

void work() {
  Jit& j = jit();
  while (true) {
    {
      std::unique_lock lock(j.mutex);
      j.changed.wait(lock, [&] { return j.stopping || !j.queue.empty(); });
      if (j.stopping) return;
    }
    std::shared_ptr<Kernel> kernel;
    const std::shared_lock no_fork(j.making);
    {
      const std::lock_guard lock(j.mutex);
      if (j.queue.empty()) continue;  // somebody made it without us
      kernel = std::move(j.queue.front());
      j.queue.pop_front();
    }
    KernelMaker::make(*kernel);
  }
}

/// The program is not torn down under a kernel in the making. Who waits for one that is still in
/// the queue, now or later, makes it himself.
void stop_worker() {
  Jit& j = jit();
  {
    const std::lock_guard lock(j.mutex);
    j.stopping = true;
  }
  j.changed.notify_all();
  if (j.worker.joinable()) j.worker.join();
}

/// With jit().mutex held.
void start_worker_if_needed() {
  Jit& j = jit();
  if (j.has_worker || j.stopping || j.queue.empty()) return;
  static const bool registered = std::atexit(&stop_worker) == 0;
  (void)registered;
  j.worker = base::start_thread(&work);
  j.has_worker = true;
}

// No thread is half through a kernel when the process forks. The child has no worker; what was
// waiting is still in its queue, and a new worker starts as soon as somebody waits or asks for
// another kernel.
void before_fork(base::AtFork&) {
  jit().making.lock();
  jit().mutex.lock();
}
void after_fork_in_parent(base::AtFork&) {
  jit().mutex.unlock();
  jit().making.unlock();
}
void after_fork_in_child(base::AtFork&) {
  Jit& j = jit();
  // What these refer to does not exist here: the worker, those that wait, and the thread that holds
  // the locks, by its number.
  new (&j.worker) std::thread;
  new (&j.changed) std::condition_variable;
  new (&j.mutex) std::mutex;
  new (&j.making) std::shared_mutex;
  j.has_worker = false;
}

/// Sees to it that no thread inside LLVM is lost by a fork.
void prepare_for_forks() {
  static constinit base::AtFork handlers{base::ForkOrder::kernels, &before_fork,
                                         &after_fork_in_parent, &after_fork_in_child};
  static const bool registered = (base::register_at_fork(handlers), true);
  (void)registered;
}

/// With the lock held, and once the worker has stopped: what it has left in the queue.
std::shared_ptr<Kernel> take_from_queue(const Kernel* wanted) {
  Jit& j = jit();
  const auto place = std::find_if(j.queue.begin(), j.queue.end(),
                                  [&](const auto& kernel) { return kernel.get() == wanted; });
  if (!j.stopping || place == j.queue.end()) return nullptr;
  std::shared_ptr<Kernel> kernel = std::move(*place);
  j.queue.erase(place);
  return kernel;
}

/// With the lock held: takes out what nobody else holds if there are too many kernels. To be
/// destroyed without the lock.
std::vector<std::shared_ptr<Kernel>> take_unused() {
  std::vector<std::shared_ptr<Kernel>> unused;
  if (jit().kernels.size() < jit().room) return unused;
  std::erase_if(jit().kernels, [&](auto& entry) {
    if (entry.second.use_count() > 1 || entry.second->state() == Kernel::State::pending)
      return false;
    unused.push_back(std::move(entry.second));
    return true;
  });
  jit().stats.dropped += static_cast<int64_t>(unused.size());
  // Where most are in use, looking again at every new kernel would be in vain.
  jit().room = std::max(jit().room, 2 * jit().kernels.size());
  return unused;
}

std::shared_ptr<Kernel> find(const Key& key) {
  const std::lock_guard lock(jit().mutex);
  const auto found = jit().kernels.find(key);
  if (found == jit().kernels.end()) return nullptr;
  ++jit().stats.memory_hits;
  return found->second;
}

}  // namespace

std::shared_ptr<const Kernel> kernel_for(const BlockProgram& program, Compile when) {
  Key key{program, base::cpu_isa()};
  std::shared_ptr<Kernel> kernel = find(key);
  if (!kernel) {
    verify(program);
    prepare_for_forks();
    std::vector<std::shared_ptr<Kernel>> unused;
    const std::shared_lock no_fork(jit().making);
    llvm_module();  // loads it
    kernel = KernelMaker::create(key);
    bool is_new;
    {
      const std::lock_guard lock(jit().mutex);
      unused = take_unused();
      const auto [place, inserted] = jit().kernels.emplace(std::move(key), kernel);
      is_new = inserted;
      // Another thread was faster: its kernel is ours.
      if (!is_new) kernel = place->second, ++jit().stats.memory_hits;
      if (is_new && when == Compile::in_background) {
        jit().queue.push_back(kernel);
        start_worker_if_needed();
      }
    }
    if (is_new && when == Compile::now) KernelMaker::make(*kernel);
    else if (is_new) jit().changed.notify_all();
  }
  if (when == Compile::now) kernel->wait();
  return kernel;
}

std::string ir_of(const BlockProgram& program, base::Isa isa) {
  const LlvmModule& module = llvm_module();
  check(module.api != nullptr, module.problem);
  std::string text, problem;
  check(module.api->print(view(program), isa, into(text), into(problem)), problem);
  return text;
}

JitStats jit_stats() {
  const std::lock_guard lock(jit().mutex);
  return jit().stats;
}

void reset_jit_for_testing() {
  decltype(jit().kernels) old;
  {
    const std::lock_guard lock(jit().mutex);
    old.swap(jit().kernels);
  }
  for (const auto& [key, kernel] : old) kernel->wait();  // which are counted when they are made
  const std::lock_guard lock(jit().mutex);
  jit().stats = {};
}

void set_jit_room_for_testing(size_t kernels) {
  const std::lock_guard lock(jit().mutex);
  jit().room = kernels > 0 ? kernels : kRoom;
}

void set_jit_fault_for_testing(JitFault fault) { injected.store(fault, std::memory_order_relaxed); }

void Kernel::finish(State state) {
  {
    const std::lock_guard lock(jit().mutex);
    state_.store(state, std::memory_order_release);
  }
  jit().changed.notify_all();
}

void Kernel::wait() const {
  if (state() != State::pending) return;
  std::shared_ptr<Kernel> left;
  {
    std::unique_lock lock(jit().mutex);
    start_worker_if_needed();
    jit().changed.wait(lock,
                       [&] { return state() != State::pending || (left = take_from_queue(this)); });
  }
  if (!left) return;
  const std::shared_lock no_fork(jit().making);
  KernelMaker::make(*left);
}

Kernel::~Kernel() {
  if (!code_) return;
  const std::shared_lock no_fork(jit().making);
  llvm_module().api->unlink(code_);
}

}  // namespace grapnel::codegen
