/// Trainer: one run of `grapnel train` on one rank, from the first step or from a checkpoint to the
/// last.
#pragma once

#include <memory>
#include <optional>

#include "command/data.h"
#include "command/options.h"
#include "command/probe.h"
#include "command/run_folder.h"
#include "command/watch.h"

namespace command {

class Trainer {
 public:
  /// `group` has one rank or several. Only rank 0 writes to the folder and prints.
  Trainer(const TrainOptions& options, grapnel::dist::ProcessGroup group);
  ~Trainer();

  /// Trains to the end, or until somebody asks to stop. Returns the exit status.
  int run();

  /// One step on the next rows, as training does it; for `grapnel graph`.
  void step_once(const Data& data);
  const Probe& probe() const { return probe_; }

 private:
  struct Batch {
    grapnel::Tensor x, y;
  };
  void build(const ModelSizes& sizes);
  void open_folder();
  void take_up_metrics();
  Batch batch_at(int64_t step);
  grapnel::Tensor forward(const grapnel::Tensor& x);
  grapnel::Tensor train_step(const grapnel::Tensor& x, const grapnel::Tensor& y);
  void measure();
  void train_epoch(int64_t epoch);
  void after_step(double loss);
  double rate_at(int64_t step) const;
  double test();
  bool stop_together();
  void save();
  void write_results();
  bool first() const { return group_.rank() == 0; }

  TrainOptions options_;
  grapnel::dist::ProcessGroup group_;
  Data data_;
  Probe probe_;
  std::shared_ptr<NetImpl> model_;
  std::unique_ptr<grapnel::dist::DistributedDataParallel<NetImpl>> parallel_;
  std::unique_ptr<grapnel::optim::AdamW> optimizer_;
  std::unique_ptr<Watch> watch_;
  std::function<grapnel::Tensor(const grapnel::Tensor&, const grapnel::Tensor&)> step_;
  std::function<grapnel::CompileStats()> stats_;
  grapnel::Checkpoint state_;

  std::optional<RunFolder> folder_;
  std::optional<LineWriter> metrics_, gradients_;
  grapnel::Tensor order_;  ///< of the examples of the epoch
  int64_t order_epoch_ = -1;
  int64_t step_number_ = 0, steps_per_epoch_ = 0, total_steps_ = 0, gather_every_ = 1, look_at_ = 0;
  double seconds_ = 0, accuracy_ = 0, loss_ = 0;
  int64_t tested_at_ = -1;  ///< the step that accuracy_ is of
  bool stopping_ = false;  ///< somebody asked for it, and all ranks know
};

/// A number for the bits of all parameters: equal weights have equal ones.
uint64_t digest(grapnel::nn::Module& module);

}  // namespace command
