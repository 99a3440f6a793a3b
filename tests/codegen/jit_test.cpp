/// Kernels: one per program, kept in memory and on disk, and never a reason to fail.
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "grapnel/base/error.h"
#include "grapnel/base/warn.h"
#include "grapnel/codegen/disk_cache.h"
#include "grapnel/codegen/llvm_module.h"
#include "tests/codegen/jit_setup.h"

using namespace grapnel;
using namespace grapnel::codegen;
namespace fs = std::filesystem;

namespace {

/// x * x * ... * x + y, a different program for each length.
BlockProgram powers(int length) {
  BlockProgram p;
  p.inputs = {Compute::F32, Compute::F32};
  p.steps = {op_step(op_number("add"), Compute::F32, {0, 1})};
  for (int32_t i = 0; i < length; ++i)
    p.steps.push_back(op_step(op_number("mul"), Compute::F32, {2 + i, 0}));
  p.outputs = {static_cast<int32_t>(1 + p.steps.size())};
  return p;
}

std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
  return files;
}
std::string contents(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void overwrite(const fs::path& file, const std::string& bytes) {
  std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
}

/// Runs `body` in a process of its own; whether it returned true there.
template <class Fn>
bool in_child(Fn&& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body() ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

TEST_CASE("kernels that nobody uses make room for others, and those in use stay") {
  const CleanJit clean;
  set_jit_room_for_testing(8);
  const auto held = kernel_for(powers(1), Compile::now);
  for (int length = 2; length < 40; ++length) kernel_for(powers(length), Compile::now);
  set_jit_room_for_testing(0);
  CHECK(jit_stats().dropped >= 30);
  CHECK(kernel_for(powers(1), Compile::now) == held);
  CHECK(held->state() == Kernel::State::ready);
  const int64_t made = jit_stats().compiled + jit_stats().disk_hits;
  kernel_for(powers(2), Compile::now);  // dropped, and made again
  CHECK(jit_stats().compiled + jit_stats().disk_hits == made + 1);
}

TEST_CASE(
    "equal programs share one kernel, which is compiled once also when many threads ask at the "
    "same time") {
  const CleanJit clean;
  std::vector<std::shared_ptr<const Kernel>> kernels(8);
  std::vector<std::thread> threads;
  for (auto& kernel : kernels) threads.emplace_back([&kernel] { kernel = kernel_for(powers(3)); });
  for (std::thread& t : threads) t.join();
  for (const auto& kernel : kernels) {
    CHECK(kernel == kernels[0]);
    CHECK(bool(kernel->fn()));
  }
  CHECK(jit_stats().compiled == 1);
  CHECK(jit_stats().memory_hits == 7);
  CHECK(kernel_for(powers(4)) != kernels[0]);
}

TEST_CASE("threads compile different programs side by side") {
  const CleanJit clean;
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&right, t] {
      for (int i = 0; i < 5; ++i) right += agrees(powers(1 + t * 5 + i), 100, 1);
    });
  for (std::thread& t : threads) t.join();
  CHECK(right == 20);
  CHECK(jit_stats().compiled == 20);
}

TEST_CASE(
    "a kernel made in the background can be run at once, with the same bits before and after") {
  const CleanJit clean;
  const BlockProgram p = powers(20);
  const auto kernel = kernel_for(p, Compile::in_background);
  Arguments first(p, 100, 1), later(p, 100, 1);
  kernel->run(first.in_pointers.data(), first.out_pointers.data(), nullptr, 100);
  kernel->wait();
  CHECK(kernel->state() == Kernel::State::ready);
  CHECK(bool(kernel->fn()));
  kernel->run(later.in_pointers.data(), later.out_pointers.data(), nullptr, 100);
  CHECK(first_difference(first.out[0], later.out[0], 100) == -1);
  CHECK(kernel_for(p) == kernel);
}

TEST_CASE("a kernel outlives the jit's memory of it") {
  const CleanJit clean;
  const BlockProgram p = powers(2);
  const auto kernel = kernel_for(p);
  reset_jit_for_testing();
  Arguments a(p, 64, 1);
  kernel->run(a.in_pointers.data(), a.out_pointers.data(), nullptr, 64);
  CHECK(kernel_for(p) != kernel);
}

TEST_CASE("an ill-formed program is refused, and nothing is remembered of it") {
  const CleanJit clean;
  BlockProgram p = powers(2);
  p.steps[0].operands[0] = 99;
  CHECK_THROWS_AS(kernel_for(p), InternalError);
  CHECK_THROWS_AS(kernel_for(p), InternalError);
}

TEST_CASE("the next process finds kernels on disk") {
  const CleanJit clean;
  CHECK(agrees(powers(3), 200, 1));
  CHECK(jit_stats().disk_writes == 1);
  reset_jit_for_testing();  // as a new process would be
  CHECK(agrees(powers(3), 200, 1));
  CHECK(jit_stats().disk_hits == 1);
  CHECK(jit_stats().compiled == 0);
  CHECK(entries(clean.folder).size() == 1);
}

TEST_CASE("kernels of different instruction sets do not share an entry") {
  const CleanJit clean;
  int64_t sets = 0;
  for_each_isa([&] {
    ++sets;
    CHECK(agrees(powers(3), 200, 1));
  });
  CHECK(jit_stats().compiled == sets);
  CHECK(static_cast<int64_t>(entries(clean.folder).size()) == sets);
}

TEST_CASE("damaged, truncated, foreign and empty entries are compiled anew and replaced") {
  const CleanJit clean;
  const BlockProgram p = powers(3);
  kernel_for(p);
  const fs::path file = entries(clean.folder).at(0);
  const std::string good = contents(file);
  std::string other_key = good;
  other_key[40] ^= 1;
  std::vector<std::string> bad = {"",
                                  "short",
                                  good.substr(0, 40),
                                  good.substr(0, good.size() - 1),
                                  good + "x",
                                  std::string(good.size(), '\0'),
                                  other_key};
  for (size_t at :
       {size_t{3}, size_t{9}, size_t{20}, size_t{28}, good.size() / 2, good.size() - 1}) {
    bad.push_back(good);
    bad.back()[at] ^= 0x40;
  }
  for (const std::string& bytes : bad) {
    CAPTURE(bytes.size());
    overwrite(file, bytes);
    reset_jit_for_testing();
    CHECK(agrees(p, 100, 1));
    CHECK(jit_stats().disk_rejected == 1);
    CHECK(jit_stats().compiled == 1);
    CHECK(contents(file) == good);
  }
}

TEST_CASE("an intact entry whose object is no object is compiled anew") {
  const CleanJit clean;
  const BlockProgram p = powers(3);
  kernel_for(p);
  const fs::path file = entries(clean.folder).at(0);
  const std::string good = contents(file);
  uint64_t key_size = 0;
  std::memcpy(&key_size, good.data() + 8, sizeof key_size);
  REQUIRE(write_entry(clean.folder, good.substr(32, key_size), "this is not an ELF file"));
  REQUIRE(contents(file) != good);
  reset_jit_for_testing();
  CHECK(agrees(p, 100, 1));
  CHECK(jit_stats().disk_rejected == 1);
  CHECK(contents(file) == good);
}

TEST_CASE("a folder that others may write to is neither read nor written, which is said once") {
  for (const fs::perms others : {fs::perms::others_write, fs::perms::group_write}) {
    const CleanJit clean;
    const BlockProgram p = powers(3);
    kernel_for(p);
    fs::permissions(clean.folder, others, fs::perm_options::add);
    std::mutex mutex;
    std::string said;
    set_warning_handler([&](const std::string& text) {
      const std::lock_guard lock(mutex);
      said += text;
    });
    for (int i = 0; i < 2; ++i) {
      reset_jit_for_testing();
      CHECK(agrees(p, 100, 1));
      CHECK(jit_stats().disk_hits == 0);
      CHECK(jit_stats().compiled == 1);
      CHECK(jit_stats().disk_writes == 0);
    }
    set_warning_handler(nullptr);
    CHECK(said == str("compiled kernels are not kept on disk: ", clean.folder.string(),
                      " can be written by others, who could put other code there.\nchmod go-w ",
                      clean.folder.string()));
  }
}

TEST_CASE("what is no plain file is no entry: a pipe, a link, a folder in its place") {
  const CleanJit clean;
  const BlockProgram p = powers(3);
  kernel_for(p);
  const fs::path file = entries(clean.folder).at(0), aside = clean.folder / "aside";
  const std::string good = contents(file);
  for (const char* kind : {"pipe", "link"}) {
    CAPTURE(kind);
    fs::rename(file, aside);
    if (kind == std::string("pipe")) REQUIRE(::mkfifo(file.c_str(), 0600) == 0);
    else fs::create_symlink(aside, file);
    reset_jit_for_testing();
    CHECK(agrees(p, 100, 1));
    CHECK(jit_stats().disk_hits == 0);
    CHECK(jit_stats().compiled == 1);
    CHECK(fs::is_regular_file(fs::symlink_status(file)));
    CHECK(contents(file) == good);
  }
  fs::remove(file);
  fs::create_directory(file);
  reset_jit_for_testing();
  CHECK(agrees(p, 100, 1));
  CHECK(jit_stats().compiled == 1);
}

TEST_CASE("without a usable folder kernels are compiled each time, and that is all") {
  const CleanJit clean;
  overwrite(clean.folder / "file", "");
  for (const std::string& folder :
       {std::string(), (clean.folder / "file").string(), (clean.folder / "file" / "below").string(),
        std::string("/proc/none")}) {
    CAPTURE(folder);
    setenv("GRAPNEL_CACHE_DIR", folder.c_str(), 1);
    reset_jit_for_testing();
    CHECK(agrees(powers(3), 100, 1));
    CHECK(jit_stats().compiled == 1);
    CHECK(jit_stats().disk_writes == 0);
  }
  // A folder that does not exist yet is made, for nobody else to write to.
  const fs::path deep = clean.folder / "a" / "b";
  setenv("GRAPNEL_CACHE_DIR", deep.c_str(), 1);
  reset_jit_for_testing();
  kernel_for(powers(3));
  CHECK(jit_stats().disk_writes == 1);
  CHECK((fs::status(deep).permissions() & fs::perms::others_all) == fs::perms::none);
  // A slash at the end changes nothing, nor does what others get by default.
  const mode_t before = ::umask(0002);
  setenv("GRAPNEL_CACHE_DIR", (clean.folder / "c" / "d//").c_str(), 1);
  reset_jit_for_testing();
  kernel_for(powers(3));
  ::umask(before);
  CHECK(jit_stats().disk_writes == 1);
  CHECK(fs::status(clean.folder / "c" / "d").permissions() == fs::perms::owner_all);
}

TEST_CASE("no folder is made in the home of another user") {
  const CleanJit clean;
  const fs::path home = clean.folder / "home";
  fs::create_directory(home);
  unsetenv("GRAPNEL_CACHE_DIR");
  const char* names[] = {"XDG_CACHE_HOME", "HOME"};
  std::map<std::string, std::optional<std::string>> before;
  for (const char* name : names) {
    const char* value = getenv(name);
    before[name] = value ? std::optional<std::string>(value) : std::nullopt;
    unsetenv(name);
  }
  for (const char* name : names) {
    setenv(name, home.c_str(), 1);
    const std::string below = name == std::string("HOME") ? "/.cache/grapnel" : "/grapnel";
    CHECK(cache_folder() == home.string() + below);
    if (geteuid() == 0) {  // only root can give a folder away
      REQUIRE(::chown(home.c_str(), 65534, 65534) == 0);
      CHECK(cache_folder().empty());
      REQUIRE(::chown(home.c_str(), 0, 0) == 0);
    }
    unsetenv(name);
  }
  for (const char* name : names)
    if (before[name]) setenv(name, before[name]->c_str(), 1);
}

TEST_CASE("the cache lies where the environment says") {
  const CleanJit clean;
  setenv("GRAPNEL_CACHE_DIR", "/some/where", 1);
  CHECK(cache_folder() == "/some/where");
  unsetenv("GRAPNEL_CACHE_DIR");
  const char* before = getenv("XDG_CACHE_HOME");
  const std::string kept = before ? before : "";
  setenv("XDG_CACHE_HOME", "/xdg", 1);
  CHECK(cache_folder() == "/xdg/grapnel");
  unsetenv("XDG_CACHE_HOME");
  if (const char* home = getenv("HOME"))
    CHECK(cache_folder() == std::string(home) + "/.cache/grapnel");
  if (before) setenv("XDG_CACHE_HOME", kept.c_str(), 1);
}

TEST_CASE("processes that write the same entry at the same time leave a good one") {
  const CleanJit clean;
  const std::string key = "key", object(1 << 16, 'x');
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        write_entry(clean.folder, key, object);
        const Entry entry = read_entry(clean.folder, key);
        if (entry.found != Found::yes || entry.object != object) std::abort();
      }
    });
  for (std::thread& t : threads) t.join();
  CHECK(entries(clean.folder).size() == 1);
}

TEST_CASE("the cache on disk does not grow without end: what was used least recently goes") {
  const CleanJit clean;
  set_cache_limit_for_testing(100'000);
  const std::string object(1000, 'x');
  for (int i = 0; i < 350; ++i) {
    REQUIRE(write_entry(clean.folder, str("key ", i), object));
    read_entry(clean.folder, "key 0");
  }
  CHECK(entries(clean.folder).size() < 300);
  CHECK(read_entry(clean.folder, "key 349").found == Found::yes);
  CHECK(read_entry(clean.folder, "key 0").found == Found::yes);
  CHECK(read_entry(clean.folder, "key 1").found == Found::no);
  set_cache_limit_for_testing(uint64_t{256} << 20);
}

TEST_CASE("whatever step fails, the kernel runs and says why") {
  for (JitFault fault : {JitFault::load, JitFault::compile, JitFault::link, JitFault::disk_read,
                         JitFault::disk_write}) {
    CAPTURE(static_cast<int>(fault));
    const CleanJit clean;
    set_jit_fault_for_testing(fault);
    const BlockProgram p = powers(5);
    const auto kernel = kernel_for(p);
    const bool fatal = fault < JitFault::disk_read;
    CHECK(kernel->state() == (fatal ? Kernel::State::failed : Kernel::State::ready));
    CHECK(bool(kernel->fn()) != fatal);
    CHECK(jit_stats().failed == (fatal ? 1 : 0));
    CHECK(kernel->error().empty() != fatal);
    if (fatal)
      CHECK(kernel->error().find(
                "No machine code for a fused group of 6 steps; it runs interpreted") == 0);
    CHECK(entries(clean.folder).size() == (fault == JitFault::disk_read ? 1 : 0));
    Arguments a(p, 100, 1), b(p, 100, 1);
    kernel->run(a.in_pointers.data(), a.out_pointers.data(), nullptr, 100);
    interpret(p, b.in_pointers.data(), b.out_pointers.data(), nullptr, 100);
    CHECK(first_difference(a.out[0], b.out[0], 100) == -1);
    // A failure is remembered, so that it is not tried again at every call.
    CHECK(kernel_for(p) == kernel);
    CHECK(kernel_for(p, Compile::in_background) == kernel);
  }
}

TEST_CASE("a forked child makes its own kernels, also those its parent had not begun") {
  const CleanJit clean;
  for (int i = 0; i < 5; ++i) {
    const auto kernel = kernel_for(powers(30 + i), Compile::in_background);
    CHECK(in_child([&] {
      alarm(60);  // rather than to hang
      kernel->wait();
      return kernel->fn() && agrees(powers(40 + i), 100, 1) &&
             kernel_for(powers(50 + i), Compile::in_background);
    }));
    kernel->wait();
    CHECK(bool(kernel->fn()));
  }
}

TEST_CASE("an internal error of LLVM comes back as an error, and LLVM is left alone from then on") {
  const CleanJit clean;
  CHECK(in_child([] {
    const LlvmApi& api = *llvm_module().api;
    std::string error;
    const Sink sink{&error, [](void* text, const char* data, size_t size) {
                      static_cast<std::string*>(text)->append(data, size);
                    }};
    if (api.provoke(sink) || error != "LLVM met an internal error: provoked") return false;
    const auto kernel = kernel_for(powers(7));
    return kernel->state() == Kernel::State::failed &&
           kernel->error().find("LLVM met an internal error earlier") != std::string::npos;
  }));
}
