/// GradientLogger: norms (and histograms) of gradients, step by step, as JSON lines or for
/// TensorBoard.
///
///   hooks::TensorBoardWriter writer("runs/1");
///   hooks::GradientLogger logger(*net, writer, {.every = 10});
///   for (...) { ...; loss.backward(); opt.step(); logger.step(); }
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "grapnel/hooks/statistics.h"

namespace grapnel::hooks {

/// Counts between limits: counts[i] values are at most limits[i] and above the limit before.
struct LoggedHistogram {
  double min = 0, max = 0, count = 0, sum = 0, sum_squares = 0;
  std::vector<double> limits, counts;
};

/// Where logged values go.
class LogWriter {
 public:
  virtual ~LogWriter() = default;
  virtual void scalar(const std::string& tag, int64_t step, double value) = 0;
  virtual void histogram(const std::string& tag, int64_t step, const LoggedHistogram& values) = 0;
  virtual void flush() = 0;
};

/// One object per line: {"step":10,"tag":"fc.weight/norm","value":0.5}. Appends to a file that
/// exists.
class JsonLinesWriter : public LogWriter {
 public:
  explicit JsonLinesWriter(const std::filesystem::path& path);
  ~JsonLinesWriter() override;
  void scalar(const std::string& tag, int64_t step, double value) override;
  void histogram(const std::string& tag, int64_t step, const LoggedHistogram& values) override;
  void flush() override;

 private:
  struct File;
  std::unique_ptr<File> file_;
};

/// An event file in `folder`, as TensorBoard reads it: `tensorboard --logdir folder`.
class TensorBoardWriter : public LogWriter {
 public:
  explicit TensorBoardWriter(const std::filesystem::path& folder);
  ~TensorBoardWriter() override;
  void scalar(const std::string& tag, int64_t step, double value) override;
  void histogram(const std::string& tag, int64_t step, const LoggedHistogram& values) override;
  void flush() override;
  const std::filesystem::path& path() const;

 private:
  struct File;
  std::unique_ptr<File> file_;
};

/// What is written down, and how often.
struct GradientLoggerOptions {
  int64_t every = 1;       ///< steps from one entry to the next
  bool all_steps = false;  ///< an entry is about all steps since the one before, not its own alone
  StatisticsOptions statistics = {};
};

/// Logs norm, mean and largest element of every parameter's gradient. Values are read when an entry
/// is written, not before; steps between entries cost nothing, unless entries are about all of them.
class GradientLogger {
 public:
  GradientLogger(nn::Module& module, LogWriter& writer, const GradientLoggerOptions& options = {});
  /// Counts one step and writes an entry if it is time.
  void step();
  int64_t steps() const { return steps_; }
  void save(io::Archive& out) const;
  void load(const io::Archive& in);

 private:
  /// Whether an entry is written at the end of step `number`.
  bool is_time(int64_t number) const { return number % options_.every == 0; }
  /// From now on the next step runs.
  void begin_step() { statistics_.set_active(options_.all_steps || is_time(steps_ + 1)); }

  LogWriter& writer_;
  GradientLoggerOptions options_;
  Statistics statistics_;
  int64_t steps_ = 0;
};

/// The checksum of TensorBoard's records.
uint32_t crc32c(const void* data, size_t bytes);

}  // namespace grapnel::hooks
