/// Stop: why training should end early. The first Ctrl-C asks for it, and training saves a checkpoint; the second ends the process at once.
#pragma once

#include <csignal>

namespace command::stop {

/// Exit statuses are 128 and the number of the signal, as a shell has them.
inline constexpr int interrupted = 128 + SIGINT, closed_output = 128 + SIGPIPE;

/// From now on SIGINT, SIGTERM and SIGUSR1 (which mpirun passes on) ask to stop.
void watch_signals();
/// Writing to a closed pipe becomes an error of the stream instead of the end.
void ignore_closed_pipes();
/// 0, or the exit status that fits what happened: a signal came, or nobody reads the standard output any more.
int requested();
/// Asks for it by itself.
void request(int status);

}  // namespace command::stop
