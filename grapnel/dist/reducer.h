/// Reducer: takes the gradients of a backward pass as they arrive, gathers them in buckets and
/// sends each bucket while the pass goes on. Start reading at Reducer::on_grad.
///
/// Note [Order of launch]
/// Buckets are handed to the hook in the order 0, 1, 2, ... on every rank, even if a later one
/// fills up earlier. When the last is launched, a callback at the end of the pass is arranged; it
/// waits for the buckets in the same order and writes the results to grad() of the parameters. A
/// gradient is written only when its whole bucket has arrived.
///
/// Note [Communication in recorded passes]
/// A recorded pass goes through the same calls: filling a bucket is recorded as ordinary copies,
/// sending it as an effect (an opaque op that stays in its place among the others), which runs in
/// the middle of the graph, so that the gradients after it are computed while it is under way. The
/// end of a compiled backward pass is outside of the graph and waits at once. When the whole step
/// is recorded, receiving is an effect, too, and writing the results to grad() is recorded. Buckets
/// and the wrapper's own state must therefore stay where they are until the graph has run.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "grapnel/autograd/pass_failure.h"
#include "grapnel/dist/buckets.h"
#include "grapnel/dist/data_parallel_options.h"
#include "grapnel/dist/grad_bucket.h"
#include "grapnel/tensor/hook_list.h"

namespace grapnel::dist {

class Reducer final : public engine::FailureListener,
                      public std::enable_shared_from_this<Reducer> {
 public:
  Reducer(std::vector<Parameter> parameters, ProcessGroup group, DataParallelOptions options);
  ~Reducer();
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  // --- Between passes ---
  /// Begins to hear about passes that fail. Once it belongs to a shared_ptr.
  void listen();
  void set_hook(CommHook hook);
  bool has_hook() const { return static_cast<bool>(hook_.call); }
  void set_static_graph();
  /// Before a forward that will be synchronised: complains if the last pass was left unfinished,
  /// and lays the buckets out anew in the order in which gradients arrived, once.
  void before_forward();
  /// After it: the next pass is synchronised. It may start from the outputs of several forwards.
  void prepare();
  /// The next pass stays local.
  void disarm();
  /// Takes part in a pass of the other ranks with zeros.
  void shadow_pass();
  /// Number that sums are divided by when there is no hook.
  void set_divisor(int divisor) { divisor_ = divisor; }
  /// Starts over with another group: failures are forgotten, and buckets are laid out again.
  void reset(ProcessGroup group);
  void check_usable() const;

  // --- During a pass ---
  /// The pass has reached the outputs of the module.
  void on_outputs();
  /// A pass has failed, of whatever rank: if it is one that the other ranks take part in, they are
  /// told.
  void pass_failed(const std::string& what) noexcept override;

  HookHandle add_after_reduction_hook(const Tensor& parameter,
                                      std::function<void(const Tensor&)> hook, HookOptions options);
  const ProcessGroup& group() const { return group_; }
  const DataParallelOptions& options() const { return options_; }
  ReducerStats stats() const;
  std::vector<std::vector<size_t>> layout() const;
  const std::vector<int64_t>& expected_firings() const { return expected_; }
  /// Goes on where another run stopped: the layout is final, and a static graph is known.
  void restore(int64_t iterations, bool rebuilt, std::vector<std::vector<size_t>> buckets,
               std::vector<int64_t> expected);
  /// Gives parameters their full precision back, or takes it away.
  void lower_precision();

 private:
  struct Member {
    std::string name;
    Tensor tensor;
    Tensor full;       ///< while precision is reduced: the parameter's real values
    Tensor untouched;  ///< what grad() was before its place in the bucket was cleared
    HookHandle ready_hook;
    std::unique_ptr<HookList<std::function<void(const Tensor&)>>> after;
    size_t bucket = 0, position = 0;
    int64_t fired = 0;
    bool ready = false;
    bool used = false;  ///< a gradient has arrived since the last synchronised pass
  };
  struct Bucket {
    std::vector<size_t> members;
    Tensor buffer;
    std::vector<Tensor> views;
    GradBucket handle;
    size_t pending = 0;
    Future<Tensor> result;
  };

  void attach_hooks();
  void make_buckets(std::vector<std::vector<size_t>> layout);
  std::vector<BucketItem> items() const;
  bool will_rebuild() const {
    return options_.buckets.empty() && (options_.static_graph || !options_.find_unused_parameters);
  }
  bool counting() const { return options_.static_graph && expected_.empty(); }
  void rebuild();
  void settle() const;
  void start_pass();

  void on_grad(size_t index, bool defined);
  void mark_ready(size_t index);
  void copy_in(Member& member);
  void launch_full_buckets();
  void launch(Bucket& bucket);
  void send(Bucket& bucket);
  Tensor receive(Bucket& bucket);
  Tensor as_effect(Bucket& bucket, size_t outputs, std::function<Tensor()> fn);
  void launch_used_map();
  void launch_counted();
  void finish();
  void find_used_anywhere();
  void write_back(Bucket& bucket, const Tensor& flat);
  void write_grad(Member& member, const Tensor& view, const Tensor& averaged);
  void run_after_hooks();
  [[noreturn]] void give_up(size_t bucket);
  void poison(std::string failure);
  void watch_recording();
  bool searches() const { return options_.find_unused_parameters && !options_.static_graph; }
  void find_unused();
  std::string list_missing() const;
  void event(ReducerEvent::Kind kind, size_t index) const {
    if (options_.on_event) options_.on_event({kind, index});
  }
  std::string here() const { return where(group_); }

  DataParallelOptions options_;
  std::vector<Member> members_;
  std::vector<Bucket> buckets_;
  ProcessGroup group_, used_channel_;
  CommHook hook_;
  int divisor_ = 1;

  bool armed_ = false;    ///< the next pass is synchronised
  bool in_pass_ = false;  ///< a synchronised pass has begun and is not finished
  bool began_ = false;    ///< some synchronised pass has begun
  bool rebuilt_ = false;
  bool searched_ = false;  ///< the pass knows what it will not reach
  bool warned_all_used_ = false, warned_graph_ = false;
  size_t next_launch_ = 0;
  int pass_depth_ = 0;
  int64_t complete_ = 0;  ///< number of passes whose averages have all arrived
  std::vector<size_t> unused_, arrival_;
  std::vector<int64_t> counts_, expected_;
  std::vector<bool> used_anywhere_;
  Future<Tensor> used_map_;
  std::string failure_;
  ReducerStats stats_;
};

}  // namespace grapnel::dist
