/// Communicator: one rank's end of a line between ranks, as a backend implements it. Users see
/// ProcessGroup.
///
/// A collective is described by a Call, which all ranks can compare, and an Operation, which also
/// has this rank's memory. A communicator is handed operations and completes their futures later,
/// from a thread of its own.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "grapnel/dist/call.h"
#include "grapnel/dist/executor.h"
#include "grapnel/dist/future.h"
#include "grapnel/tensor/tensor.h"

namespace grapnel::dist {

using Clock = std::chrono::steady_clock;
/// A call with the memory of one rank.
struct Operation {
  Call call;
  uint64_t sequence = 0;
  Tensor input, output;  ///< contiguous; the same tensor where the call works in place
  Clock::time_point deadline;
  std::chrono::milliseconds timeout{0};
  std::vector<Tensor> result;
  Future<std::vector<Tensor>> done;
};
using OperationPtr = std::shared_ptr<Operation>;

/// What a backend has to offer: collectives between ranks.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual const std::string& name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Hands over an operation. Never blocks, never throws: failures go to the operation's future.
  virtual void submit(OperationPtr operation) = 0;
  /// The communicator of some of the ranks, in the order given; all ranks call it alike. Null for
  /// those left out.
  virtual std::shared_ptr<Communicator> split(const std::vector<int>& ranks,
                                              const std::string& name) = 0;
  /// A communicator of the same ranks that has nothing to do with failures so far; all ranks call
  /// it alike.
  virtual std::shared_ptr<Communicator> renew() = 0;
  /// Makes every operation, here and on other ranks, fail with CommAborted.
  virtual void abort(const std::string& reason) = 0;
  virtual bool aborted() const = 0;
  /// Where callbacks of this rank's futures run.
  virtual const std::shared_ptr<Executor>& executor() const = 0;
  /// A number that ranks on one machine share.
  virtual uint64_t machine() const = 0;
};

}  // namespace grapnel::dist
