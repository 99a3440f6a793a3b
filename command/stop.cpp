#include "command/stop.h"

#include <unistd.h>

#include <cstdio>
#include <initializer_list>

namespace command::stop {

namespace {

volatile std::sig_atomic_t status = 0;

extern "C" void on_signal(int signal) {
  const int now = signal == SIGUSR1 ? interrupted : 128 + signal;
  if (status != 0) _exit(now);
  status = now;
}

}  // namespace

void watch_signals() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) sigaction(signal, &action, nullptr);
}

void ignore_closed_pipes() { std::signal(SIGPIPE, SIG_IGN); }

int requested() {
  if (status == 0 && std::ferror(stdout)) status = closed_output;
  return status;
}

void request(int why) {
  if (status == 0) status = why;
}

}  // namespace command::stop
