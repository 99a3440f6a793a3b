#include "command/stop.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <initializer_list>
#include <thread>

namespace command::stop {

namespace {

std::atomic<int> status{0};
std::atomic<pid_t> companions{0};

void wait_for_signals(const sigset_t& signals) {
  for (;;) {
    int signal = 0;
    if (sigwait(&signals, &signal) != 0) continue;
    const int now = signal == SIGUSR1 ? interrupted : 128 + signal;
    int none = 0;
    if (status.compare_exchange_strong(none, now)) continue;
    if (const pid_t group = companions) kill(-group, SIGTERM);
    _exit(now);
  }
}

}  // namespace

void watch_signals() {
  static const sigset_t signals = [] {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) sigaddset(&set, signal);
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
    std::thread([set] { wait_for_signals(set); }).detach();
    return set;
  }();
  static_cast<void>(signals);
}

void ignore_closed_pipes() { std::signal(SIGPIPE, SIG_IGN); }

void end_with(pid_t group) { companions = group; }

int requested() {
  if (std::ferror(stdout)) request(closed_output);
  return status;
}

void request(int why) {
  int none = 0;
  status.compare_exchange_strong(none, why);
}

}  // namespace command::stop
