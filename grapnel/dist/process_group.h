/// ProcessGroup: ranks that work together, and the collectives between them. Every collective
/// returns at once; its Work says when it is done.
///
///   dist::ProcessGroup group = dist::init();
///   group.all_reduce(t).wait();                       // t is now the sum over all ranks
///   Future<Tensor> sum = group.all_reduce(t).single();
///
/// Note [Same collectives in the same order]
/// All ranks of a group call the same collectives in the same order. Where code runs in no fixed
/// order, as callbacks of several futures do, each part takes a channel of its own: a group of the
/// same ranks with its own order.
///
/// Note [Collectives in recordings]
/// A collective is something that other ranks see. Called while a recording is open (in a compiled
/// function, or in a traced hook of a compiled pass), it runs what was recorded so far, as reading
/// a value does: a break of the graph, named after the collective. So it sends the values that
/// eager sends, and collectives stay in the order in which they were called, in every backend,
/// whether or not anybody waits. Inside opaque() and invoke(), and in comm hooks, nothing breaks:
/// they are called when the graph has come to them.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "grapnel/dist/call.h"
#include "grapnel/dist/future.h"
#include "grapnel/tensor/tensor.h"

namespace grapnel::dist {

class Communicator;

/// A collective under way.
class Work {
 public:
  Work(Future<std::vector<Tensor>> done, uint64_t sequence)
      : done_(std::move(done)), sequence_(sequence) {}
  /// All results: one tensor per rank for all_gather, none for barrier, else one.
  const Future<std::vector<Tensor>>& future() const { return done_; }
  /// The result of a collective that has exactly one.
  Future<Tensor> single() const;
  operator Future<Tensor>() const { return single(); }
  std::vector<Tensor> wait() const { return done_.wait(); }
  /// Number of the collective in its group, counted from 0.
  uint64_t sequence() const { return sequence_; }

 private:
  Future<std::vector<Tensor>> done_;
  uint64_t sequence_;
};

inline constexpr std::chrono::milliseconds kDefaultTimeout = std::chrono::minutes(30);

/// A counted handle on this rank's end of the group.
class ProcessGroup {
 public:
  /// No group. Hooks take it to mean the wrapper's own.
  ProcessGroup() = default;
  explicit ProcessGroup(std::shared_ptr<Communicator> communicator,
                        std::chrono::milliseconds timeout = kDefaultTimeout);
  explicit operator bool() const { return state_ != nullptr; }

  int rank() const;
  int size() const;
  const std::string& name() const;

  // --- Collectives ---
  /// Replaces `t` on every rank by the sum (or other reduction) over all ranks.
  Work all_reduce(const Tensor& t, ReduceOp op = ReduceOp::sum) const;
  /// Replaces `t` by that of `root`.
  Work broadcast(const Tensor& t, int root = 0) const;
  /// The tensors of all ranks, in the order of ranks. They have equal shapes and lie side by side
  /// in one memory.
  Work all_gather(const Tensor& t) const;
  /// Cuts `t` into one part per rank along the first dimension; rank r gets the sum of all parts r.
  Work reduce_scatter(const Tensor& t, ReduceOp op = ReduceOp::sum) const;
  /// Cuts `t` into one part per rank along the first dimension; rank r gets part r of everybody, in
  /// the order of ranks.
  Work all_to_all(const Tensor& t) const;
  /// Done when every rank has called it.
  Work barrier() const;
  /// From one rank to another. Messages between the same ranks with the same tag arrive in order.
  Work send(const Tensor& t, int to, int tag = 0) const;
  Work recv(const Tensor& t, int from, int tag = 0) const;

  // --- Further groups ---
  /// The group of some of the ranks, in the order given. All ranks of this group call it; those
  /// left out get no group.
  ProcessGroup subgroup(const std::vector<int>& ranks, const std::string& name = "subgroup") const;
  /// A group of the same ranks with an order of its own: see Note [Same collectives in the same
  /// order]. It shares this group's timeout.
  ProcessGroup duplicate(const std::string& name) const;
  /// The same, made on first use and kept; all ranks use new ones in the same order.
  ProcessGroup channel(const std::string& name) const;
  /// After a failure: a group of the same ranks that works again, if all of them are still there.
  /// All ranks call it.
  ProcessGroup renew() const;
  /// The ranks on this machine; made by all ranks together.
  ProcessGroup of_this_machine() const;

  // --- Failure ---
  /// How long a collective may take, counted from the call.
  std::chrono::milliseconds timeout() const;
  void set_timeout(std::chrono::milliseconds timeout) const;
  /// Gives the group up, on all ranks, with everything made from it and everything it was made
  /// from.
  void abort(const std::string& reason) const;
  bool aborted() const;

  // --- Facts ---
  /// Bytes this rank has handed to collectives, channels included.
  uint64_t bytes_sent() const;
  /// Number of collectives called so far on this group, without its channels.
  uint64_t sequence() const;
  Communicator& communicator() const;
  friend bool operator==(const ProcessGroup& a, const ProcessGroup& b) {
    return a.state_ == b.state_;
  }

 private:
  struct State;
  Work submit(Call call, const Tensor& input, const Tensor& output,
              std::vector<Tensor> result) const;
  Work in_place(Call call, const Tensor& t) const;
  std::shared_ptr<State> state_;
};

/// "[rank 1 of 4]"
std::string where(const ProcessGroup& group);

}  // namespace grapnel::dist
