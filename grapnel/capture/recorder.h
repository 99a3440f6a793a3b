/// Recorder: defers the ops of one thread until their values are needed.
///
/// Open one with RecordScope; every op on this thread then appends to its trace. A flush closes the
/// trace and hands it to the sink, which runs it. A scope that is left by an exception before
/// anything of it has run gives the trace up instead: nothing has happened (versions, generators
/// and whatever registered an undo are restored), and tensors that escaped say so when read. If a
/// part has run already, the rest runs, too, so that everything is as eager mode leaves it.
///
/// Note [Keys]
/// Two traces with equal keys can share one executable, whatever their sizes, scalars and tensors.
/// The key is a list of words, written while recording: ops, static attributes, which value goes
/// where, which values share a slot, types, ranks, and for every operand of an elementwise op
/// whether it has the full shape of the result. Relations between sizes follow from these facts,
/// never from numbers that happen to be equal. Closing the trace adds what is still alive.
#pragma once

#include <string>

#include "grapnel/capture/run_log.h"
#include "grapnel/capture/slot_table.h"
#include "grapnel/capture/trace.h"
#include "grapnel/ops/compiled_args.h"
#include "grapnel/ops/record.h"

namespace grapnel::record {

/// Why a trace was closed before its scope ended.
struct Break {
  std::string reason;          ///< "item reads a value"
  const void* site = nullptr;  ///< where the user's program asked
};

/// Runs closed traces.
class Sink {
 public:
  virtual ~Sink() = default;
  /// Computes every live slot of the trace. Recording is suspended meanwhile.
  virtual void run(capture::Trace& trace) = 0;
  /// A value was asked for in the middle. May throw to refuse; nothing has been run then.
  virtual void on_break(const Break& why, const capture::Trace& trace) = 0;
  /// Sizes become part of the key.
  virtual bool keys_sizes() const { return false; }
  /// Instructions are to know the hook that made them.
  virtual bool names_hooks() const { return false; }
};

class Recorder final : public Evaluator, public PendingOwner {
 public:
  explicit Recorder(Sink& sink);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  Tensor empty(const TensorSpec& spec) override;
  void run(const Op& op, Inputs inputs, const void* attrs, std::span<Tensor> out) override;
  void copy(const Tensor& target, const Tensor& source) override;
  void read(const Tensor& t, void* host) override;

  /// Runs what was recorded. Not a break: pieces of a long trace, the end of a scope.
  void flush();
  /// The same because somebody needs a value now.
  void flush_for(const char* what);
  /// Undoes what was recorded since the last flush. `why` is what escaped tensors will say.
  void give_up(const char* why) noexcept;
  /// Whether a part of what was recorded has run.
  bool has_run() const { return has_run_; }

  void keep(std::shared_ptr<const void> what, bool opaque) {
    trace_.kept.push_back(std::move(what));
    opaque_pending_ |= opaque;
  }
  void before_user_code() {
    if (opaque_pending_) flush();
  }
  void on_undo(std::function<void()> undo) {
    undo_.push_back({.call = static_cast<uint32_t>(trace_.calls.size()), .fn = std::move(undo)});
  }
  void on_undo_of(const Tensor& value, std::function<void(Tensor)> restore);
  void on_give_up(std::function<void()> undo);
  uint32_t holds(const Storage& storage) const {
    return outside_.find(&storage, trace_.slots) != capture::kNone ? 1 : 0;
  }
  const capture::Trace& trace() const { return trace_; }
  /// The value that stands for `t`, lifted if it is from outside.
  capture::ValueId value_of(const Tensor& t);
  /// The same if the trace has seen `t` already; kNone otherwise.
  capture::ValueId find(const Tensor& t) const;
  capture::SlotId find_slot(const Tensor& t) const;
  /// How often a trace was closed so far.
  uint64_t flushes() const { return flushes_; }
  void count_skipped_hook() { ++trace_.skipped_hooks; }

  void materialize(Storage& storage) override;
  void released(Storage& storage) noexcept override;

 private:
  /// The value that stands for an operand; kNone for one that is absent.
  capture::ValueId operand(const Tensor& t);
  capture::SlotId slot_of(const TensorImpl& impl);
  capture::ValueId find_in(capture::SlotId slot, const TensorImpl& impl) const;
  capture::SlotId lift(const StoragePtr& storage);
  /// Gives memory that a call sees for the first time its place in the trace.
  capture::SlotId number_fresh(Storage& storage);
  void forget_fresh(const Storage& storage);
  capture::ValueId view_of(const Tensor& view, capture::ValueId base);
  capture::ValueId result(const Op& op, const Tensor& t);
  capture::ValueId add_value(const TensorImpl& impl, capture::SlotId slot, bool linear);
  capture::ValueId new_value(const TensorImpl& impl, capture::SlotId slot);
  capture::ValueId number(const TensorImpl& impl, const LiftedNumber* lifted);
  /// Appends a call whose operands are the last of Trace::ids.
  void add_call(const Op& op, size_t inputs, size_t outputs, const void* attrs, bool inplace);
  void name_hook(capture::Instruction& call);
  uint32_t place_of(base::Place& place);
  void mark_written(const Tensor& t, capture::SlotId slot);
  /// Closes the trace and begins another; the closed one is yet to run.
  capture::Trace take(std::vector<capture::Undo>* undo = nullptr);
  void close();
  void forget();

  Sink& sink_;
  const bool keys_sizes_, names_hooks_;  ///< what the sink wants
  capture::Trace trace_;
  capture::SlotTable outside_;
  uint64_t flushes_ = 0;
  uint64_t serial_ = 0;            ///< of the trace; every one in the process has its own
  std::vector<Storage*> fresh_;    ///< memory for results that no call has seen yet
  std::vector<StoragePtr> blobs_;  ///< borrowed memory of which the trace has a copy
  bool opaque_pending_ = false;    ///< a call of user code waits to be run
  bool has_run_ = false;
  std::vector<capture::Undo> undo_;
  std::vector<size_t> until_run_;  ///< which of them count only until the graph runs
  /// Of storages from outside, before the first recorded write.
  std::vector<std::pair<StoragePtr, uint32_t>> versions_;
};

/// Opens a recorder on this thread; an open one is set aside until the scope ends.
class RecordScope {
 public:
  explicit RecordScope(Sink& sink) : recorder_(sink), outer_(this_context.recorder) {
    this_context.recorder = &recorder_;
  }
  ~RecordScope();
  RecordScope(const RecordScope&) = delete;
  RecordScope& operator=(const RecordScope&) = delete;
  Recorder& recorder() { return recorder_; }
  /// Runs what is left. Call it at the end; a scope that ends without gives up.
  void finish() { recorder_.flush(); }

 private:
  Recorder recorder_;
  Evaluator* outer_;
};

/// The recorder that is open on this thread, or null.
inline Recorder* open_recorder() { return static_cast<Recorder*>(this_context.recorder); }

}  // namespace grapnel::record
