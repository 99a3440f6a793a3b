/// Statistics of gradients, gathered without looking at them: sums and histograms are kept in
/// tensors, and only report() reads them.
///
///   hooks::Statistics stats({.bins = 32, .low = -0.1, .high = 0.1});
///   stats.attach("fc.weight", net->fc->weight);
///   ...train...
///   for (const auto& row : stats.report())
///     std::cout << row.name << ": mean " << row.mean << ", norm " << row.norm << '\n';
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "grapnel/io/archive.h"
#include "grapnel/nn/module.h"
#include "grapnel/tensor/tensor.h"

namespace grapnel::hooks {

/// Which gradients are looked at.
struct StatisticsOptions {
  int64_t bins = 0;  ///< 0: no histogram
  double low = -1, high = 1;
};

/// Counts, means, deviations and extremes of gradients.
class Statistics {
 public:
  /// The statistics of one gradient.
  struct Row {
    std::string name;
    int64_t calls = 0;     ///< gradients seen
    int64_t elements = 0;  ///< numbers in them
    double mean = 0, deviation = 0, min = 0, max = 0;
    double norm = 0;                 ///< root of the mean square norm of one gradient
    std::vector<int64_t> histogram;  ///< below low, the bins, from high on, NaN
  };

  explicit Statistics(const StatisticsOptions& options = {});
  /// Removes its hooks.
  ~Statistics();
  Statistics(const Statistics&) = delete;
  Statistics& operator=(const Statistics&) = delete;

  HookHandle attach(const std::string& name, const Tensor& tensor);
  /// All parameters of a module, under their names.
  void attach(nn::Module& module);
  /// Adds one gradient. What the hooks call.
  void add(size_t series, const Tensor& grad);
  /// Whether gradients count that come from now on. Looking away costs nothing.
  void set_active(bool active) { active_ = active; }

  std::vector<Row> report() const;
  void reset();
  void save(io::Archive& out) const;
  void load(const io::Archive& in);

 private:
  struct Series;
  StatisticsOptions options_;
  std::vector<std::unique_ptr<Series>> series_;
  std::vector<HookHandle> handles_;
  bool active_ = true;
};

}  // namespace grapnel::hooks
