/// Probe: looks at a few steps closely. Notes when kernels, ops, hooks and communication ran, and
/// what a compiled step looks like.
///
/// Between begin() and end() it is asked to observe; the rest of the time it costs a null check
/// here and there.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "command/picture.h"
#include "grapnel/autograd/tape_observer.h"
#include "grapnel/grapnel.h"

namespace command {

struct Span {
  std::string lane, name;
  double begin = 0,
         end = 0;  ///< microseconds on the machine's clock, the same for all its processes
  int64_t step = 0;
};

class Probe final : grapnel::RunObserver {
 public:
  Probe() = default;
  ~Probe() { end(); }

  void begin(int64_t step);
  void end();
  bool on() const { return on_; }
  /// The step goes on with this: "forward", "backward", "optimizer".
  void phase(const char* name);

  /// Around one hook that is given `grad`.
  class HookScope {
   public:
    HookScope(Probe& probe, const std::string& name, const std::string& tensor,
              const grapnel::Tensor& grad);
    ~HookScope();
    HookScope(const HookScope&) = delete;
    HookScope& operator=(const HookScope&) = delete;

   private:
    Probe* probe_;
    std::string name_;
    size_t note_ = 0;
    double start_ = 0;
  };

  void add(std::string lane, std::string name, double begin, double end);
  static double now();

  std::vector<Span> spans() const;
  const Picture& picture() const { return picture_; }
  /// Names of tensors, for the picture.
  void name(const grapnel::Tensor& tensor, const std::string& text) {
    picture_.names[tensor.impl().storage.get()] = text;
  }

 private:
  void on_graph(const grapnel::capture::Trace& trace) override;
  void on_item(const grapnel::capture::Trace& trace, const Item& item) override;
  void on_op(grapnel::Node& node);
  void close_phase();

  /// Tells the probe about ops on the tape while it lives.
  struct OpObserver;

  bool on_ = false;
  std::shared_ptr<OpObserver> ops_;
  int64_t step_ = 0;
  double phase_start_ = 0, last_op_ = 0;
  const char* phase_ = nullptr;
  mutable std::mutex mutex_;  ///< communication ends on a thread of its own
  std::vector<Span> spans_;
  Picture picture_, drawing_;
  bool drawn_ = false;  ///< the graph that is running is the one in drawing_
};

}  // namespace command
