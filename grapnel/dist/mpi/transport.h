/// What libgrapnel needs of MPI, on plain memory and without waiting. libgrapnel_mpi.so implements
/// it; only that module knows MPI, and it is loaded when a program first asks for MPI: see
/// docs/notes/013-mpi-in-a-module.md.
#pragma once

#include <cstdint>
#include <stdexcept>

#include "grapnel/dist/call.h"

namespace grapnel::dist {

/// Changes when anything in this file or in call.h does.
inline constexpr uint32_t kMpiTransportVersion = 4;
inline constexpr char kMpiTransportSymbol[] = "grapnel_mpi_transport";

/// A collective with the memory of this rank.
struct MpiOperation {
  Call call;
  const void* input = nullptr;
  void* output = nullptr;
};

/// The ranks did not call the same: a message is shorter or longer than what waits for it. Made of
/// nothing but this header, so that both sides of the module know it.
class MpiMismatch : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Calls are made one at a time: by the thread that called connect(), or by any if
/// allows_any_thread(). Failures of MPI are thrown as std::runtime_error.
class MpiTransport {
 public:
  virtual ~MpiTransport() = default;
  /// A communicator. The first has all ranks.
  using Line = int;
  static constexpr Line kWorld = 0, kNone = -1;
  /// An operation under way.
  using Ticket = int64_t;

  /// False if the program has initialised MPI itself, in a way that allows calls from its own
  /// thread only.
  virtual bool allows_thread() const = 0;
  /// After connect(): whether other threads may make calls, too, one at a time.
  virtual bool allows_any_thread() const = 0;
  /// Initialises MPI, unless the program has done so.
  virtual void connect() = 0;
  virtual int rank(Line line) const = 0;
  virtual int size(Line line) const = 0;

  virtual Ticket start(Line line, const MpiOperation& operation) = 0;
  /// Makes progress; true when the operation is complete, and the ticket void.
  virtual bool test(Ticket ticket) = 0;
  /// A line of the same ranks: `*made` is set when the ticket is complete.
  virtual Ticket start_duplicate(Line line, Line* made) = 0;
  /// A line of some ranks of `line`; blocks until all of `line` have called it. kNone for ranks
  /// that are not listed.
  virtual Line split(Line line, const int* ranks, int count) = 0;
  /// A line of ranks of the world; blocks until all of them have called it with the same number.
  virtual Line create(const int* world_ranks, int count, int number) = 0;

  /// Ends a line on which nothing is under way. No other rank has to be there.
  virtual void close(Line line) = 0;
  /// How many there are; any thread may ask.
  virtual int open_lines() const = 0;

  /// A short text to every other rank, outside of all lines.
  virtual void send_note(const char* text) = 0;
  /// The next text that has arrived; null if there is none. Valid until the next call.
  virtual const char* next_note() = 0;
  /// Ends MPI if connect() began it.
  virtual void disconnect() = 0;
  /// Counts above this are split; smaller ones are for tests.
  virtual void set_largest_count(int64_t count) = 0;
  /// Before connect(): ranks are taken to be on machines of their own; for tests.
  virtual void set_apart() = 0;
};

using MpiTransportFn = MpiTransport* (*)(uint32_t version);

}  // namespace grapnel::dist
