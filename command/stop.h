/// Stop: why training should end early. The first Ctrl-C asks for it, and training saves a
/// checkpoint; the second ends the process at once.
///
/// Note [Signals on a thread of their own]
/// Stopping takes more than a handler may do: it waits, writes and ends the process. So signals are
/// blocked everywhere, and one thread waits for them.
#pragma once

#include <sys/types.h>

#include <csignal>

namespace command::stop {

/// Exit statuses are 128 and the number of the signal, as a shell has them.
inline constexpr int interrupted = 128 + SIGINT, closed_output = 128 + SIGPIPE;

/// From now on SIGINT, SIGTERM and SIGUSR1 (which mpirun passes on) ask to stop. Call it before
/// other threads are started.
void watch_signals();
/// Writing to a closed pipe becomes an error of the stream instead of the end.
void ignore_closed_pipes();
/// A process group that is ended together with us by the second signal.
void end_with(pid_t group);
/// 0, or the exit status that fits what happened: a signal came, or nobody reads the standard
/// output any more.
int requested();
/// Asks for it by itself.
void request(int status);

}  // namespace command::stop
