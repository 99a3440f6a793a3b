/// The hooks that `grapnel train --hooks` attaches to every parameter.
///
/// | written          | does                                                                      |
/// |------------------|---------------------------------------------------------------------------|
/// | histogram        | gathers norm and histogram of the gradient in some steps; changes nothing |
/// | clip=LIMIT       | scales the gradient so that its norm is at most LIMIT                     |
/// | clip-value=LIMIT | brings every element into [-LIMIT, LIMIT]                                 |
/// | noise=DEVIATION  | adds normal noise                                                         |
/// | scale=FACTOR     | multiplies                                                                |
///
/// They run in the order in which they are written, and each sees what the one before returned.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "command/probe.h"
#include "command/run_folder.h"

namespace command {

/// One hook as written on the command line.
struct HookSpec {
  std::string kind;
  double value = 0;
  /// Throws with the list of hooks when there is none of that name.
  static HookSpec parse(const std::string& text);
  std::string name() const;
};

/// Histograms of log10 of the size of gradients, kept in tensors; they are read after a step, so
/// that a compiled step has no break.
class Histograms {
 public:
  static constexpr int64_t bins = 44;
  static constexpr double low = -10, high = 1;

  size_t add_series(const std::string& name);
  void gather(size_t series, const grapnel::Tensor& grad);
  /// One object per series that saw a gradient since the last call.
  std::vector<Json> take(int64_t step);

 private:
  struct Series {
    std::string name;
    grapnel::Tensor counts, norm;  ///< undefined until a gradient came
  };
  std::vector<Series> series_;
};

class Watch {
 public:
  Watch(grapnel::nn::Module& module, const std::vector<HookSpec>& hooks, Probe& probe);
  /// Removes its hooks.
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  /// Whether histograms are gathered in the next step.
  void set_gathering(bool on) { gathering_ = on; }
  Histograms& histograms() { return histograms_; }

 private:
  using Change = std::function<grapnel::Tensor(const grapnel::Tensor&)>;
  Change make(const HookSpec& hook, const std::string& parameter);

  Probe& probe_;
  Histograms histograms_;
  bool gathering_ = false;
  std::vector<grapnel::HookHandle> handles_;
};

}  // namespace command
