#include "command/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "command/stop.h"
#include "grapnel/base/error.h"
#include "grapnel/io/file.h"

extern char** environ;

namespace command {

namespace {

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> out;
  for (const std::string& word : words) out.push_back(const_cast<char*>(word.c_str()));
  out.push_back(nullptr);
  return out;
}

int status_of(int raw) { return WIFSIGNALED(raw) ? 128 + WTERMSIG(raw) : WEXITSTATUS(raw); }

struct Pipe {
  int read = -1, write = -1;
  Pipe() {
    int ends[2];
    grapnel::check(pipe2(ends, O_CLOEXEC) == 0, "a pipe could not be made: ", std::strerror(errno));
    read = ends[0], write = ends[1];
  }
  ~Pipe() { close_read(), close_write(); }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void close_read() {
    if (read >= 0) close(read), read = -1;
  }
  void close_write() {
    if (write >= 0) close(write), write = -1;
  }
};

/// A child handles signals as if we did not, whatever we block and ignore.
struct Attributes {
  posix_spawnattr_t value;
  explicit Attributes(int flags) {
    sigset_t none, defaults;
    sigemptyset(&none);
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    posix_spawnattr_init(&value);
    posix_spawnattr_setflags(
        &value, static_cast<short>(flags | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK));
    posix_spawnattr_setpgroup(&value, 0);
    posix_spawnattr_setsigmask(&value, &none);
    posix_spawnattr_setsigdefault(&value, &defaults);
  }
  ~Attributes() { posix_spawnattr_destroy(&value); }
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;
};

/// Moves what is there from the pipe to the text; closes the pipe at its end.
void drain(Pipe& pipe, std::string& text) {
  char buffer[65536];
  const ssize_t got = ::read(pipe.read, buffer, sizeof buffer);
  if (got > 0) text.append(buffer, static_cast<size_t>(got));
  else if (got == 0 || errno != EINTR) pipe.close_read();
}

}  // namespace

ProcessResult run_process(const std::vector<std::string>& words, const std::string& input) {
  Pipe in, out, error;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.read, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out.write, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, error.write, STDERR_FILENO);
  const Attributes attributes(0);
  pid_t child = 0;
  const int problem = posix_spawnp(&child, words[0].c_str(), &actions, &attributes.value,
                                   pointers(words).data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (problem == ENOENT) return {ProcessResult::not_found, "", ""};
  grapnel::check(problem == 0, words[0], " could not be started: ", std::strerror(problem));
  in.close_read(), out.close_write(), error.close_write();

  ProcessResult result;
  size_t sent = 0;
  const auto outer =
      std::signal(SIGPIPE, SIG_IGN);  // a child that reads no further is told from its status
  while (out.read >= 0 || error.read >= 0) {
    if (sent == input.size()) in.close_write();
    pollfd ends[] = {{out.read, POLLIN, 0}, {error.read, POLLIN, 0}, {in.write, POLLOUT, 0}};
    if (poll(ends, 3, -1) < 0 && errno != EINTR) break;
    if (ends[0].revents) drain(out, result.output);
    if (ends[1].revents) drain(error, result.error);
    if (ends[2].revents) {
      const ssize_t n =
          ::write(in.write, input.data() + sent, std::min<size_t>(input.size() - sent, PIPE_BUF));
      if (n > 0) sent += static_cast<size_t>(n);
      else if (errno != EINTR) in.close_write(), sent = input.size();
    }
  }
  std::signal(SIGPIPE, outer);
  int raw = 0;
  while (waitpid(child, &raw, 0) < 0 && errno == EINTR) {
  }
  result.status = status_of(raw);
  return result;
}

int run_in_foreground(const std::vector<std::string>& words, int pass_on) {
  stop::watch_signals();
  std::fflush(stdout);
  Attributes attributes(POSIX_SPAWN_SETPGROUP);
  pid_t child = 0;
  const int problem = posix_spawnp(&child, words[0].c_str(), nullptr, &attributes.value,
                                   pointers(words).data(), environ);
  if (problem == ENOENT) return ProcessResult::not_found;
  grapnel::check(problem == 0, words[0], " could not be started: ", std::strerror(problem));
  stop::end_with(child);
  bool told = false;
  for (;;) {
    int raw = 0;
    const pid_t ended = waitpid(child, &raw, WNOHANG);
    if (ended == child) {
      stop::end_with(0);
      return status_of(raw);
    }
    if (!told && stop::requested() != 0) {
      told = true;
      kill(child, pass_on);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

std::string this_program() {
  char path[4096];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof path);
  grapnel::check(size > 0 && size < static_cast<ssize_t>(sizeof path),
                 "this program cannot find its own file: ", std::strerror(errno));
  return std::string(path, static_cast<size_t>(size));
}

}  // namespace command
